"""Does a plan's batch fit into memory? `python -m graphmill.train.try_batch PLAN.json MIB [--step]` tries it.

Real steps with the plan's model, loss, precision and optimizer on its largest batches, then a short run as any other,
with evaluations and checkpoints. Each attempt is a process of its own, so that running out of memory ends nothing else;
what it found is the last line of standard output, as JSON.
"""

import argparse
import gc
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch

from graphmill import _native
from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.messages import show_messages
from graphmill.nn.weights import Weights
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.rank import ALONE
from graphmill.runtime.snapshot import import_from_snapshot
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.schemes import Step
from graphmill.tasks.build import build_task
from graphmill.tasks.task import AnyTask, KnowsLargestBatches, UsesSources
from graphmill.train.device import device_of
from graphmill.train.learner import Learner
from graphmill.train.worker import work

_MIB: Final = 1 << 20
_STEPS_AT_ONCE: Final = 2  # from each of the largest batches on: the next one is made meanwhile, as in training
_MOST_STEPS: Final = 24  # of the run that is tried: two epochs, if they are so short
_HEADROOM: Final = 1.25  # a peak up to here is measured; above, allocations fail


def try_batch(plan: Plan, limit_mib: float | None) -> dict[str, Any]:
    """Peak memory of the plan's largest steps, MiB; `limit_mib`: what a rank may use, None: all that is free on a GPU.

    Returns `peak_mib` (null: it ran out), `limit_mib` and `num_steps`.
    """
    torch.set_num_threads(plan.threads)
    _native.keep_freed_memory()
    device = device_of(plan, 0)
    if limit_mib is None:
        if device.type == "cpu":
            raise UserError("a CPU has no memory of its own to fill", fix="give --memory-budget, such as 2G")
        limit_mib = torch.cuda.mem_get_info(device)[0] / _MIB
    if device.type == "cpu":
        _limit_allocations(limit_mib * _HEADROOM)
    try:
        num_steps = _on_the_largest(plan, device)
        gc.collect()
        _native.release_freed_memory()  # the run that follows begins as any other
        short = plan.ending_at(min(plan.last_step, 2 * plan.calendar.length(0), _MOST_STEPS))
        ran_out = _train(short)
    except (MemoryError, OSError, RuntimeError) as error:  # OSError: of an import
        if not _is_of_memory(f"{type(error).__name__} {error}"):
            raise
        return {"peak_mib": None, "limit_mib": limit_mib, "num_steps": 0}
    num_steps += short.last_step
    return {"peak_mib": None if ran_out else _peak_mib(device), "limit_mib": limit_mib, "num_steps": num_steps}


def _on_the_largest(plan: Plan, device: torch.device) -> int:
    """Steps on the largest batches, if the task knows them. Returns how many."""
    task, learner = _built(plan, device)
    whole: object = task
    starts = whole.largest_batches() if isinstance(whole, KnowsLargestBatches) else ()
    return sum(_steps(plan, task, learner, epoch, step) for epoch, step in starts)


def _train(plan: Plan) -> bool:
    """A run as any other, with its evaluations and checkpoints, in a folder that is thrown away. True: it ran out."""
    with tempfile.TemporaryDirectory(prefix="graphmill-batch-") as root:
        folder = RunFolder.create(plan.model_copy(update={"run_id": "trial", "baselines": False}), Path(root))
        if work(folder, ALONE, resume=False) == exits.DONE:
            return False
        outcome = folder.read_outcome()
    message = "" if outcome is None else outcome.message
    if not _is_of_memory(message):
        raise UserError(f"training failed: {message}", fix="correct it, or give train.batch_size")
    return True


def _is_of_memory(message: str) -> bool:
    """Whether an allocation failed, or a thread that needs a stack."""
    return any(text in message for text in ("MemoryError", "OutOfMemory", "allocate memory", "start new thread"))


def measure_step(plan: Plan) -> dict[str, Any]:
    """What one step on the plan's largest batch takes, MiB.

    Returns `before_mib`, what the rank holds without it, the optimizer's moments included; `step_mib`, by how much the
    peak is above that; and `saved_mib`, what of it was kept for the backward pass, counted by autograd's hooks.
    """
    torch.set_num_threads(plan.threads)
    _native.keep_freed_memory()
    device = device_of(plan, 0)
    task, learner = _built(plan, device)
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    whole: object = task
    epoch, step = whole.largest_batches()[0] if isinstance(whole, KnowsLargestBatches) else (0, 0)
    before_mib = _held_mib(device)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _steps(plan, task, learner, epoch, step, count=1)
    moments_mib = sum(tensor.nbytes for tensor in learner.state().values()) / _MIB
    before_mib += moments_mib
    step_mib = max(0.0, _peak_mib(device) - before_mib)
    return {"saved_mib": sum(saved.values()) / _MIB, "step_mib": step_mib, "before_mib": before_mib}


def _built(plan: Plan, device: torch.device) -> tuple[AnyTask, Learner]:
    group = Group(0, 1, device)
    task = build_task(plan, group)
    if plan.sources:
        assert isinstance(task, UsesSources)  # the loop refuses others
        found = {name: Weights.read(Path(asked.path)) for name, asked in plan.sources.items()}
        task.use_sources({name: found[name].chosen(each.include, each.exclude) for name, each in plan.sources.items()})
    return task, Learner.build(plan, task.model, group)


def _steps(plan: Plan, task: AnyTask, learner: Learner, epoch: int, first: int, count: int = _STEPS_AT_ONCE) -> int:
    """Take a number of steps, each with an update, and return how many there were."""
    taken = 0
    with closing(task.batches(epoch, first)) as batches:
        for batch in islice(batches, count):
            if batch.num_seeds:
                task.loss_sum(batch).backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
            weight = task.weights(epoch, first + taken)[0]
            learner.update(Step(weight, weight, closes_round=True), 0)
            taken += 1
    return taken


def _limit_allocations(most_mib: float) -> None:
    """Let allocations fail once the process would hold about that much (RLIMIT_DATA counts private memory)."""
    status = _status()
    unused = status["VmData"] - status["RssAnon"]  # stacks of threads and the like: counted, and not held
    most = int(most_mib - status["RssFile"] + unused) * _MIB
    resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _peak_mib(device: torch.device) -> float:
    """Most that this process held at once: resident memory, or what torch reserved on the GPU."""
    return torch.cuda.max_memory_reserved(device) / _MIB if device.type == "cuda" else float(_status()["VmHWM"])


def _held_mib(device: torch.device) -> float:
    """What this process holds now."""
    return torch.cuda.memory_reserved(device) / _MIB if device.type == "cuda" else _status()["VmRSS"]


def _status() -> dict[str, float]:
    """Amounts of memory in /proc/self/status, MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return {
        name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines) if "kB" in rest
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the plan in the file; prints what was found as JSON."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.try_batch", description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("limit_mib", type=float, help="0: all that is free on the GPU")
    parser.add_argument("--step", action="store_true", help="measure one step instead")
    options = parser.parse_args(arguments)
    show_messages()
    began = time.perf_counter()
    try:
        import_from_snapshot(os.environ)
        plan = Plan.model_validate_json(options.plan.read_bytes())
        found = measure_step(plan) if options.step else try_batch(plan, options.limit_mib or None)
    except UserError as error:
        found = {"error": {"message": error.message, "fix": error.fix}}
    found["wall_s"] = round(time.perf_counter() - began, 3)
    sys.stdout.write(json.dumps(found) + "\n")
    return exits.BAD_REQUEST if "error" in found else exits.DONE


if __name__ == "__main__":
    sys.exit(main())
