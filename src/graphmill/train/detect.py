"""Judge a stream by a run's weights: `python -m graphmill.train.detect RUN_FOLDER --input CAPTURE|-`.

One line for each window, written as soon as its end has arrived.
"""

import signal

from graphmill.record.weights import warn_of_damage
from graphmill.runtime.stop import end_when_interrupted

if __name__ == "__main__":  # before torch is imported
    end_when_interrupted()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # which `graphmill detect` blocks

import argparse
import gzip
import io
import json
import logging
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import torch

from graphmill.base import exits
from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.messages import show_messages
from graphmill.nn.weights import Weights
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import Which
from graphmill.runtime.trust import refuse_foreign_code
from graphmill.tasks.build import task_class
from graphmill.tasks.false_alarms import covered_s, threshold_at_rate
from graphmill.tasks.task import Detector, Verdict

_log = logging.getLogger(__name__)

_HEADER = f"{'window':>8} {'from (s)':>18} {'to (s)':>18} {'score':>12}  verdict"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the verdicts to standard output, remarks to standard error."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.detect", description=__doc__)
    parser.add_argument("run_folder", type=Path)
    parser.add_argument("--input", required=True)
    parser.add_argument("--layout", default="auto")
    parser.add_argument("--threshold", type=float)
    parser.add_argument("--calibrate")
    parser.add_argument("--false-alarms-per-hour", type=float)
    parser.add_argument("--weights", choices=("best", "last"), default="best")
    parser.add_argument("--trust", action="append", default=[])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    show_messages()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # from here on there are sums to tell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        folder = RunFolder.open(options.run_folder)
        detector = detector_of(folder, options.weights, trusted=options.trust)
        if options.calibrate is None:
            threshold = _threshold(detector, options.threshold)
        else:
            threshold = _calibrated(detector, options.calibrate, options.layout, options.false_alarms_per_hour)
            detector = detector_of(folder, options.weights, trusted=options.trust)  # one is for one stream
        return _watch(detector, options.input, options.layout, threshold, json_lines=options.json)
    except UserError as error:
        _log.error(f"{error}")
        return exits.BAD_REQUEST
    except UnreadableError as error:
        _log.error(f"{error}\n  → {error.fix}")
        return exits.IO_ERROR
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:  # whoever read the verdicts has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes
        return exits.DONE


def detector_of(folder: RunFolder, which: Which, *, trusted: Sequence[str] = ()) -> Detector:
    """The detector of a run, in this process and on one core. `UserError` if its task has none."""
    plan = folder.read_plan(trusted=trusted)
    refuse_foreign_code(plan.model_dump(mode="json"))
    make = getattr(task_class(plan), "detector", None)
    if make is None:
        raise UserError(
            f"{folder.path} is a run of the task {plan.task.kind}, which judges no stream",
            fix="name a run of a task that does, or write down the predictions of this one: graphmill predict",
        )
    torch.set_num_threads(1)  # windows are small: a second thread waits longer than it works
    detector: Detector = make(plan, Weights.of_run(folder, which, warn_of_damage))
    return detector


def _threshold(detector: Detector, requested: float | None) -> float:
    found = detector.threshold if requested is None else requested
    if found is None:
        raise UserError("no threshold was chosen with these weights", fix="give --threshold SCORE")
    if math.isnan(found):
        raise UserError("--threshold nan is no score", fix="give --threshold SCORE")
    return found


def _calibrated(detector: Detector, source: str, layout: str, per_hour: float) -> float:
    """The threshold with so many alarms in an hour of a benign capture."""
    with _opened(source, "--calibrate") as arriving:
        verdicts = list(detector.verdicts(arriving, source, layout=layout, threshold=math.inf))
    if attacked := sum(bool(verdict.is_attack) for verdict in verdicts):
        raise UserError(
            f"{attacked:,} of {len(verdicts):,} windows of {source} are attacked, by its labels",
            fix="give --calibrate a capture of benign traffic",
        )
    begins, ends, scores = np.array([(each.begin_s, each.end_s, each.score) for each in verdicts]).reshape(-1, 3).T
    seconds = covered_s(begins, ends)
    threshold = threshold_at_rate(scores, seconds, per_hour)
    _log.info(
        f"threshold {threshold:.6g}: {int((scores >= threshold).sum()):,} alarms of {len(scores):,} windows in"
        f" {seconds:,.0f} s of {source}, for {per_hour:g} an hour"
    )
    return threshold


def _watch(detector: Detector, source: str, layout: str, threshold: float, *, json_lines: bool) -> int:
    with _opened(source) as arriving:
        if not json_lines:
            sys.stdout.write(f"{_HEADER}\n")
        try:
            for verdict in detector.verdicts(arriving, _named(source), layout=layout, threshold=threshold):
                sys.stdout.write(f"{_as_json(verdict) if json_lines else _as_text(verdict)}\n")
                sys.stdout.flush()
        finally:
            for remark in detector.notes():
                _log.info(remark)
    return exits.DONE


@contextmanager
def _opened(source: str, option: str = "--input") -> Iterator[IO[bytes]]:
    """A file that may be compressed, or standard input; once, for a pipe has no second beginning."""
    if source == "-":
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context((gzip.open if source.endswith(".gz") else open)(source, "rb"))
        except OSError as error:
            raise UserError(f"{source} cannot be read: {error.strerror}", fix=f"{option} CAPTURE, or -") from error
        yield cast("IO[bytes]", file)


def _named(source: str) -> str:
    return "standard input" if source == "-" else source


def _as_json(verdict: Verdict) -> str:
    facts: dict[str, Any] = {
        "window": verdict.number,
        "begin_s": verdict.begin_s,
        "end_s": verdict.end_s,
        "score": verdict.score,
        "is_alarm": verdict.is_alarm,
        "is_attack": verdict.is_attack,
    }
    for sort, causes in verdict.attributions.items():
        facts[sort] = [{"name": name, "share": share} for name, share in causes]
    return json.dumps(facts)


def _as_text(verdict: Verdict) -> str:
    line = io.StringIO()
    line.write(f"{verdict.number:8} {verdict.begin_s:18.6f} {verdict.end_s:18.6f} {verdict.score:12.6g}  ")
    line.write("ALARM" if verdict.is_alarm else "-")
    if verdict.is_alarm:
        for sort, causes in verdict.attributions.items():
            line.write(f"  {sort}: {', '.join(f'{name} {share:.0%}' for name, share in causes)}")
    return line.getvalue()


if __name__ == "__main__":
    sys.exit(main())
