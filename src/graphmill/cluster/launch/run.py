"""One run from plan to outcome: make or reopen its folder, note the attempt, start the ranks."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from graphmill.base import exits
from graphmill.cluster.launch.check_model import refuse_unfit_model
from graphmill.cluster.launch.local import WORKER, run_ranks
from graphmill.record.attempts import attempt
from graphmill.record.run_folder import RunFolder, refuse_other_plan
from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)


def start_run(plan: Plan, *, logs_root: Path, command: Sequence[str] = WORKER, is_tried: bool = False) -> int:
    """Begin a run in a new folder and wait for its end. Returns its exit status.

    A user-defined model is tried first, unless it was already: where it does not fit, `UserError`, and nothing is made.
    """
    if not is_tried:
        refuse_unfit_model(plan)
    return _attempt(RunFolder.create(plan, logs_root), plan, command=command)


def resume_run(folder: RunFolder, *, asked: Plan | None = None, command: Sequence[str] = WORKER) -> int:
    """Continue a run as it was planned, and wait for its end. Returns its exit status.

    `asked` is what the user would plan now: if it differs, the request is refused.
    """
    plan = folder.read_plan()
    if asked is not None:
        refuse_other_plan(folder, plan, asked)
    return _attempt(folder, plan, command=command)


def _attempt(folder: RunFolder, plan: Plan, *, command: Sequence[str]) -> int:
    with attempt(folder, command=sys.argv) as begun:
        if begun is None:
            _log.info(f"{folder.path} is done already: {plan.calendar.num_epochs} epochs; --extend gives it more")
            return exits.DONE
        return run_ranks(folder, plan, resume=begun.resumed, command=command)
