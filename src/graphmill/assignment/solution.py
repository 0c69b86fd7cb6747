"""What a solution of an assignment problem is, and what proves it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import InvalidInputError

Potentials = NDArray[Any]
"""float64, or int64 where costs are integers."""
Duals = tuple[Any, Any]
"""Potentials of rows [n] and of columns [m] to begin with, as arrays; either may be None."""


class InvalidCostsError(InvalidInputError):
    """No assignment problem, or one without a solution: also a `ValueError`, which SciPy raises."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far a solution is from being proven optimal, measured over all pairs in one sweep.

    Potentials u, v prove an assignment optimal if u_i + v_j <= C_ij for all pairs, with equality on those assigned
    (complementary slackness), and, where one side is longer, the potentials there are at most 0 and 0 where nothing is
    assigned. Integers are exact. For floats `rounding` bounds what the two are measured to, by the size of u and v, and
    `tolerance` is what the costs allow: 1e-12 of the mean cost of a pair, and no more than 64 roundings.
    """

    max_violation: float  # of u_i + v_j <= C_ij, and of the sign on the longer side
    max_slack: float  # |C_ij - u_i - v_j| of an assigned pair, or |potential| of what is left over
    gap: float  # cost - (sum u + sum v)
    rounding: float  # of the first two, at most
    tolerance: float

    @property
    def is_optimal(self) -> bool:
        """Whether the assignment is proven optimal, to `tolerance` for each pair."""
        return max(self.max_violation, self.max_slack) + self.rounding <= self.tolerance


@dataclass(frozen=True, slots=True)
class Solution:
    """An assignment of least cost and the potentials that prove it.

    `rows`, `cols`: int64 [min(n, m)], the pairs, by row, as `scipy.optimize.linear_sum_assignment` gives them. `u` [n]
    and `v` [m]: optimal dual potentials, float64, or int64 for integer costs. With `maximize`, those of the costs as
    given: u_i + v_j >= C_ij.
    """

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    u: Potentials
    v: Potentials
    cost: float | int
    certificate: Certificate | None  # None: not asked for
    work: Mapping[str, int]  # what the solver counted
