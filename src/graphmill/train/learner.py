"""What learns on a rank: its replica of the model, the optimizer, and the scheme by which the ranks agree."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

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
        optimizer = torch.optim.Adam([flat], lr=plan.lr, weight_decay=plan.weight_decay, fused=True)
        # What Adam would make at its first step, so that a rank without seeds has moments to exchange and to save.
        optimizer.state[flat] = {
            "step": torch.zeros((), device=flat.device),
            "exp_avg": torch.zeros_like(flat, requires_grad=False),
            "exp_avg_sq": torch.zeros_like(flat, requires_grad=False),
        }
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

    def load(self, model: dict[str, Tensor], state: dict[str, Tensor]) -> None:
        """Go on from what a checkpoint holds."""
        self.replica.load(model)
        (flat,) = self.optimizer.param_groups[0]["params"]
        moments = _below(_OPTIMIZER, state)
        # The step count of a fused optimizer lives where its moments do.
        self.optimizer.state[flat] = {name: tensor.to(flat.device) for name, tensor in moments.items()}
        self.scheme.load_state(_below(_SCHEME, state))


def learning_rate(plan: Plan, steps_done: int) -> float:
    """The rate of the step after `steps_done`: a function of the position alone."""
    if plan.lr_schedule == "constant":
        return plan.lr
    return plan.lr * (1 + math.cos(math.pi * steps_done / plan.steps_per_rank)) / 2


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
