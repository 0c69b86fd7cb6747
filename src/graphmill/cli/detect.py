"""`detect`: judge a stream by the weights of a run."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from graphmill.api.using import refuse_other
from graphmill.base.errors import UserError
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
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="CAPTURE",
            show_default=False,
            help="Benign traffic of this bus, by which the threshold is set; with --false-alarms-per-hour.",
        ),
    ] = None,
    false_alarms_per_hour: Annotated[
        float | None,
        typer.Option(metavar="N", show_default=False, help="How many false alarms are wanted; with --calibrate."),
    ] = None,
    weights: WeightsOption = "best",
    trust: Trust = None,
    logs_root: LogsRoot = Path("logs"),
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Watch a CAN bus by the model of a run.

    One verdict for each window, as soon as its frames have arrived: when it was, its score, and, of an alarm, which ids
    and pairs of ids differ most from benign traffic, and which pairs are missing. What is wrong with lines of the
    capture, and sums at the end, go to standard error.

    \b
    Example:
      candump -L can0 | graphmill detect can-gat-1
      graphmill detect can-gat-1 --input DoS-1.csv.gz --json > verdicts.jsonl
      graphmill detect can-gat-1 --calibrate calm.log --false-alarms-per-hour 6 < bus.log
    """
    from graphmill.cli.find_run import find_run

    refuse_other(weights, "--weights", ("best", "last"))
    _refuse_clashes(threshold, calibrate, false_alarms_per_hour)
    folder = find_run(run, logs_root)
    agree_to_code(folder, trust)
    command = [
        *python_m("graphmill.train.detect", str(folder.path)),
        *("--input", source, "--layout", layout, "--weights", weights),
        *(["--threshold", repr(threshold)] if threshold is not None else []),
        *(["--calibrate", calibrate] if calibrate is not None else []),
        *(["--false-alarms-per-hour", repr(false_alarms_per_hour)] if false_alarms_per_hour is not None else []),
        *(["--json"] if json else []),
    ]
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until Python has started there, and can end quietly
    os.execv(sys.executable, command)  # the stream, Ctrl-C and the exit status are its own; no shell


def _refuse_clashes(threshold: float | None, calibrate: str | None, per_hour: float | None) -> None:
    if (calibrate is None) != (per_hour is None):
        given, lacks = ("--calibrate", "--false-alarms-per-hour N")
        if calibrate is None:
            given, lacks = ("--false-alarms-per-hour", "--calibrate CAPTURE")
        raise UserError(f"{given} is given alone", fix=f"give {lacks} too")
    if calibrate is not None and threshold is not None:
        raise UserError("--threshold and --calibrate both set the threshold", fix="give one of them")
    if per_hour is not None and not per_hour > 0:
        raise UserError(f"--false-alarms-per-hour {per_hour:g} is no rate", fix="give a number above 0")
