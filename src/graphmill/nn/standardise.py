"""Standardised inputs: each feature minus a mean, divided by a standard deviation, both of which the weights hold."""

import torch
from torch import Tensor, nn


class Standardise(nn.Module):
    """x → (x − mean) / sd.

    Both are frozen parameters: a checkpoint holds them, and no sync touches them (a buffer would be averaged).
    """

    def __init__(self, mean: Tensor, sd: Tensor) -> None:
        """`mean`, `sd` [num_features]; a column that is constant has the sd 1."""
        super().__init__()
        self.mean = nn.Parameter(mean.float(), requires_grad=False)
        self.sd = nn.Parameter(sd.float(), requires_grad=False)

    @classmethod
    def unknown(cls, num_features: int) -> "Standardise":
        """Make one whose numbers saved weights are to fill in."""
        return cls(torch.zeros(num_features), torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Standardise rows [n, num_features], in float32."""
        return (x.float() - self.mean) / self.sd

    def of_self_and_mean(self, x: Tensor, indptr: Tensor) -> Tensor:
        """Standardise rows beside the mean over their neighbours [n, 2 * num_features]; `indptr` [n + 1] counts those.

        The mean of no neighbours is 0, as if they had been standardised before it was taken.
        """
        of_self, of_neighbours = x.float().chunk(2, dim=1)
        has_some = (indptr.diff() > 0).unsqueeze(1)
        return torch.cat([self(of_self), torch.where(has_some, self(of_neighbours), 0.0)], dim=1)
