"""How ranks agree: what happens after each backward pass, and at the end of each round.

A round is `every` steps, or what is left of them at the end of an epoch. Whatever its length it ends with a real
exchange, after which all replicas are bit-identical. Gradients arrive as weighted sums over seeds, so that a batch
counts for its weight and a rank without seeds for nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

import torch
from torch import Tensor

from graphmill.spec.experiment import DeferredAllreduceSpec, DilocoSpec, LocalSgdSpec, Payload, SyncSpec
from graphmill.sync.exchange import GradientExchange
from graphmill.sync.group import Group
from graphmill.sync.replica import Replica

PAYLOAD_DTYPE: dict[Payload, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one rank, as a scheme sees it. Weights are what the loss adds up: see `tasks.task.Task.weights`."""

    weight: float  # of this rank's seeds
    global_weight: float  # of all ranks' seeds
    closes_round: bool


class Optimizer(Protocol):
    """What a scheme asks of the optimizer of the replica."""

    moments: dict[str, Tensor]  # as large as the parameters; counts of steps are each rank's own

    def step(self) -> None:
        """Update the replica's values by its gradients, in place."""


class SyncScheme(Protocol):
    """When and how ranks exchange gradients or parameters."""

    @property
    def leaves_ranks_alike(self) -> bool:
        """Whether after a sync all of its state, and of the optimizer's, is the same on every rank."""

    def before_backward(self, step: Step) -> None:
        """Learn of the step whose gradients backward is about to add. A rank without seeds need not call it."""

    def after_backward(self, step: Step) -> bool:
        """Use the gradients in the replica. True if the ranks synchronised: all replicas are equal now."""

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold to continue after a sync."""

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from `state`, in place."""


def build_scheme(spec: SyncSpec, replica: Replica, optimizer: Optimizer, group: Group) -> SyncScheme:
    """The scheme that `spec` asks for."""
    match spec:
        case DeferredAllreduceSpec():
            return DeferredAllreduce(replica, optimizer, group, PAYLOAD_DTYPE[spec.payload])
        case LocalSgdSpec():
            return LocalSgd(
                replica,
                optimizer,
                group,
                PAYLOAD_DTYPE[spec.payload],
                average_optimizer_state=spec.average_optimizer_state,
                warmup_steps=spec.warmup_steps,
            )
        case DilocoSpec():
            outer = NesterovStep(torch.zeros_like(replica.values), spec.outer_lr, spec.outer_momentum)
            return LocalSgd(replica, optimizer, group, PAYLOAD_DTYPE[spec.payload], outer=outer)
        case _:
            assert_never(spec)


def _all_reduce_as(tensor: Tensor, payload: torch.dtype, group: Group) -> None:
    """Sum over the ranks, in place, with the numbers on the wire in the format `payload`."""
    if tensor.dtype == payload:
        group.all_reduce(tensor)
        return
    wire = tensor.to(payload)
    group.all_reduce(wire)
    tensor.copy_(wire)


def _agree_on_buffers(replica: Replica, group: Group) -> None:
    """Average the buffers, and take the largest of the counters: one collective for all of a format."""
    if group.world_size == 1:
        return
    for alike in _by_format(replica.buffers):
        together = torch.cat([buffer.reshape(-1) for buffer in alike])
        group.all_reduce(together)
        _take_apart(together / group.world_size, alike)
    for alike in _by_format(replica.counters):
        together = torch.cat([counter.reshape(-1) for counter in alike])
        group.all_max(together)
        _take_apart(together, alike)


def _by_format(tensors: list[Tensor]) -> Iterable[list[Tensor]]:
    found: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        found.setdefault(tensor.dtype, []).append(tensor)
    return found.values()


def _take_apart(joined: Tensor, tensors: list[Tensor]) -> None:
    for tensor, part in zip(tensors, torch.split(joined, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


@dataclass(slots=True)
class DeferredAllreduce:
    """Gradients add up for a round; then one all-reduce and one update. With rounds of one step: data parallelism.

    The update's gradient is the weighted mean over all seeds of the round on all ranks, even if batches differ in
    size.
    """

    replica: Replica
    optimizer: Optimizer
    group: Group
    payload: torch.dtype
    weight_in_round: float = 0  # over all ranks
    exchange: GradientExchange = field(init=False)

    def __post_init__(self) -> None:
        self.exchange = GradientExchange(self.replica, self.group, self.payload)

    @property
    def leaves_ranks_alike(self) -> bool:
        """Return True: every rank has had the same gradients."""
        return True

    def before_backward(self, step: Step) -> None:
        """Let gradients be exchanged as they become known, in the last step of a round."""
        if step.closes_round:
            self.exchange.begin(self.weight_in_round + step.global_weight or 1)

    def after_backward(self, step: Step) -> bool:
        """Exchange and update at the end of a round; else let the gradients add up."""
        self.weight_in_round += step.global_weight
        if not step.closes_round:
            return False
        self.exchange.finish(self.weight_in_round or 1)
        with self.group.spans("optimizer"):
            self.optimizer.step()
        self.replica.grads.zero_()
        self.weight_in_round = 0
        _agree_on_buffers(self.replica, self.group)
        self.group.traffic.num_syncs += 1
        return True

    def state(self) -> dict[str, Tensor]:
        """Return no tensors: a checkpoint is taken after a sync only, when the round is empty."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore nothing: a checkpoint has no tensors of this scheme."""
        assert not state


class OuterStep(Protocol):
    """What becomes of the parameters all ranks started the round with, given the mean change of the round."""

    def apply(self, anchor: Tensor, change: Tensor) -> None:
        """Move `anchor` in place."""

    def state(self) -> dict[str, Tensor]:
        """Tensors to save."""


@dataclass(slots=True)
class Averaging:
    """anchor + mean change = the mean of the ranks' parameters (Stich 2019, arXiv 1805.09767)."""

    def apply(self, anchor: Tensor, change: Tensor) -> None:
        """Move `anchor` by the whole change."""
        anchor += change

    def state(self) -> dict[str, Tensor]:
        """Return no tensors: an average has no state."""
        return {}


@dataclass(slots=True)
class NesterovStep:
    """An outer SGD step with Nesterov momentum on the mean change (DiLoCo: Douillard et al. 2023, arXiv 2311.08105)."""

    velocity: Tensor
    lr: float
    momentum: float

    def apply(self, anchor: Tensor, change: Tensor) -> None:
        """Move `anchor` by the change and the velocity gathered so far."""
        self.velocity.mul_(self.momentum).add_(change)
        anchor.add_(change + self.momentum * self.velocity, alpha=self.lr)

    def state(self) -> dict[str, Tensor]:
        """Velocity, the same on all ranks."""
        return {"outer_velocity": self.velocity}


@dataclass(slots=True)
class LocalSgd:
    """Local SGD: each rank updates alone for a round; the outer step applies the mean change, the same on all ranks.

    Exchanging changes since the last sync rather than parameters lets a 16-bit payload keep what 32-bit parameters
    hold. For the first `warmup_steps` steps of a rank, gradients are all-reduced every step instead (post-local SGD:
    Lin et al. 2020, arXiv 1808.07217).
    """

    replica: Replica
    optimizer: Optimizer
    group: Group
    payload: torch.dtype
    outer: OuterStep = field(default_factory=Averaging)
    average_optimizer_state: bool = False
    warmup_steps: int = 0
    anchor: Tensor = field(init=False)
    steps_done: int = 0
    warmup: DeferredAllreduce = field(init=False)

    def __post_init__(self) -> None:
        self.anchor = self.replica.values.clone()
        self.warmup = DeferredAllreduce(self.replica, self.optimizer, self.group, self.payload)

    @property
    def leaves_ranks_alike(self) -> bool:
        """The optimizer's moments are those of this rank's own updates."""
        return False

    def before_backward(self, step: Step) -> None:
        """Let gradients be exchanged as they become known, in the warm-up."""
        if self.steps_done < self.warmup_steps:
            self.warmup.before_backward(replace(step, closes_round=True))

    def after_backward(self, step: Step) -> bool:
        """Update this rank alone, except in the warm-up; exchange at the end of a round."""
        self.steps_done += 1
        if self.steps_done <= self.warmup_steps:
            self.warmup.after_backward(replace(step, closes_round=True))
            self.anchor.copy_(self.replica.values)
            return True
        if step.weight:
            self.replica.grads /= step.weight
            with self.group.spans("optimizer"):
                self.optimizer.step()
            self.replica.grads.zero_()
        if step.closes_round:
            self._synchronise()
        return step.closes_round

    def _synchronise(self) -> None:
        change = (self.replica.values - self.anchor) / self.group.world_size
        _all_reduce_as(change, self.payload, self.group)
        self.outer.apply(self.anchor, change)
        self.replica.values.copy_(self.anchor)
        if self.average_optimizer_state:
            for moment in self.optimizer.moments.values():
                moment /= self.group.world_size
                self.group.all_reduce(moment)
        _agree_on_buffers(self.replica, self.group)
        self.group.traffic.num_syncs += 1

    def state(self) -> dict[str, Tensor]:
        """The outer step's tensors and the place in the warm-up; the anchor equals the parameters after every sync."""
        return {**self.outer.state(), "steps_done": torch.tensor(self.steps_done)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue with the parameters as anchor."""
        self.anchor.copy_(self.replica.values)
        self.steps_done = int(state["steps_done"])
        for name, tensor in self.outer.state().items():
            tensor.copy_(state[name])
