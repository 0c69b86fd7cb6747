"""What a model makes of a batch of assignment problems."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmill.tasks.assignment.data.features import Instances
from graphmill.tasks.assignment.nn.loss import FeasiblePotentials, objective


@dataclass(frozen=True, slots=True)
class Predicted:
    """Potentials after each round, and what they are measured by."""

    rounds: tuple[FeasiblePotentials, ...]  # the last is what is learnt
    scale: Tensor  # [B, 1], in the unit of the costs
    reduced_v: Tensor  # [B, m]: minima of the columns after those of the rows, the seed that learns nothing

    @property
    def last(self) -> FeasiblePotentials:
        """What the model makes of the instances in the end."""
        return self.rounds[-1]

    @torch.no_grad()
    def best_v(self, given: Instances) -> Tensor:
        """Potentials of the columns to begin with [B, m]: the model's, unless row minima alone are worth more."""
        is_worth_more = objective(self.last, given) >= self.reduced_v.sum(dim=1)
        return torch.where(is_worth_more.unsqueeze(1), self.last.v, self.reduced_v)
