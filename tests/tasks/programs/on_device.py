"""Train a few steps and evaluate, on the CPU or on the pretended device, and tell as JSON what came of it.

python on_device.py PLAN.json… : for each plan a list of two, the CPU's report first.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from pretended_device import COPIED, DEVICE, HANDED_OVER, WAITS, OnDevice, PretendedDevice, Stream
from pretended_device import Step as Step_
from torch.utils._python_dispatch import _get_current_dispatch_mode

from cubins.shim import shim_library
from graphmill.access import device_kernels, layerwise, local
from graphmill.device.driver import KernelDriver
from graphmill.device.kernels import DeviceKernels
from graphmill.nn.weights import Weights
from graphmill.record.events import Drawn, EventWriter, events_in
from graphmill.record.manifest import Counters, Position, SavedStats
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import Origin
from graphmill.runtime.stop import StopRequest
from graphmill.sample.prefetch import prefetch
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import never_pause
from graphmill.sync.schemes import Step
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.train.checkpoint import CheckpointStore, ResumeState
from graphmill.train.epoch_stats import EpochStats
from graphmill.train.learner import Learner
from graphmill.train.loop import Training
from graphmill.train.run_log import Progress, RunLog
from graphmill.train.time_left import TimeLeft

NUM_STEPS = 4
ROWS_AT_A_TIME = 64  # of exact inference, layer by layer
COMPUTING = Stream(DEVICE)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Of a batch, however deep."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple):
        return [tensor for item in value for tensor in tensors_of(item)]
    if is_dataclass(value):
        return [tensor for field in fields(value) for tensor in tensors_of(getattr(value, field.name))]
    return []


class Watched:
    """A task, and how many tensors of its batches were not made known to the stream that computes."""

    def __init__(self, task: Any) -> None:
        self.task, self.num_unknown = task, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def batches(self, epoch: int, first_step: int) -> Iterator[Any]:
        for batch in self.task.batches(epoch, first_step):
            # Ends of links are copied on the very stream that computes: what was drawn around them is handed over.
            handed_over = getattr(batch, "neighbourhood", batch)
            mine = [each for each in tensors_of(handed_over) if isinstance(each, OnDevice)]
            self.num_unknown += sum(id(each) not in HANDED_OVER for each in mine)
            del mine
            yield batch
            del batch


def training_of(plan: Plan, device: torch.device, folder: Path) -> Training:
    """What one rank trains with, in the folder of a run."""
    run, group = RunFolder.create(plan, folder), Group(0, 1, device)
    task = build_task(plan, group)
    learner = Learner.build(plan, task.model, group)
    parameters = learner.replica.num_parameters
    stats = EpochStats(plan=plan, group=group, num_parameters=parameters, interface=None, attempt=1, num_hosts=1)
    log = RunLog(run, 0, EventWriter(run.events_path(0), rank=0), Progress(plan, shown=False), plan.kind)
    checkpoints = CheckpointStore(run.checkpoints_dir, "0", group)
    return Training(plan, group, task, learner, checkpoints, stats, log, TimeLeft(StopRequest()), lambda: None)


def waiting(plan: Plan, device: torch.device) -> tuple[str, float]:
    """The plan's steps one by one, each loss read at once: the replica's hash, and the sum of losses."""
    group = Group(0, 1, device)
    task = build_task(plan, group)
    learner, total = Learner.build(plan, task.model, group), 0.0
    for number, batch in zip(range(plan.last_step), task.batches(0, 0), strict=False):
        loss = task.loss_sum(batch)
        loss.backward()
        total += float(loss.detach())
        weights = task.weights(0, number)
        learner.update(Step(weights[0], sum(weights), closes_round=plan.calendar.closes_round(number + 1)), number)
    return f"{learner.replica.hash():016x}", total


def report(plan: Plan, device: torch.device, folder: Path) -> dict[str, Any]:
    """Losses, parameters, measures; the waits of every step, and how many tensors were not handed over."""
    training = training_of(plan, device, folder)
    task, learner, waits = training.task, training.learner, list[list[str]]()
    training.task = watched = Watched(task)

    def step_ended() -> None:
        waits.append(list(WAITS))
        WAITS.clear()
        Step_.number += 1

    training.alive = step_ended
    training._settle_draws()
    WAITS.clear()
    training._train_epoch()  # its last round is compared in `_settle`, for which the host waits
    waits.append(list(WAITS))
    training._settle()
    found = training.learner.replica.hash()
    syncs = [each for each in events_in(training.run_log.folder.events_path(0)) if each.kind == "sync"]
    once = waiting(plan, device)
    comes_back = _comes_back(training, found)
    return {
        "losses": [each.loss_sum for each in syncs],
        "as_if_it_waited": [syncs[-1].parameter_hash, syncs[-1].loss_sum, f"{found:016x}"] == [*once, once[0]],
        "waits": waits,
        "unknown": watched.num_unknown,
        "comes_back": comes_back,
        "val": task.evaluate("val", never_pause).facts(),
        "on_device": isinstance(learner.replica.values, OnDevice),
        "draws": [each.model_dump() for each in events_in(training.run_log.folder.events_path(0), Drawn)],
        "exact": exact(task) if isinstance(task, NodeClassification) else {},
    }


def exact(task: NodeClassification) -> dict[str, Any]:
    """What exact inference waits for and copies to the device, and how many blocks it has if it goes layer by layer."""
    task.model.eval()
    nodes = task.access.nodes_in("val")
    WAITS.clear()
    COPIED.clear()
    _, logits = task.exact_logits(nodes, never_pause)
    topology = task.access.store.topology(undirected=task.task_plan.undirected)
    wanted = layerwise.wanted_rows(topology, nodes, len(task.task_plan.num_neighbors))
    blocks = sum(-(-len(each) // ROWS_AT_A_TIME) for each in wanted)
    return {"waits": list(WAITS), "copied": list(COPIED), "blocks": blocks, "logits": logits.tolist()}


def prefetch_on_device(make: Any, depth: int, *, collective: bool = False) -> Iterator[Any]:
    """`prefetch`, whose thread makes tensors of the device where the caller does: torch's modes are a thread's own."""
    mode = nullcontext if _get_current_dispatch_mode() is None else PretendedDevice

    def made() -> Iterator[Any]:
        items, ended = make(), object()
        while True:
            with mode():
                item = next(items, ended)
            if item is ended:
                return
            yield item
            del item

    return prefetch(made, depth, collective=collective)


def _comes_back(training: Training, found: int) -> bool:
    """Whether a checkpoint holds what the device held; its replica is lost and read again."""
    learner, checkpoints = training.learner, training.checkpoints
    books = SavedStats(loss_sum=0.0, epoch_s=0.0, counters=Counters(), before_epoch=Counters(), spent_s={})
    steps = training.steps_done
    position = Position(epoch=0, step=steps, steps_done=steps, books=books, best=None, patience=None)
    # safetensors asks for the address of memory, and the pretended device has none: it is given copies.
    model = {name: tensor.cpu() for name, tensor in learner.replica.named_tensors()}
    origin = Origin(run_id="run", task="t", dataset="d", step=steps, epoch=0, plan_hash="0", measures={})
    state = ResumeState({name: tensor.cpu() for name, tensor in learner.state().items()}, position)
    checkpoints.save(Weights.of(model, origin), state, parameter_hash=found, keep=False)
    learner.replica.values.zero_()
    learner.load(checkpoints.load_weights(steps), checkpoints.load(steps).tensors)
    return learner.replica.hash() == found


def both(path: Path) -> list[dict[str, Any]]:
    """The CPU first."""
    plan = Plan.model_validate_json(path.read_bytes())
    plan = plan.ending_at(min(plan.last_step, NUM_STEPS))
    with tempfile.TemporaryDirectory() as folder:
        on_cpu = report(plan, torch.device("cpu"), Path(folder, "cpu"))
        with PretendedDevice():
            return [on_cpu, report(plan, DEVICE, Path(folder, "device"))]


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device=DEVICE) is a tensor of the CPU, then copied
    layerwise._ROWS_AT_A_TIME = ROWS_AT_A_TIME
    local.prefetch = prefetch_on_device
    if shutil.which(os.environ.get("CXX", "c++")) is not None:
        driver = KernelDriver(shim_library(), b"", lambda: 0)
        device_kernels.cuda_kernels = lambda device: DeviceKernels(driver, device)
    torch.cuda.Stream = Stream
    torch.cuda.stream = lambda _stream: nullcontext()
    torch.cuda.current_stream = lambda _device=None: COMPUTING
    print(json.dumps([both(Path(word)) for word in sys.argv[1:]]))
