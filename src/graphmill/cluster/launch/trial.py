"""How long will it take, and how much memory? A trial runs the first steps of a plan, and reports what they cost."""

import json
import logging
import math
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.messages import show_messages
from graphmill.cluster.launch.run import start_run
from graphmill.record.events import Checkpoint, Evaluation, Event, Start, Sync, events_in
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.early_stopping import EarlyStoppingSpec
from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)

FEWEST_STEPS: Final = 3  # the first one makes the plans of the kernels, so it is left out; two are left


@dataclass(frozen=True, slots=True)
class Trial:
    """What the first steps cost here, and the whole run by that."""

    steps: int  # of each rank
    step_s: float  # mean; of a rank, its synchronisations included
    step_spread_s: tuple[float, float]  # quartiles
    epoch_s: float  # of what an epoch takes besides its steps, evaluation and checkpoint; 0 if the trial had only one
    val_s: float  # of one evaluation of the validation split
    test_s: float
    start_s: float  # from the start of the attempt to its first step
    process_s: float  # of that, from the start of a rank's process until it began to work
    save_s: float  # of one checkpoint
    finish_s: float  # from the last event of rank 0 to the end of the attempt
    train_h: float  # of all steps
    evaluate_h: float  # of all evaluations
    peak_rss_mib: float  # of the largest process that ran, from its start to its end, evaluations included

    @property
    def total_h(self) -> float:
        """Hours of the whole run, without start-up and checkpoints."""
        return self.train_h + self.evaluate_h


def try_out(plan: Plan, steps: int) -> Trial:
    """Make `steps` steps of `plan` on this machine, and both evaluations, in a folder that is thrown away.

    What the ranks print goes to standard error. Raises `UserError` if the plan is for several hosts, or fails.
    """
    if plan.hosts > 1:
        raise UserError(
            f"a trial runs on this machine, and the plan is for {plan.hosts} hosts",
            fix="plan it for one host (--ranks R, without slurm.hosts), or submit a short run: -O train.max_steps=…",
        )
    steps = min(steps, plan.last_step)
    if steps < FEWEST_STEPS:
        raise UserError(f"{steps} steps say nothing", fix=f"--trial {FEWEST_STEPS} or more, and as many in the plan")
    short = plan.ending_at(steps).model_copy(update={"run_id": "trial", "early_stopping": EarlyStoppingSpec()})
    with tempfile.TemporaryDirectory(prefix="graphmill-trial-") as root, stdout_is_stderr():
        code = start_run(short, logs_root=Path(root))
        if code != exits.DONE:
            raise UserError(
                f"the trial ended with {code}; the error is above, and the trial's folder is removed",
                fix="correct it, or leave out --trial",
            )
        return _read(RunFolder(Path(root) / "trial"), plan, steps, ended=time.time())


def _read(folder: RunFolder, plan: Plan, steps: int, *, ended: float) -> Trial:
    """`ended`: Unix time, s."""
    events = events_in(folder.events_path(0))
    marks = [(event.steps_done, event.time) for event in events if isinstance(event, Sync)]
    per_step = _per_step(events)
    if len(per_step) < FEWEST_STEPS - 1:
        every = plan.sync.every
        raise UserError(
            f"{steps} steps are {len(marks)} synchronisations, which is too few to measure by",
            fix=f"--trial {FEWEST_STEPS * every} or more",
        )
    quartiles = statistics.quantiles(per_step, n=4, method="inclusive")
    rows = read_metrics(folder.metrics_path)
    ends = [event.time for event in events if isinstance(event, Checkpoint | Evaluation)]
    val_s = statistics.median(float(row["eval_s"]) for row in rows if row["eval_s"])
    test_s, step_s = ends[-1] - ends[-2], statistics.fmean(per_step)
    saves = [later.time - sooner.time for sooner, later in pairwise(events) if isinstance(later, Checkpoint)]
    steps_marked, first_mark = marks[0]
    begun = folder.attempts()[0].time
    return Trial(
        steps=steps,
        step_s=step_s,
        step_spread_s=(min(quartiles[0], step_s), max(quartiles[2], step_s)),
        epoch_s=_epoch_s(events, step_s=step_s),
        val_s=val_s,
        test_s=test_s,
        start_s=max(0.0, first_mark - begun - steps_marked * step_s),
        process_s=next((event.process_s or 0.0 for event in events if isinstance(event, Start)), 0.0),
        save_s=statistics.median(saves) if saves else 0.0,
        finish_s=max(0.0, ended - events[-1].time),
        train_h=plan.last_step * step_s / 3600,
        evaluate_h=(num_evaluations(plan) * val_s + test_s) / 3600,
        peak_rss_mib=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    )


def _per_step(events: Sequence[Event]) -> list[float]:
    """Seconds per step of each round that nothing else came between."""
    return [
        (later.time - sooner.time) / (later.steps_done - sooner.steps_done)
        for sooner, later in pairwise(events)
        if isinstance(sooner, Sync) and isinstance(later, Sync)
    ]


def _epoch_s(events: Sequence[Event], *, step_s: float) -> float:
    """What lies between two epochs, without the checkpoint, the evaluation and the round after them: the mean."""
    syncs = [(index, event) for index, event in enumerate(events) if isinstance(event, Sync)]
    found = []
    for (before, last), (after, first) in pairwise(syncs):
        between = events[before + 1 : after]
        if first.epoch == last.epoch or not between:
            continue
        work_s = (first.steps_done - last.steps_done) * step_s
        rest_s = first.time - between[-1].time - work_s  # from the last thing that is counted separately
        found.append(max(0.0, rest_s))
    return statistics.fmean(found) if found else 0.0


def num_checkpoints(plan: Plan) -> float:
    """How often the whole run saves, at most: if only better ones are saved, each is counted as better."""
    settings = plan.checkpoint
    per_epochs = settings.every_epochs
    by_epochs = plan.calendar.times_every(epochs=per_epochs) if per_epochs else num_evaluations(plan)
    return by_epochs + plan.calendar.times_every(steps=settings.every_steps)


def num_evaluations(plan: Plan) -> int:
    """How often the whole run evaluates the validation split."""
    every_epochs = plan.evaluate_every_epochs
    return math.ceil(plan.calendar.num_epochs / every_epochs) if every_epochs else 1


def main(words: Sequence[str]) -> int:
    """`python -m graphmill.cluster.launch.trial PLAN.json STEPS`: a trial in a process of its own, printed as JSON.

    The memory of a trial is that of the largest process that its process has waited for, so each has one to itself.
    """
    plan_path, steps = words
    show_messages()
    try:
        trial = try_out(Plan.model_validate_json(Path(plan_path).read_bytes()), int(steps))
    except UserError as error:
        _log.error(f"{error}")
        return exits.BAD_REQUEST
    sys.stdout.write(json.dumps(asdict(trial)) + "\n")
    return exits.DONE


@contextmanager
def stdout_is_stderr() -> Iterator[None]:
    """For the processes started inside, too: what a program reads from standard output is the result alone."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
