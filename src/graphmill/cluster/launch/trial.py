"""Short runs on this machine of which only what they measured is kept: time and memory of a trial, or a profile."""

import math
import os
import shutil
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
from graphmill.base.files import replacing_folder
from graphmill.cluster.launch.local import StopNoted
from graphmill.cluster.launch.run import start_run
from graphmill.estimate.trial import FEWEST_STEPS, Trial, trial_of, whole_epochs
from graphmill.record.phases import PHASES_FILE
from graphmill.record.run_folder import RunFolder
from graphmill.spec.calendar import planned_end
from graphmill.spec.early_stopping import EarlyStoppingSpec
from graphmill.spec.experiment import CheckpointSpec
from graphmill.spec.plan import Plan
from graphmill.spec.profiler import ProfilePlan

_TRIAL_S: Final = 2.0  # of steps at least, if the plan has enough: twenty steps of a millisecond measure little
PROFILES = "profiles"
"""In the logs root: a folder for each. None is a run."""


def try_out(plan: Plan, steps: int) -> Trial:
    """Make `steps` steps of `plan` on this machine, its evaluations and baselines, in a folder that is thrown away.

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
        code = start_run(short, logs_root=Path(root), watch=(stop := StopNoted()))
        if stop.is_requested:  # also after the last step: what measures one trial goes on to the next
            raise KeyboardInterrupt
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
    longer = try_out(plan.model_copy(update={"baselines": False}), whole_epochs(plan, enough))  # they are measured
    once_a_run = ("start_s", "process_s", "finish_s", "test_s")
    means = {name: (getattr(trial, name) + getattr(longer, name)) / 2 for name in once_a_run}
    return replace(longer, **means, baselines_s=trial.baselines_s)


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


def short_plan(plan: Plan, profile: ProfilePlan) -> Plan:
    """The steps of `plan` that the profile takes, whatever its length; without evaluations."""
    # A run ends with a sync: the one after the profile is complete is not the plan's last, which would be evaluated.
    steps = profile.last_step + plan.sync.every + 1
    epoch_lengths, last_step = planned_end(plan.batches, epochs=None, max_steps=steps * plan.ranks)
    changes = {
        "epoch_lengths": epoch_lengths,
        "last_step": last_step,
        "profile": profile,
        "evaluate_every_epochs": 0,
        "checkpoint": CheckpointSpec(every_epochs=0),
        "early_stopping": EarlyStoppingSpec(),
        "init_from": None,  # weights do not decide how long a step takes
    }
    return plan.model_copy(update=changes)


def profile_here(plan: Plan, to: Path) -> int:
    """Run a plan whose profile ends it, and keep the profile in the folder `to`. Returns the run's exit status.

    What the ranks print goes to standard error. There is no `to` if the run ended before the profile was complete.
    """
    if plan.hosts > 1:
        raise UserError(
            f"`profile` runs on this machine, and the plan is for {plan.hosts} hosts",
            fix="profile the run itself: -O train.profile=true with `submit` or `launch`",
        )
    with tempfile.TemporaryDirectory(prefix="graphmill-profile-") as root, stdout_is_stderr():
        code = start_run(plan, logs_root=Path(root))
        made = RunFolder(Path(root) / plan.run_id).profile_dir
        if (made / PHASES_FILE).is_file():
            with replacing_folder(to) as temporary:
                for path in sorted(made.iterdir()):
                    shutil.copyfile(path, temporary / path.name)
    return code
