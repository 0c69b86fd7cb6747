"""What a model sees of a matrix of costs, in few dense sweeps and without sorting it.

A batch holds x = cost less the minimum of its row, so nothing here depends on constants that are added to rows; lengths
are divided by the `scale` of their instance, so nothing depends on the unit. Sums and minima are taken over rows and
columns, so the order of both does not matter. Absent pairs, and what instances are padded with, are infinite.

`nearest` and `soften` are the two sweeps. On the CPU they are native (`native/assignment_features.h`); the definitions
here, in plain PyTorch, run elsewhere.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from graphmill import _native
from graphmill.tasks.assignment.page import FIRST_FEATURES, ROUND_FEATURES

_TEMPERATURES: Final = (0.25, 1.0)  # of what columns are wanted by, in the scale of the instance
_FAR: Final = 20.0  # the largest feature: asinh of 2.4e8
_FARTHEST: Final = 1e3  # the largest length by which a potential is corrected, in the scale of the instance
_NEVER: Final = 1e30  # of a pair that there is not, in place of infinity
_COLD: Final = 0.25  # temperature of the last soft sweep, in the scale of the instance
_RELAXED: Final = 1.5  # how far soft sweeps but the last go, over what they find: successive over-relaxation
_LEAST_RATIO: Final = 1.5  # between the temperatures of two soft sweeps


@dataclass(frozen=True, slots=True)
class Instances:
    """Matrices of one shape, smaller ones padded with infinity: [B, n, m]."""

    costs: Tensor  # float32 [B, n, m], less the minimum of the row
    num_rows: Tensor  # float32 [B]
    num_columns: Tensor  # float32 [B]

    @property
    def is_row(self) -> Tensor:
        """Which rows are none that were added to fill up [B, n]."""
        return torch.arange(self.costs.shape[1], device=self.costs.device) < self.num_rows.unsqueeze(1)

    @property
    def is_column(self) -> Tensor:
        """Which columns were not added to fill up [B, m]."""
        return torch.arange(self.costs.shape[2], device=self.costs.device) < self.num_columns.unsqueeze(1)

    @property
    def is_capped(self) -> Tensor:
        """Where potentials of columns must not be positive [B, 1]: some columns stay unmatched."""
        return (self.num_rows < self.num_columns).unsqueeze(1)


@dataclass(frozen=True, slots=True)
class Nearest:
    """The k smallest x − v of each row and, less the row's smallest, of each column; infinite where there is none."""

    row_values: Tensor  # [B, n, k], ascending
    row_columns: Tensor  # int64 [B, n, k]; -1 where there is none
    column_values: Tensor  # [B, m, k], ascending


def nearest(costs: Tensor, v: Tensor, k: int) -> Nearest:
    """One sweep over `costs` [B, n, m] at the potentials `v` [B, m]; no gradient."""
    if costs.device.type == "cpu":
        batch, rows, columns = costs.shape
        values, found = costs.new_empty(batch, rows, k), costs.new_empty(batch, rows, k, dtype=torch.int32)
        of_columns = costs.new_empty(batch, columns, k)
        threads = torch.get_num_threads()
        _native.nearest_costs(costs, v.detach().contiguous(), values, found, of_columns, num_threads=threads)
        return Nearest(values, found.long(), of_columns)
    return nearest_as_defined(costs, v, k)


@torch.no_grad()
def nearest_as_defined(costs: Tensor, v: Tensor, k: int) -> Nearest:
    """`nearest` in plain PyTorch."""
    batch, rows, columns = costs.shape
    y = costs - v.unsqueeze(1)
    wide, tall = min(k, columns), min(k, rows)
    values, found = y.topk(wide, dim=2, largest=False)
    found = torch.where(values < torch.inf, found, -1)
    u = values[:, :, :1]
    slack = torch.where(u < torch.inf, y - u, torch.inf)
    of_columns = slack.topk(tall, dim=1, largest=False).values.transpose(1, 2)
    return Nearest(
        torch.cat([values, values.new_full((batch, rows, k - wide), torch.inf)], dim=2),
        torch.cat([found, found.new_full((batch, rows, k - wide), -1)], dim=2),
        torch.cat([of_columns, values.new_full((batch, columns, k - tall), torch.inf)], dim=2),
    )


def soften(costs: Tensor, u: Tensor, v: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """One sweep: u ← u − ε log Σ_j e_ij [B, n], and Σ_i e_ij / Σ_j e_ij [B, m]; e_ij = exp(−(x_ij − v_j − u_i) / ε).

    `u` [B, n] (infinite: a row without pairs, left as it is), `v` [B, m], `epsilon` [B]. No gradient.
    """
    if costs.device.type == "cpu":
        made, sums = u.clone(), torch.empty_like(v)
        threads = torch.get_num_threads()
        _native.soften_costs(costs, v.contiguous(), epsilon.contiguous(), made, sums, num_threads=threads)
        return made, sums
    return soften_as_defined(costs, u, v, epsilon)


@torch.no_grad()
def soften_as_defined(costs: Tensor, u: Tensor, v: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """`soften` in plain PyTorch."""
    cold, known = epsilon.view(-1, 1, 1), u < torch.inf
    offset = torch.where(known, u, 0.0)
    e = torch.exp((offset.unsqueeze(2) + v.unsqueeze(1) - costs) / cold) * known.unsqueeze(2)
    totals = e.sum(dim=2)
    is_near = totals > 0
    shares = torch.where(is_near, 1 / totals.clamp(min=1e-30), 0.0)
    sums = (e * shares.unsqueeze(2)).sum(dim=1)
    return torch.where(is_near, u - cold.squeeze(2) * totals.clamp(min=1e-30).log(), u), sums


@dataclass(frozen=True, slots=True)
class First:
    """What is known of an instance before anything learnt looks at it."""

    scale: Tensor  # [B, 1] > 0, in the unit of the costs
    v: Tensor  # [B, m]: potentials of the columns that corrections begin with
    reduced_v: Tensor  # [B, m]: minima of the columns, after those of the rows; at most 0 where it must be
    columns: Tensor  # [B, m, FIRST_FEATURES + topk + soft_sweeps]


@torch.no_grad()
def first_features(given: Instances, *, topk: int, soft_sweeps: int) -> First:
    """Scale, potentials to correct, and features of the columns, in 1 + `soft_sweeps` sweeps."""
    costs, is_column = given.costs, given.is_column
    found = nearest(costs, torch.zeros_like(costs[:, 0]), topk)
    scale = _scale(found, given)
    reduced = torch.where(is_column, _finite(found.column_values[:, :, 0]), 0.0)
    reduced = torch.where(given.is_capped, reduced.clamp(max=0.0), reduced)
    u, v, drifts = found.row_values[:, :, 0], reduced, list[Tensor]()
    for number, temperature in enumerate(_temperatures(given, soft_sweeps)):
        epsilon = temperature * scale.squeeze(1)
        u, sums = soften(costs, u, v, epsilon)
        drift = torch.where(sums > 0, -sums.clamp(min=1e-30).log(), 0.0)
        softened = v + (1.0 if number == soft_sweeps - 1 else _RELAXED) * epsilon.unsqueeze(1) * drift
        softened = torch.where(given.is_capped, softened.clamp(max=0.0), softened)
        v = torch.where(is_column, softened, 0.0)
        drifts.append(drift.clamp(-_FAR, _FAR))
    if soft_sweeps:  # potentials of a square instance are known up to a constant
        v = torch.where(is_column & ~given.is_capped, v + _mean(reduced - v, is_column), v)
    size = torch.log(given.num_columns).unsqueeze(1) / 8
    shape = torch.log(given.num_columns / given.num_rows).unsqueeze(1)
    columns = torch.stack(
        [
            size.expand_as(v),
            shape.expand_as(v),
            _length(v - reduced, scale),
            *_length(found.column_values, scale.unsqueeze(2)).unbind(2),
            *drifts,
        ],
        dim=2,
    )
    assert columns.shape[2] == FIRST_FEATURES + topk + soft_sweeps
    return First(scale, v, reduced, torch.where(is_column.unsqueeze(2), columns, 0.0))


@torch.no_grad()
def round_features(listed: Nearest, scale: Tensor, is_column: Tensor) -> tuple[Tensor, Tensor]:
    """Features of the columns [B, m, ROUND_FEATURES + topk] at the potentials of a sweep, and lengths [B, m, 2].

    How many rows want a column, by a softmax over each row's k smallest at two temperatures; how much worse their next
    choice is; its k smallest slacks. The lengths, in the scale of the instance: its least slack, and that margin.
    """
    unit, is_pair = scale.unsqueeze(2), listed.row_columns >= 0
    gaps = torch.where(is_pair, listed.row_values - listed.row_values[:, :, :1], _NEVER) / unit  # 0 of the smallest
    places, size = listed.row_columns.clamp(min=0).flatten(1), is_column.shape[1]
    near = torch.exp(-gaps / _TEMPERATURES[0]) * is_pair
    shares = [near, torch.exp(-gaps / _TEMPERATURES[1]) * is_pair]
    shares = [each / each.sum(dim=2, keepdim=True).clamp(min=1.0) for each in shares]  # a softmax: the smallest is 1
    wanted = [_summed(each, places, size) for each in shares]
    margin = gaps[:, :, 1:2].clamp(max=_FARTHEST)
    margins = _summed(shares[0] * margin, places, size) / wanted[0].clamp(min=1e-6)
    slack = listed.column_values / unit
    features = torch.stack(
        [*(torch.log1p(each) for each in wanted), torch.asinh(margins), *_length(slack, 1.0).unbind(2)], dim=2
    )
    assert features.shape[2] == ROUND_FEATURES + listed.column_values.shape[2]
    lengths = torch.stack([_finite(slack[:, :, 0]).clamp(max=_FARTHEST), margins], dim=2)
    shown = is_column.unsqueeze(2)
    return torch.where(shown, features, 0.0), torch.where(shown, lengths, 0.0)


def _temperatures(given: Instances, count: int) -> list[Tensor]:
    """Temperatures of the soft sweeps, hottest first, in the scale of the instance: [B] each.

    The hottest is about the range of uniform costs, of which the scale is some smallest ones.
    """
    ratio = (given.num_columns / 8 / _COLD).clamp(min=1.0) ** (1 / max(1, count - 1))
    ratio = ratio.clamp(min=_LEAST_RATIO)
    return [_COLD * ratio ** (count - 1 - number) for number in range(count)]


def _scale(listed: Nearest, given: Instances) -> Tensor:
    """The median gap between a row's smallest and its k-th smallest cost, and the median least of a column [B, 1].

    Their means where the medians are 0; 1 where those are 0, too.
    """
    gaps = (
        listed.row_values.masked_fill(listed.row_values == torch.inf, -torch.inf).amax(dim=2)
        - listed.row_values[:, :, 0]
    )
    least = listed.column_values[:, :, 0]
    parts = [
        torch.where(given.is_row & gaps.isfinite(), gaps, torch.nan),
        torch.where(given.is_column & least.isfinite(), least, torch.nan),
    ]
    median = sum(part.nanmedian(dim=1).values.nan_to_num(0.0) for part in parts)
    mean = sum(part.nanmean(dim=1).nan_to_num(0.0) for part in parts)
    assert isinstance(median, Tensor)
    assert isinstance(mean, Tensor)
    found_scale = torch.where(median > 0, median, mean)
    return torch.where(found_scale > 0, found_scale, 1.0).unsqueeze(1)


def _summed(values: Tensor, places: Tensor, columns: int) -> Tensor:
    """`values` [B, n, k] added up by column → [B, m]."""
    return values.new_zeros(len(values), columns).scatter_add_(1, places, values.flatten(1))


def _mean(values: Tensor, shown: Tensor) -> Tensor:
    return torch.where(shown, values, 0.0).sum(dim=1, keepdim=True) / shown.sum(dim=1, keepdim=True).clamp(min=1)


def _length(values: Tensor, scale: Tensor | float) -> Tensor:
    """A length as a feature: linear near 0, logarithmic far away."""
    return torch.asinh(values / scale).clamp(-_FAR, _FAR)


def _finite(values: Tensor) -> Tensor:
    return torch.where(values < torch.inf, values, 0.0)
