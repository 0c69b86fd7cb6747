"""What a model makes of a batch of assignment problems."""

from dataclasses import dataclass

from torch import Tensor

from graphmill.tasks.assignment.loss import Potentials


@dataclass(frozen=True, slots=True)
class Predicted:
    """Potentials after each round, and what they are measured by."""

    rounds: tuple[Potentials, ...]  # the last is the prediction
    scale: Tensor  # [B, 1], in the unit of the costs
    reduced_v: Tensor  # [B, m]: minima of the columns after those of the rows, the seed that learns nothing

    @property
    def last(self) -> Potentials:
        """The prediction."""
        return self.rounds[-1]
