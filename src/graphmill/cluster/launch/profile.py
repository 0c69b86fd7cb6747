"""Profile an experiment: a run of a few steps on this machine, of which only the profile is kept."""

import shutil
import tempfile
from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.base.files import replacing_folder
from graphmill.cluster.launch.run import start_run
from graphmill.cluster.launch.trial import stdout_is_stderr
from graphmill.record.phases import PHASES_FILE
from graphmill.record.run_folder import RunFolder
from graphmill.spec.calendar import planned_end
from graphmill.spec.early_stopping import EarlyStoppingSpec
from graphmill.spec.experiment import CheckpointSpec
from graphmill.spec.plan import Plan
from graphmill.spec.profiler import ProfilePlan

FOLDER = "profiles"
"""In the logs root: a folder for each. None is a run."""


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
