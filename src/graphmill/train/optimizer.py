"""The plan's optimizer over a replica's flat vectors: parameter groups are segments of them."""

from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, assert_never

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from graphmill.base.errors import UserError
from graphmill.spec.optimizer import AdamSpec, AdamWSpec, OptimizerSpec, SgdSpec, matching
from graphmill.sync.replica import Replica

_REST: Final = ""  # the group of parameters that no group names


@dataclass(slots=True)
class _Group:
    """Segments that share their settings; the lists are what torch's functions take, an entry per segment."""

    lr_factor: float
    weight_decay: float
    values: list[Tensor] = field(default_factory=list)
    grads: list[Tensor] = field(default_factory=list)
    moments: dict[str, list[Tensor]] = field(default_factory=dict)
    steps: list[Tensor] = field(default_factory=list)  # updates done, as torch counts them: a tensor per segment


@dataclass(slots=True)
class FlatOptimizer:
    """An optimizer whose state is as flat as the replica: one vector per moment, whatever the groups.

    Each group updates contiguous segments of the vectors. Without groups there is one segment, which is all of it. The
    arithmetic is that of `torch.optim`'s functions. Its classes are not used: the first of them that a process makes
    imports torch's compiler, 900 modules that take as long as all of torch.
    """

    spec: OptimizerSpec
    replica: Replica
    moments: dict[str, Tensor]  # name → [num_parameters]
    groups: list[_Group]
    lr: float

    @classmethod
    def build(cls, spec: OptimizerSpec, replica: Replica) -> "FlatOptimizer":
        """Build the optimizer. Raises `UserError` if a group's pattern matches no parameter."""
        # Made before the first step, so that a rank without seeds has moments to exchange and to save.
        moments = {name: torch.zeros_like(replica.values) for name in _moment_names(spec)}
        groups: dict[str, _Group] = {}
        for name, place in _segments(spec, replica):
            group = groups.setdefault(name, _settings(spec, name))
            group.values.append(replica.values[place])
            group.grads.append(replica.grads[place])
            for moment, vector in moments.items():
                group.moments.setdefault(moment, []).append(vector[place])
            if not isinstance(spec, SgdSpec):
                group.steps.append(torch.zeros((), device=replica.values.device))
        return cls(spec, replica, moments, list(groups.values()), spec.lr)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step; a group may have a multiple of it."""
        self.lr = rate

    @torch.no_grad()
    def step(self) -> None:
        """Update the replica's values by its gradients, in place."""
        if self.spec.max_grad_norm is not None:
            # Every scheme steps the optimizer once the gradient is the mean it should be: over the round's seeds on all
            # ranks, the same on each, or over this rank's own if it updates alone.
            limit_norm(self.replica.grads, self.spec.max_grad_norm)
        for group in self.groups:
            _update(self.spec, group, self.lr * group.lr_factor)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint holds: the moments and, if updates are counted, their number."""
        return {**self._count(), **self.moments}

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from `state`, in place."""
        for name, moment in self.moments.items():
            moment.copy_(state[name])
        for group in self.groups:
            for steps in group.steps:
                steps.copy_(state["step"])

    def _count(self) -> dict[str, Tensor]:
        """Steps of the first segment: all are updated together, so its count is that of all."""
        return {"step": self.groups[0].steps[0]} if self.groups[0].steps else {}


def freeze(spec: OptimizerSpec, model: nn.Module) -> None:
    """Take the parameters that the plan freezes out of training; before a replica is made of the model.

    Raises `UserError` if a pattern matches no parameter, or nothing is left to train.
    """
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name in matching(spec.frozen, list(trainable), "train.optimizer.frozen"):
        trainable.pop(name).requires_grad_(False)
    if not trainable:
        raise UserError(
            f"train.optimizer.frozen is {list(spec.frozen)}, which leaves no parameter to train",
            fix="leave a pattern out, or `graphmill evaluate` where nothing is to be trained",
        )


def limit_norm(grads: Tensor, limit: float) -> None:
    """Scale `grads` down, in place, if their L2 norm is above `limit`; as torch's clip_grad_norm_ does."""
    norm = torch.linalg.vector_norm(grads)
    grads.mul_((limit / (norm + 1e-6)).clamp(max=1.0))


def _segments(spec: OptimizerSpec, replica: Replica) -> list[tuple[str, slice]]:
    """(group, place) of neighbouring parameters of one group, in the order of the vectors."""
    names = list(replica.places)
    group_of: dict[str, str] = {}
    for group, asked in spec.groups.items():
        for name in matching(asked.parameters, names, f"train.optimizer.groups.{group}.parameters"):
            group_of.setdefault(name, group)
    segments = []
    for group, members in groupby(names, key=lambda name: group_of.get(name, _REST)):
        places = [replica.places[name] for name in members]
        segments.append((group, slice(places[0].start, places[-1].stop)))
    return segments


def _settings(spec: OptimizerSpec, name: str) -> _Group:
    asked = spec.groups.get(name)
    lr_factor, decay_factor = (1.0, 1.0) if asked is None else (asked.lr_factor, asked.decay_factor)
    assert spec.weight_decay is not None, "a plan says it"
    return _Group(lr_factor, spec.weight_decay * decay_factor)


def _moment_names(spec: OptimizerSpec) -> tuple[str, ...]:
    if isinstance(spec, SgdSpec):
        return ("momentum_buffer",) if spec.momentum else ()
    return ("exp_avg", "exp_avg_sq")


def _update(spec: OptimizerSpec, group: _Group, lr: float) -> None:
    """One update of a group by torch's fused kernels: those of `torch.optim.Adam(…, fused=True)` and its like."""
    match spec:
        case AdamSpec() | AdamWSpec():
            function = adamw if isinstance(spec, AdamWSpec) else adam
            function(
                group.values,
                group.grads,
                group.moments["exp_avg"],
                group.moments["exp_avg_sq"],
                [],
                group.steps,
                fused=True,
                amsgrad=False,
                beta1=spec.betas[0],
                beta2=spec.betas[1],
                lr=lr,
                weight_decay=group.weight_decay,
                eps=spec.eps,
                maximize=False,
            )
        case SgdSpec():
            sgd(
                group.values,
                group.grads,
                [*group.moments.get("momentum_buffer", [])],
                fused=True,
                weight_decay=group.weight_decay,
                momentum=spec.momentum,
                lr=lr,
                dampening=0.0,
                nesterov=spec.nesterov,
                maximize=False,
            )
        case _:
            assert_never(spec)
