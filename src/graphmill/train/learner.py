"""What learns on a rank: its replica of the model, the optimizer, and the scheme by which the ranks agree."""

import math
from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from graphmill.nn.weights import Weights
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.replica import Replica
from graphmill.sync.schemes import Step, SyncScheme, build_scheme

_OPTIMIZER, _SCHEME = "optimizer.", "scheme."  # what a tensor's name in a checkpoint begins with


@dataclass(frozen=True, slots=True)
class Learner:
    """One rank's replica and what changes it."""

    plan: Plan
    replica: Replica
    optimizer: Optimizer
    scheme: SyncScheme

    @classmethod
    def build(cls, plan: Plan, model: nn.Module, group: Group) -> "Learner":
        """Adam over the flat parameters of `model`, and the plan's scheme."""
        replica = Replica(model)
        flat = nn.Parameter(replica.values)
        flat.grad = replica.grads
        optimizer = torch.optim.Adam([flat], lr=plan.lr, eps=plan.adam_eps, weight_decay=plan.weight_decay, fused=True)
        # What Adam would make at its first step, so that a rank without seeds has moments to exchange and to save.
        optimizer.state[flat] = {
            "step": torch.zeros((), device=flat.device),
            "exp_avg": torch.zeros_like(flat, requires_grad=False),
            "exp_avg_sq": torch.zeros_like(flat, requires_grad=False),
        }
        if plan.max_grad_norm is not None:
            # Every scheme steps the optimizer once the gradient is the mean it should be: over the round's seeds on all
            # ranks, the same on each, or over this rank's own where it updates alone.
            limit = plan.max_grad_norm
            optimizer.register_step_pre_hook(lambda *_: limit_norm(replica.grads, limit))
        return cls(plan, replica, optimizer, build_scheme(plan.sync, replica, optimizer, group))

    def update(self, step: Step, steps_done: int) -> bool:
        """Use the gradients of the step after `steps_done`. True where the ranks synchronised."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.plan, steps_done)
        return self.scheme.after_backward(step)

    def state(self) -> dict[str, Tensor]:
        """What differs between ranks: the optimizer's tensors and the scheme's."""
        (flat,) = self.optimizer.param_groups[0]["params"]
        moments = {_OPTIMIZER + name: tensor for name, tensor in self.optimizer.state[flat].items()}
        return moments | {_SCHEME + name: tensor for name, tensor in self.scheme.state().items()}

    def load(self, weights: Weights, state: dict[str, Tensor]) -> None:
        """Continue from what a checkpoint holds."""
        weights.load_all_into(self.replica.model)
        (flat,) = self.optimizer.param_groups[0]["params"]
        moments = _below(_OPTIMIZER, state)
        # The step count of a fused optimizer lives where its moments do.
        self.optimizer.state[flat] = {name: tensor.to(flat.device) for name, tensor in moments.items()}
        self.scheme.load_state(_below(_SCHEME, state))


def learning_rate(plan: Plan, steps_done: int) -> float:
    """The rate of the step after `steps_done`: a function of the position alone."""
    match plan.lr_schedule:
        case "constant":
            return plan.lr
        case "cosine":
            return plan.lr * (1 + math.cos(math.pi * steps_done / plan.last_step)) / 2
        case "multistep":
            epochs_done = plan.calendar.position(steps_done).epoch
            return plan.lr * plan.lr_gamma ** sum(milestone <= epochs_done for milestone in plan.lr_milestones)
        case _:
            assert_never(plan.lr_schedule)


def limit_norm(grads: Tensor, limit: float) -> None:
    """Scale `grads` down, in place, where their L2 norm is above `limit`; as torch's clip_grad_norm_ does."""
    norm = torch.linalg.vector_norm(grads)
    grads.mul_((limit / (norm + 1e-6)).clamp(max=1.0))


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
