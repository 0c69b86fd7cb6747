"""What potentials are worth, exactly: in float64, on the costs as they are stored, an instance at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.assignment.data.oracle import fix_gauge

Vector = NDArray[np.float64]
_PAIRS_AT_ONCE: Final = 2**18
_ROUNDINGS: Final = 4  # of a cost and two potentials that are added up


@dataclass(frozen=True, slots=True)
class JudgedPotentials:
    """Feasible potentials of an instance, in the one gauge, and what they are worth."""

    u: Vector  # [rows]
    v: Vector  # [columns]
    gap: float  # (optimum − dual objective) ÷ |optimum|; see `relative_gap`
    u_mae: float  # mean distance to the oracle's u
    is_feasible: bool

    @property
    def objective(self) -> float:
        """The dual objective."""
        return float(self.u.sum() + self.v.sum())


def row_potentials(costs: NDArray[np.floating], v: Vector) -> Vector:
    """min over columns of cost − v, for each row; 0 for a row without any pair."""
    u = np.concatenate([np.min(block - v, axis=1, initial=np.inf) for block in _blocks(costs)] or [np.empty(0)])
    return np.where(np.isfinite(u), u, 0.0)


def column_potentials(costs: NDArray[np.floating], u: Vector) -> Vector:
    """min over rows of cost − u, for each column, at most 0 where columns stay unmatched; 0 without any pair."""
    v, begin = np.full(costs.shape[1], np.inf), 0
    for block in _blocks(costs):
        np.minimum(v, np.min(block - u[begin : begin + len(block), None], axis=0), out=v)
        begin += len(block)
    v = np.where(np.isfinite(v), v, 0.0)
    return np.minimum(v, 0.0) if costs.shape[0] < costs.shape[1] else v


def judged(costs: NDArray[np.floating], u: Vector, v: Vector, optimum: float, oracle_u: Vector) -> JudgedPotentials:
    """What potentials are worth; rows ≤ columns."""
    rows, columns = costs.shape
    objective = float(u.sum() + v.sum())
    fixed_u, fixed_v = fix_gauge(u, v) if rows == columns else (u, v)
    return JudgedPotentials(
        fixed_u,
        fixed_v,
        relative_gap(optimum, objective, costs),
        float(np.abs(fixed_u - oracle_u).mean()) if rows else 0.0,
        is_feasible(costs, fixed_u, fixed_v),
    )


def relative_gap(optimum: float, objective: float, costs: NDArray[np.floating]) -> float:
    """(optimum − objective) ÷ |optimum|; of an optimum of 0 the difference by row, over the mean cost that is not 0.

    Differences that rounding explains are none.
    """
    difference, largest, total, count = optimum - objective, 0.0, 0.0, 0
    for block in _blocks(costs):
        sizes = np.abs(block)
        known = np.where(np.isfinite(sizes), sizes, 0.0)
        largest = max(largest, float(known.max(initial=0.0)))
        total, count = total + float(known.sum()), count + int(np.count_nonzero(known))
    if abs(difference) <= _ROUNDINGS * float(np.finfo(np.float64).eps) * largest * max(1, len(costs)):
        return 0.0
    if optimum != 0:
        return difference / abs(optimum)
    return difference / len(costs) / (total / count) if count else difference


def is_feasible(costs: NDArray[np.floating], u: Vector, v: Vector) -> bool:
    """Whether no u + v exceeds its cost by more than rounding explains; v ≤ 0 where columns stay unmatched.

    Potentials may be sums along a path through all rows and columns.
    """
    eps, begin = float(np.finfo(np.float64).eps), 0
    of_path = sum(costs.shape) * eps * float(np.abs(u).max(initial=0.0) + np.abs(v).max(initial=0.0))
    for block in _blocks(costs):
        excess = u[begin : begin + len(block), None] + v - block
        if np.any(excess > of_path + _ROUNDINGS * eps * np.abs(np.where(np.isfinite(block), block, 0.0))):
            return False
        begin += len(block)
    return bool(costs.shape[0] == costs.shape[1] or np.all(v <= 0))


def _blocks(costs: NDArray[np.floating]) -> Iterator[NDArray[np.floating]]:
    """Rows of a matrix, a few at a time, so that they stay in a cache."""
    at_once = max(1, _PAIRS_AT_ONCE // max(1, costs.shape[1]))
    for begin in range(0, len(costs), at_once):
        yield costs[begin : begin + at_once]
