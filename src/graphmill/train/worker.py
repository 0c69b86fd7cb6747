"""What a rank runs: `python -m graphmill.train.worker RUN_FOLDER [--resume]`, started by the launcher.

Exit status: 0 done · 75 stopped after a checkpoint, resume me · 2 the request was wrong · 1 failed · 130 interrupted.
"""

import argparse
import gc
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from graphmill import _native
from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.record.events import EventWriter
from graphmill.record.manifest import hash_text
from graphmill.record.run_folder import Outcome, RunFolder, Status, plan_text
from graphmill.record.seal import seal_of
from graphmill.runtime.rank import Rank, current_rank
from graphmill.runtime.stop import StopRequest
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.node_classification.metrics import Measures
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.train.checkpoint import CheckpointStore
from graphmill.train.journal import Journal
from graphmill.train.learner import Learner
from graphmill.train.ledger import Ledger
from graphmill.train.loop import Training
from graphmill.train.progress import Progress

EXIT_OF: Final[dict[Status, int]] = {
    "done": exits.DONE,
    "out_of_time": exits.OUT_OF_TIME,
    "failed": 1,
    "interrupted": 128 + signal.SIGINT,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Train one rank's share of the run in RUN_FOLDER."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.worker", description=__doc__)
    parser.add_argument("run_folder", type=Path)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args(arguments)
    try:
        return work(RunFolder.open(options.run_folder), current_rank(os.environ), resume=options.resume)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        return exits.BAD_REQUEST


def work(folder: RunFolder, rank: Rank, *, resume: bool, store: Store | None = None) -> int:
    """Train and write the outcome; the process group lives as long as this call. Returns the exit status.

    The ranks meet in `store`, or where it is None by the addresses in the environment.
    """
    plan = folder.read_plan()
    if rank.world_size != plan.ranks:
        raise UserError(
            f"plan.json asks for {plan.ranks} ranks, but {rank.world_size} were started",
            fix=f"start {plan.ranks} ranks",
        )
    stop = StopRequest()
    stop.install()
    torch.set_num_threads(plan.threads)
    _native.keep_freed_memory()
    if plan.ranks > 1:
        dist.init_process_group(plan.backend, store=store, rank=rank.rank, world_size=rank.world_size)
    try:
        with EventWriter(folder.events_path(rank.rank), rank=rank.rank) as events:
            return _train_or_say_why(folder, plan, rank, stop, events, resume=resume)
    finally:
        gc.collect()  # nothing may hold the process group when it is destroyed
        if dist.is_initialized():
            dist.destroy_process_group()


def build(folder: RunFolder, plan: Plan, rank: Rank, stop: StopRequest, events: EventWriter) -> Training:
    """Everything one rank trains with."""
    device = torch.device("cuda", rank.local_rank) if plan.device == "cuda" else torch.device("cpu")
    group = Group(rank.rank, rank.world_size, device)
    task = NodeClassification(plan, group)
    learner = Learner.build(plan, task.model, group)
    ledger = Ledger(
        plan=plan,
        group=group,
        times=task.times,
        num_parameters=learner.replica.num_parameters,
        interface=_interface(plan, rank),
        attempt=max(1, len(folder.attempts())),
        num_hosts=rank.num_hosts,
    )
    return Training(
        plan=plan,
        group=group,
        task=task,
        learner=learner,
        checkpoints=CheckpointStore(folder.checkpoints_dir, hash_text(plan_text(plan)), group),
        ledger=ledger,
        journal=Journal(folder, rank.rank, events, Progress(plan, shown=rank.rank == 0)),
        stop=stop,
    )


def _train_or_say_why(
    folder: RunFolder, plan: Plan, rank: Rank, stop: StopRequest, events: EventWriter, *, resume: bool
) -> int:
    began = time.perf_counter()
    training: Training | None = None

    def fail(status: Status, message: str) -> int:
        events.write("error", message=message)
        if rank.rank == 0:
            folder.write_outcome(_outcome(training, status, message, began))
        return EXIT_OF[status]

    try:
        training = build(folder, plan, rank, stop, events)
        return _train(training, resume=resume, began=began)
    except KeyboardInterrupt:
        return fail("interrupted", "a second interrupt ended the run at once")
    except UserError as error:
        fail("failed", str(error))
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, the run folder is to say it
        traceback.print_exc()
        return fail("failed", f"{type(error).__name__}: {error}")


def _train(training: Training, *, resume: bool, began: float) -> int:
    journal, progress = training.journal, training.journal.progress
    try:
        resumed = resume and training.restore()
        parameters = training.learner.replica.num_parameters
        journal.events.write(
            "start", resumed=resumed, steps_done=training.steps_done, parameters=parameters, **_as_it_is(training)
        )
        progress.resume(training.steps_done)
        progress.say(_opening(training, resumed=resumed))
        status = training.run()
        test = training.test_best() if status == "done" else None
    finally:
        progress.close()
    message = _why_stopped(training) if status == "out_of_time" else ""
    if training.group.rank == 0:
        journal.folder.write_outcome(_outcome(training, status, message, began, test))
    seal = {"seal": seal_of(journal.folder, training.group.rank)} if status == "done" else {}
    journal.events.write("finish" if seal else "stop", steps_done=training.steps_done, status=status, **seal)
    progress.say(_closing(training, test))
    return EXIT_OF[status]


def _as_it_is(training: Training) -> dict[str, object]:
    """Where this rank runs and with whom it talks; not what was planned."""
    return {
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "world_size": dist.get_world_size() if dist.is_initialized() else 1,
        "backend": dist.get_backend() if dist.is_initialized() else None,
        "plan_hash": training.checkpoints.plan_hash,
    }


def _outcome(
    training: Training | None, status: Status, message: str, began: float, test: Measures | None = None
) -> Outcome:
    best = training.best if training else None
    return Outcome(
        status=status,
        exit_code=EXIT_OF[status],
        epochs=training.epoch if training else 0,
        steps_per_rank=training.steps_done if training else 0,
        test=asdict(test) if test else None,
        best=best.model_dump() if best else None,
        wall_s=time.perf_counter() - began,
        message=message,
    )


def _why_stopped(training: Training) -> str:
    signal_name = training.stop.signal.name if training.stop.signal else "a signal to another rank"
    return f"stopped on {signal_name}"


def _opening(training: Training, *, resumed: bool) -> str:
    plan = training.plan
    synthetic = " (synthetic)" if plan.dataset.synthetic else ""
    ranks, threads = _counted(plan.ranks, "rank"), _counted(plan.threads, "thread")
    return ", ".join(
        [
            f"{plan.run_id}: {plan.dataset.name}{synthetic}",
            f"{training.learner.replica.num_parameters:,} parameters",
            f"{ranks} on {plan.device}",
            f"{threads} each",
            f"{plan.sync.scheme}, every {plan.sync.every}" if plan.ranks > 1 else "no synchronisation",
            *([f"resumed after step {training.steps_done}"] if resumed else []),
        ]
    )


def _closing(training: Training, test: Measures | None) -> str:
    if test is None or training.best is None:
        return f"stopped after step {training.steps_done} of {training.plan.steps_per_rank}; a checkpoint is there"
    scores = f"test micro-F1 {test.micro_f1:.4f}  macro-F1 {test.macro_f1:.4f}"
    return f"{scores}  (best checkpoint: epoch {training.best.epoch})"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _interface(plan: Plan, rank: Rank) -> str | None:
    """The network interface whose traffic is counted."""
    if plan.ranks == 1 or plan.backend != "gloo":
        return None
    return os.environ.get("GLOO_SOCKET_IFNAME") or ("lo" if rank.num_hosts == 1 else None)


if __name__ == "__main__":
    sys.exit(main())
