"""One run from plan to outcome: make or reopen its folder, note the attempt, start the ranks."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from graphmill.base import exits
from graphmill.cluster.launch.local import WORKER, run_ranks
from graphmill.record.run_folder import RunFolder, refuse_other_plan
from graphmill.spec.plan import Plan

Say = Callable[[str], None]


def start_run(plan: Plan, *, logs_root: Path, command: Sequence[str] = WORKER) -> int:
    """Begin a run in a new folder and wait for its end. Returns its exit status."""
    folder = RunFolder.create(plan, logs_root)
    with folder.lock():
        return _attempt(folder, plan, resumed=False, command=command)


def resume_run(folder: RunFolder, *, say: Say, asked: Plan | None = None, command: Sequence[str] = WORKER) -> int:
    """Continue a run as it was planned, and wait for its end. Returns its exit status.

    `asked` is what the person would plan now: where it differs, the request is refused.
    """
    plan = folder.read_plan()
    if asked is not None:
        refuse_other_plan(folder, plan, asked)
    with folder.lock():
        outcome = folder.read_outcome()
        if outcome is not None and outcome.status == "done":
            say(f"{folder.path} is done already: {outcome.epochs} epochs")
            return exits.DONE
        return _attempt(folder, plan, resumed=True, command=command)


def _attempt(folder: RunFolder, plan: Plan, *, resumed: bool, command: Sequence[str]) -> int:
    folder.begin_attempt(resumed=resumed, command=sys.argv)
    folder.note_provenance(sys.argv)
    return run_ranks(folder, plan, resume=resumed, command=command)
