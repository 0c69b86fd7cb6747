"""Three ranks whose gradients are known beforehand: what each scheme makes of their parameters, as JSON per rank.

python toy.py MEETING_FILE OUT_FOLDER
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from graphmill.runtime.process import leave
from graphmill.spec.experiment import DeferredAllreduceSpec, DilocoSpec, LocalSgdSpec
from graphmill.sync.exchange import GradientExchange
from graphmill.sync.group import Group
from graphmill.sync.replica import Replica
from graphmill.sync.schemes import Step, build_scheme

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CPU = torch.device("cpu")
SEEDS = (2, 3, 0)  # of each rank in every step: the last has none


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0))
        self.register_buffer("statistic", torch.full((2,), float(RANK)))


class Counting(Toy):
    """With buffers of several shapes and formats, which differ among the ranks: averages, and counters of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor([10 * RANK, 2**40 - RANK]))
        self.register_buffer("seen", torch.tensor([RANK == 1, False]))
        self.register_buffer("num_batches", torch.tensor(100 - RANK))
        self.register_buffer("means", torch.tensor([[RANK, 1.0], [2.0, -RANK], [3.0 * RANK, 4.0]]).T)  # not in order
        self.register_buffer("exact", torch.tensor(2.0**40 + RANK, dtype=torch.float64))


def gradient(rank: int, step: int) -> torch.Tensor:
    """The sum over the seeds of a rank at a step."""
    return SEEDS[rank] * (torch.arange(6.0) / 7 + rank - 0.3 * step)


def run(spec: Any, closes: list[bool], model: type[Toy] = Toy, scale: float = 1.0) -> dict[str, Any]:
    """Plain SGD with rate 0.1 through the steps; `closes` says where rounds end, `scale` multiplies the gradients."""
    group = Group(RANK, RANKS, CPU)
    replica = Replica(model())
    flat = nn.Parameter(replica.values)
    flat.grad = replica.grads
    optimizer = torch.optim.SGD([flat], lr=0.1, momentum=0.5)
    if getattr(spec, "average_optimizer_state", False):  # as `Learner` does: a rank without seeds has moments, too
        optimizer.state[flat]["momentum_buffer"] = torch.zeros_like(flat, requires_grad=False)
        optimizer.moments = dict(optimizer.state[flat])
    scheme = build_scheme(spec, replica, optimizer, group)
    values, synced = [], []
    for step, closes_round in enumerate(closes):
        replica.grads += scale * gradient(RANK, step)
        synced.append(scheme.after_backward(Step(SEEDS[RANK], sum(SEEDS), closes_round)))
        values.append(replica.values.tolist())
    hashes = [row[0] for row in group.gather_numbers([replica.hash() - 2**63])]
    return {
        "values": values,
        "synced": synced,
        "agree": len(set(hashes)) == 1,
        "statistic": replica.model.statistic.tolist(),
        "buffers": [buffer.tolist() for buffer in replica.buffers],
        "counters": [counter.tolist() for counter in replica.counters],
        "payload_bytes": group.traffic.payload_bytes,
        "num_syncs": group.traffic.num_syncs,
        "state": sorted(scheme.state()),
        "grads": replica.grads.tolist(),
        "momentum": optimizer.state[flat]["momentum_buffer"].tolist() if flat in optimizer.state else None,
    }


class Chain(nn.Module):
    """Layers in a row, whose gradients of whole numbers add up exactly in any order; the first parameter is unread."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = nn.Parameter(torch.ones(4))
        self.layers = nn.ParameterList([nn.Parameter(torch.ones(2, 2)) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x @ layer
        return x


class UnreadLast(Chain):
    """The same, where backward never makes the piece known that goes out first."""

    def __init__(self) -> None:
        super().__init__()
        del self.unread
        self.of_none = nn.ParameterList([nn.Parameter(torch.ones(4))])


class NotingGroup(Group):
    """Notes of each step and piece whether backward was under way when it was sent."""

    in_backward: bool
    begun: list[list[bool]]

    def begin_all_reduce(self, tensor: torch.Tensor) -> dist.Work | None:
        self.begun[-1].append(self.in_backward)
        return super().begin_all_reduce(tensor)

    def all_reduce(self, tensor: torch.Tensor) -> None:
        self.begun[-1].append(self.in_backward)
        super().all_reduce(tensor)


class Noting:
    """An optimizer that notes the gradients it is given, and changes nothing."""

    def __init__(self, replica: Replica) -> None:
        self.replica, self.given = replica, []

    def step(self) -> None:
        self.given.append(self.replica.grads.tolist())


def in_pieces(model: type[Chain], piece_bytes: int, spec: Any) -> dict[str, Any]:
    """Five steps of real backward passes, in three rounds; which rank has no seeds takes turns."""
    group = NotingGroup(RANK, RANKS, CPU)
    group.in_backward, group.begun = False, []
    replica = Replica(model())
    optimizer = Noting(replica)
    scheme = build_scheme(spec, replica, optimizer, group)
    scheme.exchange = GradientExchange(replica, group, scheme.payload, piece_bytes=piece_bytes)
    for number in range(5):
        step = Step(float(number % RANKS != RANK), float(RANKS - 1), closes_round=number in (1, 2, 4))
        group.begun.append([])
        if step.weight:
            loss = replica.model(torch.tensor([[1.0, RANK]])).sum()
            scheme.before_backward(step)
            group.in_backward = True
            loss.backward()
            group.in_backward = False
        scheme.after_backward(step)
    return {
        "given": optimizer.given,
        "begun": group.begun,
        "num_pieces": len(scheme.exchange.pieces),
        "payload_bytes": group.traffic.payload_bytes,
    }


def collectives() -> dict[str, Any]:
    group = Group(RANK, RANKS, CPU)
    counts = [2, 0, 3]
    elsewhere = Group(RANK, RANKS, torch.device("meta"))  # rows stay where they lie, whatever the group's device is
    rows = elsewhere.gather_rows(torch.full((counts[RANK], 2), float(RANK)), counts)
    total = group.sum_numbers(torch.tensor([1.0, RANK], dtype=torch.float64))
    numbers = group.gather_numbers([RANK, 2**62 + RANK, -(2**63)])
    before = group.traffic.payload_bytes
    tensor = torch.full((5,), 1.5 * (RANK + 1))
    group.all_reduce(tensor)
    return {
        "rows": rows.tolist(),
        "total": total.tolist(),
        "numbers": numbers,
        "reduced": tensor.tolist(),
        "payload_bytes": group.traffic.payload_bytes - before,
        "control_bytes": group.traffic.control_bytes,
        "waited": group.spans.seconds["sync"] > 0,
    }


def of_two_groups() -> dict[str, Any]:
    """Ranks 0 and 2 exchange in a group of their own while all exchange in another: none is taken for the other."""
    members = [0, 2]
    process_group = dist.new_group(members)
    everyone = torch.full((3,), float(RANK))
    own = torch.full((3,), float(RANK))
    numbers: list[list[int]] = []
    rows = torch.empty(0, 1)
    if RANK in members:
        pair = Group(members.index(RANK), 2, CPU, process_group=process_group)
        pair.all_reduce(own)
        numbers = pair.gather_numbers([RANK])
        rows = pair.gather_rows(torch.full((pair.rank + 1, 1), float(RANK)), [1, 2])
        own += pair.sum_numbers(torch.tensor([1.0]))
    Group(RANK, RANKS, CPU).all_reduce(everyone)
    return {"own": own.tolist(), "everyone": everyone.tolist(), "numbers": numbers, "rows": rows.flatten().tolist()}


def main() -> None:
    dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], RANKS), rank=RANK, world_size=RANKS)
    rounds = [False, True, False, False, True]
    results = {
        "deferred": run(DeferredAllreduceSpec(every=2), rounds),
        "plain": run(DeferredAllreduceSpec(), [True] * 5),
        "local": run(LocalSgdSpec(scheme="local_sgd", every=2), rounds),
        "every-step": run(LocalSgdSpec(scheme="local_sgd"), [True] * 5),
        "diloco": run(DilocoSpec(scheme="diloco", outer_lr=0.7, outer_momentum=0.9), rounds),
        "half": run(LocalSgdSpec(scheme="local_sgd", payload="fp16"), rounds),
        "large": run(DeferredAllreduceSpec(payload="fp16"), rounds, scale=2.0**14),
        "bfloat": run(DeferredAllreduceSpec(payload="bf16"), rounds),
        "averaged": run(LocalSgdSpec(scheme="local_sgd", every=2, average_optimizer_state=True), rounds),
        "warm": run(LocalSgdSpec(scheme="local_sgd", warmup_steps=3), [False] * 4 + [True]),
        "deferred-rest": run(DeferredAllreduceSpec(every=2), [True]),
        "local-rest": run(LocalSgdSpec(scheme="local_sgd", every=2), [True]),
        "diloco-rest": run(DilocoSpec(scheme="diloco", every=2, outer_lr=1.0, outer_momentum=0.0), [True]),
        "counting": run(LocalSgdSpec(scheme="local_sgd", every=2), rounds, Counting),
        "counting-deferred": run(DeferredAllreduceSpec(every=2), rounds, Counting),
        "whole": in_pieces(Chain, 2**20, DeferredAllreduceSpec()),
        "pieces": in_pieces(Chain, 16, DeferredAllreduceSpec()),
        "unread-last": in_pieces(UnreadLast, 16, DeferredAllreduceSpec()),
        "unread-last-whole": in_pieces(UnreadLast, 2**20, DeferredAllreduceSpec()),
        "pieces-half": in_pieces(Chain, 32, DeferredAllreduceSpec(payload="fp16")),
        "collectives": collectives(),
        "two-groups": of_two_groups(),
    }
    (Path(sys.argv[2]) / f"{RANK}.json").write_text(json.dumps(results))
    dist.barrier()  # whoever leaves first takes its connections along
    dist.destroy_process_group()
    leave(0)  # as ranks do: torch's threads need not have gone when python ends, and then it aborts


main()
