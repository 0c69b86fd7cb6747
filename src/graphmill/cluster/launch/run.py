"""One run from plan to outcome: make or reopen its folder, note the attempt, start the ranks."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from graphmill.base import exits
from graphmill.cluster.launch.check_model import refuse_unfit_model
from graphmill.cluster.launch.local import WORKER, Watch, environment_of_ranks, imports_of, run_ranks
from graphmill.record.attempts import attempt
from graphmill.record.run_folder import RunFolder, refuse_other_plan
from graphmill.runtime.fork_server import import_ahead
from graphmill.runtime.machine import machine_info
from graphmill.runtime.rank import refuse_several_tasks
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.spec.world import World, world_of

_log = logging.getLogger(__name__)


def start_run(
    plan: Plan,
    *,
    logs_root: Path,
    program: Sequence[str] = WORKER,
    is_tried: bool = False,
    watch: Watch | None = None,
) -> int:
    """Begin a run in a new folder and wait for its end; `watch` may end it. Returns its exit status.

    A user-defined model is tried first, unless it was already: where it does not fit, `UserError`, and nothing is made.
    """
    refuse_several_tasks(os.environ)
    if not is_tried:
        refuse_unfit_model(plan)
    import_ahead(environment_of_ranks(os.environ, plan), imports_of(program, plan))  # while the folder is made
    return _attempt(RunFolder.create(plan, logs_root), plan, program=program, watch=watch)


def resume_run(
    folder: RunFolder,
    *,
    requested: Plan | None = None,
    world: World | None = None,
    program: Sequence[str] = WORKER,
    watch: Watch | None = None,
) -> int:
    """Continue a run as it was planned, and wait for its end; `watch` may end it. Returns its exit status.

    `requested` is what the user would plan now: if it differs, the request is refused. `world`: see `world_here`.
    """
    refuse_several_tasks(os.environ)
    plan = folder.read_plan()
    if requested is not None:
        refuse_other_plan(folder, plan, requested)
    return _attempt(folder, plan, world=world or world_here(folder), program=program, watch=watch)


def world_here(folder: RunFolder, ranks: int | None = None) -> World:
    """The processes that continue a run on this machine, with `ranks` ranks; None: as many as it had last.

    Raises a `UserError` where this machine, or the plan, does not allow for that number.
    """
    if ranks is None:
        return world_of(folder.read_plan(), ranks=folder.world().ranks, hosts=1)
    facts = machine_info()
    machine = MachineInfo(num_cores=facts.num_cores, num_gpus=facts.num_gpus, memory_mib=facts.memory_bytes / (1 << 20))
    return world_of(folder.read_plan(), ranks=ranks, hosts=1, machine=machine)


def _attempt(
    folder: RunFolder,
    plan: Plan,
    *,
    program: Sequence[str],
    world: World | None = None,
    watch: Watch | None = None,
) -> int:
    with attempt(folder, command=sys.argv, world=world) as begun:
        if begun is None:
            _log.info(f"{folder.path} is done already: {plan.calendar.num_epochs} epochs; --extend gives it more")
            return exits.DONE
        return run_ranks(folder, plan, resume=begun.resumed, program=program, watch=watch)
