"""The dual objective as something to differentiate: Σ_i min_j (x_ij − v_j) + Σ_j v_j, of a whole batch at once.

Potentials v of the columns are enough: the best u for them are the minima of the rows, so (u, v) is feasible whatever v
is; at most 0 where columns stay unmatched. The objective is concave in v, and piecewise linear: its gradient is 1 − how
many rows have their minimum in the column.
"""

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from graphmill.tasks.assignment.data.features import Instances, nearest

_LEAST_GAP: Final = 0.01  # of rows × scale: where row minima are (nearly) optimal, a loss has this unit


@dataclass(frozen=True, slots=True)
class FeasiblePotentials:
    """Potentials of the columns, and the best ones of the rows for them, in the unit of the costs."""

    v: Tensor  # [B, m]; 0 for columns that fill up
    u: Tensor  # [B, n]; 0 for rows that fill up
    columns: Tensor  # int64 [B, n]: where each row has its minimum; -1 for rows that fill up


class _Objective(torch.autograd.Function):
    """v [B, m], u [B, n], columns [B, n] → [B]. `u` are the minima at `v`: the gradient of both goes to `v`."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, u: Tensor, columns: Tensor, is_column: Tensor) -> Tensor:  # noqa: ANN401  # torch's
        ctx.save_for_backward(columns, is_column)
        return u.sum(dim=1) + v.sum(dim=1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401  # torch's
        columns, is_column = ctx.saved_tensors
        counts = torch.zeros(is_column.shape, dtype=grad.dtype, device=grad.device)
        counts.scatter_add_(1, columns.clamp(min=0), (columns >= 0).to(grad.dtype))
        return (is_column.to(grad.dtype) - counts) * grad.unsqueeze(1), None, None, None


class _Capped(torch.autograd.Function):
    """min(v, 0) where it must be; the gradient passes where a step along it would not be undone."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, is_capped: Tensor) -> Tensor:  # noqa: ANN401  # torch's
        ctx.save_for_backward(v > 0, is_capped)
        return torch.where(is_capped, v.clamp(max=0.0), v)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401  # torch's
        is_above, is_capped = ctx.saved_tensors
        # Steps are down the gradient: of a v above 0 only those that lower it have an effect.
        return torch.where(is_capped & is_above & (grad < 0), 0.0, grad), None


def capped(v: Tensor, given: Instances) -> Tensor:
    """`v` [B, m] as it may be: 0 for columns that fill up, at most 0 where columns stay unmatched."""
    shown = torch.where(given.is_column, v, 0.0)
    out: Tensor = _Capped.apply(shown, given.is_capped)  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    return out


def completed(v: Tensor, given: Instances) -> FeasiblePotentials:
    """Add the best potentials of the rows: one sweep. Differentiable in `v` by `objective` only."""
    found = nearest(given.costs, v.detach(), 1)
    u = found.row_values[:, :, 0]
    return FeasiblePotentials(v, torch.where(u < torch.inf, u, 0.0), found.row_columns[:, :, 0])


def objective(potentials: FeasiblePotentials, given: Instances) -> Tensor:
    """The dual objective [B], less the row minima that were taken off the costs."""
    made: Tensor = _Objective.apply(potentials.v, potentials.u, potentials.columns, given.is_column)  # type: ignore[no-untyped-call]
    return made


def missing_share(reached: Tensor, optimum: Tensor, at_row_minima: Tensor, unit: Tensor) -> Tensor:
    """What objectives miss of the optimum, over what row minima and then column minima miss, [B].

    1: no better than those; 0: optimal. `unit` [B], rows × scale: what stands below where those miss nearly nothing.
    """
    return (optimum - reached) / ((optimum - at_row_minima).clamp(min=0.0) + _LEAST_GAP * unit)


def distance(v: Tensor, oracle: Tensor, given: Instances, scale: Tensor) -> Tensor:
    """Mean distance of the columns to optimal potentials, in the scale of the instance [B]; whatever the gauge."""
    shown = given.is_column
    difference = torch.where(shown, v - oracle, 0.0)
    count = shown.sum(dim=1, keepdim=True).clamp(min=1)
    shift = torch.where(given.is_capped, 0.0, difference.sum(dim=1, keepdim=True) / count)
    return (torch.where(shown, difference - shift, 0.0).abs() / scale).sum(dim=1) / count.squeeze(1)


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
