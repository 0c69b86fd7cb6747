"""How long will it take, and how much memory? A trial runs the first steps of a plan on this machine."""

import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.cluster.launch.run import start_run
from graphmill.estimate.trial import FEWEST_STEPS, Trial, trial_of, whole_epochs
from graphmill.record.run_folder import RunFolder
from graphmill.spec.early_stopping import EarlyStoppingSpec
from graphmill.spec.plan import Plan

_TRIAL_S: Final = 2.0  # of steps at least, if the plan has enough: twenty steps of a millisecond measure little


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
                fix="correct it, or measure nothing: without --trial, or with --trial 0 of `pipeline submit`",
            )
        return trial_of(RunFolder(Path(root) / "trial"), plan, steps, ended=time.time())


def measure(plan: Plan, steps: int) -> Trial:
    """A trial of `steps` steps with random weights; of more, if they take too little time."""
    plan = plan.model_copy(update={"init_from": None})
    steps = whole_epochs(plan, steps)
    trial = try_out(plan, steps)
    enough = math.ceil(_TRIAL_S / max(trial.step_s, 1e-6))
    if steps * trial.step_s >= _TRIAL_S / 2 or plan.last_step <= steps:
        return trial
    longer = try_out(plan, whole_epochs(plan, enough))
    once_a_run = ("start_s", "process_s", "finish_s", "test_s")
    return replace(longer, **{name: (getattr(trial, name) + getattr(longer, name)) / 2 for name in once_a_run})


@contextmanager
def stdout_is_stderr() -> Iterator[None]:
    """Send standard output to standard error, for child processes too: a program reads only the result from it."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
