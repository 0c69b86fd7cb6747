"""The entry for ranks that torchrun, or a user's own srun, has started, with the short flags of `graphmill train`.

    torchrun --standalone --nproc_per_node=4 -m graphmill.train [EXPERIMENT] --max_steps 4000 --batch_size 1024
        --num_neighbors 25 10 --sync_every 1 --sync_scheme deferred_allreduce [-O key=value …]
        [--run-id ID] [--logs-root DIR] [--dataset_root DIR] [--resume]
    srun --nodes=2 --ntasks-per-node=2 python -m graphmill.train [EXPERIMENT] …

Rank 0 makes the plan and the run folder, or finds the run to resume, and sends its path to the others. Exit status as
in `graphmill.train.worker`; torchrun turns every one but 0 into 1.
"""

from graphmill.base.python import leave_out_working_folder

if __name__ == "__main__":  # before anything else is imported: torchrun, or who types it, gives Python no -P
    leave_out_working_folder()

import gc
import os

from graphmill.base.json_text import parse_json
from graphmill.base.messages import hush_torch
from graphmill.runtime.stop import end_when_interrupted

if __name__ == "__main__":  # before torch is imported
    end_when_interrupted()
    hush_torch(os.environ)
    gc.disable()  # until `work`: what is imported is no garbage

import json
import logging
import math
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.messages import show_messages
from graphmill.record.attempts import attempt
from graphmill.record.find_run import run_to_resume
from graphmill.record.run_folder import RunFolder, default_run_id, refuse_other_plan, with_own_folder
from graphmill.runtime.job_environment import JobEnvironment
from graphmill.runtime.process import allow_open_files, leave
from graphmill.runtime.rank import Rank, current_rank
from graphmill.runtime.roots import dataset_root
from graphmill.runtime.trust import TRUST_VARIABLE
from graphmill.spec.experiment import MEET_WITHIN_S, Experiment
from graphmill.spec.flags import TrainRequest, parse_train_request
from graphmill.spec.load import load_experiment
from graphmill.spec.plan import Plan
from graphmill.spec.roles import refuse_other_ranks
from graphmill.spec.world import world_of
from graphmill.tasks.planning import plan_experiment, prepare_embedded
from graphmill.train.store import PortBusyError, open_words
from graphmill.train.words import PeerTimeout, Words
from graphmill.train.worker import work

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Instruction:
    """Rank 0's instruction to all ranks."""

    kind: Literal["begin", "resume", "leave"]
    run_folder: str  # to begin or resume; "" if there is nothing to do
    exit_code: int  # to leave with
    trusted: str = ""  # as the environment says it: the code that rank 0 may run


def main(arguments: Sequence[str] | None = None) -> int:
    """Agree with the other ranks on the run, then train this rank's share of it."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    show_messages()
    try:
        rank = current_rank(os.environ)
        allow_open_files()
        met = _met(rank)
        with ExitStack() as until_the_end:
            command = _command(words, rank, until_the_end) if rank.rank == 0 else None
            command = _agreed(command, rank, met)
            if command.kind == "leave":
                return command.exit_code
            os.environ[TRUST_VARIABLE] = command.trusted
            return work(RunFolder.open(Path(command.run_folder)), rank, resume=command.kind == "resume", words=met)
    except UserError as error:
        _log.error(f"{error}")
        return exits.BAD_REQUEST


def _command(words: Sequence[str], rank: Rank, until_the_end: ExitStack) -> Instruction:
    """Rank 0 alone: prepare the run. An error is reported here, once, and ends all ranks."""
    try:
        request = parse_train_request(words)
        folder = _resumed(request) if request.resume else _begun(request, rank)
        plan = folder.read_plan()
        world = world_of(plan, ranks=rank.world_size - plan.world.samplers, hosts=rank.num_hosts)
        begun = until_the_end.enter_context(
            attempt(folder, command=sys.argv, job_id=JobEnvironment(os.environ).job_id, world=world)
        )
        if begun is None:
            _log.info(f"{folder.path} is done already")
            return Instruction("leave", "", exits.DONE)
    except UserError as error:
        _log.error(f"{error}")
        return Instruction("leave", "", exits.BAD_REQUEST)
    except Exception:  # noqa: BLE001  # a bug in graphmill: the other ranks must not wait forever
        traceback.print_exc()
        return Instruction("leave", "", exits.ANSWER_IS_NO)
    return Instruction(
        "resume" if begun.resumed else "begin",
        str(folder.path.resolve()),
        exits.DONE,
        os.environ.get(TRUST_VARIABLE, ""),
    )


def _met(rank: Rank) -> Words | None:
    """Meet the other ranks; None: there are no others."""
    if rank.world_size == 1:
        return None
    patience = PeerTimeout(MEET_WITHIN_S)
    try:
        return open_words(rank, os.environ, f"process {os.getpid()} on {socket.gethostname()}", patience)
    except PortBusyError as error:
        raise UserError(f"{error}", fix="give another port: --master-port of torchrun, MASTER_PORT for srun") from None


def _agreed(command: Instruction | None, rank: Rank, words: Words | None) -> Instruction:
    """Rank 0's command, on every rank. Plain text, signed: no pickle. While rank 0 prepares data, the others wait."""
    if words is None:
        assert command is not None, "a rank alone is rank 0"
        return command
    shared, without_end = words.about("train"), PeerTimeout(math.inf)
    if command is not None:
        shared.put("command", json.dumps(asdict(command)))
        if command.kind == "leave":  # rank 0 may be the store's host
            shared.awaited([f"heard by {other}" for other in range(1, rank.world_size)], PeerTimeout(MEET_WITHIN_S))
        return command
    heard = Instruction(**parse_json(shared.awaited(["command"], without_end)["command"]))
    shared.put(f"heard by {rank.rank}", "")
    return heard


def _begun(request: TrainRequest, rank: Rank) -> RunFolder:
    experiment = load_experiment(request.experiment, request.overrides)
    asked, roles = experiment.train.ranks, experiment.roles
    if roles is not None and roles.num_processes != rank.world_size:
        raise UserError(
            f"roles has {roles.trainers} trainers and {roles.samplers} samplers, but {_starter()} started"
            f" {rank.world_size} processes",
            fix=f"start {roles.num_processes}: --nproc-per-node (srun: --ntasks-per-node) is of both roles",
        )
    if roles is None and asked not in ("auto", rank.world_size):
        raise UserError(
            f"train.ranks is {asked}, but {_starter()} started {rank.world_size}",
            fix=f"-O train.ranks={rank.world_size}, or start {asked} processes",
        )
    run_id = request.run_id or default_run_id(experiment.name, request.logs_root)
    ranks = rank.world_size if roles is None else roles.trainers
    plan = _plan(experiment, request, ranks=ranks, hosts=rank.num_hosts, run_id=run_id)
    return RunFolder.create(plan if request.run_id else with_own_folder(plan, request.logs_root), request.logs_root)


def _starter() -> str:
    return "srun" if JobEnvironment(os.environ).num_tasks > 1 and not os.environ.get("RANK") else "torchrun"


def _resumed(request: TrainRequest) -> RunFolder:
    """The run that is named in place of the experiment, or by --run-id together with the experiment.

    How many ranks were started is not part of what is asked for: others than planned may continue.
    """
    changes = bool(request.overrides)
    folder, is_named = run_to_resume(
        request.experiment, request.run_id, request.logs_root, changes=changes, verb="train"
    )
    if is_named:
        return folder
    if request.experiment is not None or request.overrides:
        planned = folder.read_plan()
        experiment = load_experiment(request.experiment, request.overrides)
        asked = experiment.train.ranks
        ranks = planned.ranks if asked == "auto" else asked
        now = _plan(experiment, request, ranks=ranks, hosts=planned.hosts, run_id=planned.run_id)
        refuse_other_plan(folder, planned, now)
    return folder


def _plan(experiment: Experiment, request: TrainRequest, *, ranks: int, hosts: int, run_id: str) -> Plan:
    if experiment.roles is not None:
        refuse_other_ranks(experiment.roles, experiment.train.ranks)
    train = experiment.train.model_copy(update={"ranks": ranks})
    root = dataset_root(request.dataset_root, os.environ)
    prepare_embedded(experiment, root)
    return plan_experiment(
        experiment.model_copy(update={"train": train}),
        dataset_root=root,
        run_id=run_id,
        hosts=hosts,
    )


if __name__ == "__main__":
    leave(main())
