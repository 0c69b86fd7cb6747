"""Train a few steps and evaluate, on the CPU or on the pretended device, and tell as JSON what came of it.

python on_device.py PLAN.json… : for each plan a list of two, the CPU's report first.
"""

import json
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from pretended_device import DEVICE, HANDED_OVER, WAITS, OnDevice, PretendedDevice, Stream

from graphmill.nn.weights import Weights
from graphmill.record.manifest import Counters, Position, SavedStats
from graphmill.record.weights import Origin
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import never_pause
from graphmill.sync.schemes import Step
from graphmill.tasks.build import build_task
from graphmill.train.checkpoint import CheckpointStore, ResumeState
from graphmill.train.learner import Learner

NUM_STEPS = 4
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


def report(plan: Plan, device: torch.device, folder: Path) -> dict[str, Any]:
    """Losses, parameters, measures; the waits of every step, and how many tensors were not handed over."""
    group = Group(0, 1, device)
    task = build_task(plan, group)
    learner = Learner.build(plan, task.model, group)
    losses, waits, unknown = [], [], 0
    for number, batch in zip(range(NUM_STEPS), task.batches(0, 0), strict=False):
        mine = [each for each in tensors_of(batch) if isinstance(each, OnDevice)]
        unknown += sum(id(each) not in HANDED_OVER for each in mine)
        WAITS.clear()
        loss = task.loss_sum(batch)
        loss.backward()
        losses.append(float(loss.detach()))
        weights = task.weights(0, number)
        learner.update(Step(weights[0], sum(weights), closes_round=True), number)
        waits.append(list(WAITS))
    checkpoints = CheckpointStore(folder, "0", group)
    books = SavedStats(loss_sum=0.0, epoch_s=0.0, counters=Counters(), before_epoch=Counters(), spent_s={})
    position = Position(epoch=0, step=NUM_STEPS, steps_done=NUM_STEPS, books=books, best=None, patience=None)
    # safetensors asks for the address of memory, and the pretended device has none: it is given copies.
    model = {name: tensor.cpu() for name, tensor in learner.replica.named_tensors()}
    origin = Origin(run_id="run", task="t", dataset="d", step=NUM_STEPS, epoch=0, plan_hash="0", measures={})
    state = ResumeState({name: tensor.cpu() for name, tensor in learner.state().items()}, position)
    checkpoints.save(Weights.of(model, origin), state, parameter_hash=learner.replica.hash(), keep=False)
    saved = learner.replica.hash()
    learner.replica.values.zero_()
    learner.load(checkpoints.load_weights(NUM_STEPS), checkpoints.load(NUM_STEPS).tensors)
    return {
        "losses": losses,
        "waits": waits,
        "unknown": unknown,
        "comes_back": learner.replica.hash() == saved,
        "parameters": learner.replica.values.cpu().tolist(),
        "val": task.evaluate("val", never_pause).facts(),
        "on_device": isinstance(learner.replica.values, OnDevice),
    }


def both(path: Path) -> list[dict[str, Any]]:
    """The CPU first."""
    plan = Plan.model_validate_json(path.read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        on_cpu = report(plan, torch.device("cpu"), Path(folder, "cpu"))
        with PretendedDevice():
            return [on_cpu, report(plan, DEVICE, Path(folder, "device"))]


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device=DEVICE) is a tensor of the CPU, then copied
    torch.cuda.Stream = Stream
    torch.cuda.stream = lambda _stream: nullcontext()
    torch.cuda.current_stream = lambda _device=None: COMPUTING
    print(json.dumps([both(Path(word)) for word in sys.argv[1:]]))
