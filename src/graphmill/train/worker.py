"""What a rank runs: `python -m graphmill.train.worker RUN_FOLDER [--resume]`, started by the launcher or by torchrun's entry.

Exit status: 0 done · 75 stopped after a checkpoint, resume me · 2 the request was wrong · 1 failed.
"""

import argparse
import gc
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.record.events import EventWriter
from graphmill.record.run_folder import Outcome, RunFolder, Status, plan_text
from graphmill.runtime.rank import Rank, current_rank
from graphmill.runtime.stop import StopRequest
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.replica import Replica
from graphmill.sync.schemes import build_scheme
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.train.checkpoint import CheckpointStore, hash_text
from graphmill.train.ledger import Ledger
from graphmill.train.loop import Training
from graphmill.train.progress import Progress

EXIT_OF: dict[Status, int] = {"done": exits.DONE, "out_of_time": exits.OUT_OF_TIME, "failed": 1, "interrupted": 130}


def main(arguments: Sequence[str] | None = None) -> int:
    """Train one rank's share of the run in RUN_FOLDER."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.worker", description=__doc__)
    parser.add_argument("run_folder", type=Path)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args(arguments)
    try:
        folder = RunFolder.open(options.run_folder)
        return work(folder, folder.read_plan(), current_rank(os.environ), resume=options.resume)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        return exits.BAD_REQUEST


def work(folder: RunFolder, plan: Plan, rank: Rank, *, resume: bool) -> int:
    """Train and write the outcome; the process group lives as long as this call."""
    if rank.world_size != plan.ranks:
        raise UserError(
            f"plan.json asks for {plan.ranks} ranks, but {rank.world_size} were started",
            fix=f"start {plan.ranks} ranks",
        )
    stop = StopRequest()
    stop.install()
    torch.set_num_threads(plan.threads)
    device = torch.device("cuda", rank.local_rank) if plan.device == "cuda" else torch.device("cpu")
    if plan.ranks > 1 and not dist.is_initialized():
        dist.init_process_group(plan.backend)
    events = EventWriter(folder.events_path(rank.rank), rank=rank.rank)
    began = time.perf_counter()
    try:
        training = build(folder, plan, rank, device, stop, events)
        return _train(training, folder, resume=resume, began=began)
    except KeyboardInterrupt:
        _fail(folder, rank, events, "interrupted", "a second interrupt ended the run at once", began)
        return EXIT_OF["interrupted"]
    except UserError as error:
        _fail(folder, rank, events, "failed", str(error), began)
        raise
    except Exception as error:
        traceback.print_exc()
        _fail(folder, rank, events, "failed", f"{type(error).__name__}: {error}", began)
        return EXIT_OF["failed"]
    finally:
        events.close()
        gc.collect()  # nothing may hold the process group when it is destroyed
        if dist.is_initialized():
            dist.destroy_process_group()


def build(
    folder: RunFolder, plan: Plan, rank: Rank, device: torch.device, stop: StopRequest, events: EventWriter
) -> Training:
    """Everything one rank trains with."""
    group = Group(rank.rank, rank.world_size, device)
    task = NodeClassification(plan, group)
    replica = Replica(task.model)
    flat = nn.Parameter(replica.values)
    flat.grad = replica.grads
    optimizer = torch.optim.Adam([flat], lr=plan.lr, weight_decay=plan.weight_decay, fused=True)
    return Training(
        plan=plan,
        folder=folder,
        group=group,
        task=task,
        replica=replica,
        optimizer=optimizer,
        scheme=build_scheme(plan.sync, replica, optimizer, group),
        checkpoints=CheckpointStore(folder.checkpoints_dir, hash_text(plan_text(plan)), group),
        ledger=Ledger(
            plan=plan,
            group=group,
            times=task.times,
            num_parameters=replica.num_parameters,
            interface=_interface(plan, rank),
            attempt=max(1, len(folder.attempts())),
            num_hosts=rank.num_hosts,
        ),
        stop=stop,
        events=events,
        progress=Progress(plan, shown=rank.rank == 0),
    )


def _train(training: Training, folder: RunFolder, *, resume: bool, began: float) -> int:
    resumed = resume and training.restore()
    training.events.write(
        "start", resumed=resumed, steps_done=training.steps_done, parameters=training.replica.num_parameters
    )
    training.progress.say(_opening(training, resumed=resumed))
    try:
        status = training.run()
        test = training.test_best() if status == "done" else None
    finally:
        training.progress.close()
    message = f"stopped on {training.stop.signal.name}" if training.stop.signal else ""
    best = asdict(training.best) if training.best else None
    if training.group.rank == 0:
        folder.write_outcome(
            Outcome(
                status=status,
                exit_code=EXIT_OF[status],
                epochs=training.epoch,
                steps_per_rank=training.steps_done,
                test=asdict(test) if test else None,
                best=best,
                wall_s=time.perf_counter() - began,
                message=message,
            )
        )
    training.events.write("finish" if status == "done" else "stop", steps_done=training.steps_done, status=status)
    if test:
        training.progress.say(
            f"test micro-F1 {test.micro_f1:.4f}  macro-F1 {test.macro_f1:.4f}  (best checkpoint: epoch {training.best.epoch if training.best else 0})"
        )
    else:
        training.progress.say(
            f"stopped after step {training.steps_done} of {training.plan.steps_per_rank}; continue with: graphmill train --resume {folder.path}"
        )
    return EXIT_OF[status]


def _opening(training: Training, *, resumed: bool) -> str:
    plan = training.plan
    where = f"{plan.ranks} rank{'s' if plan.ranks > 1 else ''} on {plan.device}, {plan.threads} thread{'s' if plan.threads > 1 else ''} each"
    how = f"{plan.sync.scheme}, every {plan.sync.every}" if plan.ranks > 1 else "no synchronisation"
    synthetic = " (synthetic)" if plan.dataset.synthetic else ""
    again = f"; resumed after step {training.steps_done}" if resumed else ""
    return f"{plan.run_id}: {plan.dataset.name}{synthetic}, {training.replica.num_parameters:,} parameters, {where}, {how}{again}"


def _interface(plan: Plan, rank: Rank) -> str | None:
    if plan.ranks == 1 or plan.backend != "gloo":
        return None
    return os.environ.get("GLOO_SOCKET_IFNAME") or ("lo" if rank.num_hosts == 1 else None)


def _fail(folder: RunFolder, rank: Rank, events: EventWriter, status: Status, message: str, began: float) -> None:
    events.write("error", message=message)
    if rank.rank == 0:
        outcome = Outcome(
            status=status,
            exit_code=EXIT_OF[status],
            epochs=0,
            steps_per_rank=0,
            wall_s=time.perf_counter() - began,
            message=message,
        )
        folder.write_outcome(outcome)


if __name__ == "__main__":
    sys.exit(main())
