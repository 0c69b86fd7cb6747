"""What learns on a rank: its replica of the model, the optimizer, and the scheme by which the ranks agree."""

from dataclasses import dataclass

from torch import Tensor, nn

from graphmill.nn.weights import Weights
from graphmill.spec.calendar import Calendar
from graphmill.spec.optimizer import learning_rate
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.replica import Replica
from graphmill.sync.schemes import Step, SyncScheme, build_scheme
from graphmill.train.optimizer import FlatOptimizer, freeze

_OPTIMIZER, _SCHEME = "optimizer.", "scheme."  # prefixes of tensor names in a checkpoint


@dataclass(frozen=True, slots=True)
class Learner:
    """One rank's replica and what changes it."""

    plan: Plan
    calendar: Calendar
    replica: Replica
    optimizer: FlatOptimizer
    scheme: SyncScheme

    @classmethod
    def build(cls, plan: Plan, model: nn.Module, group: Group) -> "Learner":
        """The plan's optimizer over the flat parameters of `model`, and the plan's scheme.

        Raises `UserError` if a pattern of the plan matches no parameter of the model.
        """
        freeze(plan.optimizer, model)
        replica = Replica(model)
        optimizer = FlatOptimizer.build(plan.optimizer, replica)
        return cls(plan, plan.calendar, replica, optimizer, build_scheme(plan.sync, replica, optimizer, group))

    def before_backward(self, step: Step) -> None:
        """Let gradients be exchanged as backward makes them known, where the scheme does so."""
        self.scheme.before_backward(step)

    def update(self, step: Step, steps_done: int) -> bool:
        """Use the gradients of the step after `steps_done`. True if the ranks synchronised."""
        self.optimizer.set_rate(learning_rate(self.plan.optimizer, self.calendar, steps_done))
        return self.scheme.after_backward(step)

    def state(self) -> dict[str, Tensor]:
        """What differs between ranks: the optimizer's tensors and the scheme's."""
        optimizer = {_OPTIMIZER + name: tensor for name, tensor in self.optimizer.state().items()}
        return optimizer | {_SCHEME + name: tensor for name, tensor in self.scheme.state().items()}

    def load(self, weights: Weights, state: dict[str, Tensor]) -> None:
        """Continue from what a checkpoint holds."""
        weights.load_all_into(self.replica.model)
        self.optimizer.load(_below(_OPTIMIZER, state))
        self.scheme.load_state(_below(_SCHEME, state))


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
