"""The plan's optimizer over a replica's flat vectors: parameter groups are segments of them."""

from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, assert_never

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from graphmill.base.errors import UserError
from graphmill.spec.optimizer import AdamSpec, AdamWSpec, OptimizerSpec, SgdSpec, matching
from graphmill.sync.replica import Replica

_REST: Final = ""  # the group of parameters that no group names


@dataclass(frozen=True, slots=True)
class FlatOptimizer:
    """An optimizer whose state is as flat as the replica: one vector per moment, whatever the groups.

    Each group updates contiguous segments of the vectors. Without groups there is one segment, which is all of it.
    """

    inner: Optimizer
    moments: dict[str, Tensor]  # name → [num_parameters]

    @classmethod
    def build(cls, spec: OptimizerSpec, replica: Replica) -> "FlatOptimizer":
        """Raises `UserError` if a group's pattern matches no parameter."""
        moments = {name: torch.zeros_like(replica.values) for name in _moment_names(spec)}
        groups: dict[str, list[nn.Parameter]] = {}
        states: list[tuple[nn.Parameter, slice]] = []
        for group, place in _segments(spec, replica):
            segment = nn.Parameter(replica.values[place])
            segment.grad = replica.grads[place]
            groups.setdefault(group, []).append(segment)
            states.append((segment, place))
        inner = _torch_optimizer(spec, [_settings(spec, name, segments) for name, segments in groups.items()])
        for segment, place in states:
            # What torch would make at the first step, so that a rank without seeds has moments to exchange and to save.
            inner.state[segment] = {name: moment[place] for name, moment in moments.items()}
            if not isinstance(spec, SgdSpec):
                inner.state[segment]["step"] = torch.zeros((), device=replica.values.device)
        if spec.max_grad_norm is not None:
            # Every scheme steps the optimizer once the gradient is the mean it should be: over the round's seeds on all
            # ranks, the same on each, or over this rank's own if it updates alone.
            limit = spec.max_grad_norm
            inner.register_step_pre_hook(lambda *_: limit_norm(replica.grads, limit))
        return cls(inner, moments)

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next step; a group may have a multiple of it."""
        for group in self.inner.param_groups:
            group["lr"] = rate * group["lr_factor"]

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint holds: the moments and, if updates are counted, their number."""
        return {**self._count(), **self.moments}

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from `state`, in place."""
        for name, moment in self.moments.items():
            moment.copy_(state[name])
        for segment in self.inner.state.values():
            if "step" in segment:
                segment["step"].copy_(state["step"])

    def _count(self) -> dict[str, Tensor]:
        """All segments are updated together, so the first one's count is that of all."""
        first: dict[str, Tensor] = next(iter(self.inner.state.values()), {})
        return {"step": first["step"]} if "step" in first else {}


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


def _settings(spec: OptimizerSpec, group: str, segments: list[nn.Parameter]) -> dict[str, Any]:
    asked = spec.groups.get(group)
    lr_factor, decay_factor = (1.0, 1.0) if asked is None else (asked.lr_factor, asked.decay_factor)
    return {"params": segments, "lr_factor": lr_factor, "weight_decay": spec.weight_decay * decay_factor}


def _moment_names(spec: OptimizerSpec) -> tuple[str, ...]:
    if isinstance(spec, SgdSpec):
        return ("momentum_buffer",) if spec.momentum else ()
    return ("exp_avg", "exp_avg_sq")


def _torch_optimizer(spec: OptimizerSpec, groups: list[dict[str, Any]]) -> Optimizer:
    match spec:
        case AdamSpec():
            return torch.optim.Adam(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=True)
        case AdamWSpec():
            return torch.optim.AdamW(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=True)
        case SgdSpec():
            return torch.optim.SGD(groups, lr=spec.lr, momentum=spec.momentum, nesterov=spec.nesterov, fused=True)
        case _:
            assert_never(spec)
