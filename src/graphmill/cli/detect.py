"""`detect`: judge a stream by the weights of a run."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from graphmill.api.using import refuse_other
from graphmill.base.python import python_m
from graphmill.cli.agree import agree_to_code
from graphmill.cli.options import LogsRoot
from graphmill.cli.predict import Run, Trust, WeightsOption


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(detect)


def detect(
    run: Run,
    *,
    source: Annotated[
        str,
        typer.Option("--input", "-i", metavar="CAPTURE|-", help="A capture, perhaps .gz; -: standard input."),
    ] = "-",
    layout: Annotated[
        str,
        typer.Option(metavar="LAYOUT", help="csv, car-hacking, candump, crysys; auto: told by the first lines."),
    ] = "auto",
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="SCORE",
            show_default=False,
            help="Alarm from this score on; else the one that was chosen on the validation windows.",
        ),
    ] = None,
    weights: WeightsOption = "best",
    trust: Trust = None,
    logs_root: LogsRoot = Path("logs"),
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Watch a CAN bus by the model of a run.

    One verdict for each window, as soon as its frames have arrived: when it was, its score, and the ids and the edges
    that weigh most in it. What is wrong with lines of the capture, and sums at the end, go to standard error.

    \b
    Example:
      candump -L can0 | graphmill detect can-gat-1
      graphmill detect can-gat-1 --input DoS-1.csv.gz --json > verdicts.jsonl
    """
    from graphmill.cli.find_run import find_run

    refuse_other(weights, "--weights", ("best", "last"))
    folder = find_run(run, logs_root)
    agree_to_code(folder, trust)
    command = [
        *python_m("graphmill.train.detect", str(folder.path)),
        *("--input", source, "--layout", layout, "--weights", weights),
        *(["--threshold", repr(threshold)] if threshold is not None else []),
        *(["--json"] if json else []),
    ]
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until Python has started there, and can end quietly
    os.execv(sys.executable, command)  # the stream, Ctrl-C and the exit status are its own; no shell
