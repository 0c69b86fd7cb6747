"""Whether potentials prove an assignment optimal: what is measured over all pairs, as far as rounding lets it be seen.

What u + v <= C says of a pair is known to a rounding of u and v, so potentials far larger than what was assigned prove
nothing of it, and a solver that began with such has not seen the costs. How exactly the optimum must be known is
decided by the costs alone: to a share of the mean cost that was assigned.
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.assignment.costs import Columns, Costs
from graphmill.assignment.solution import Certificate, Potentials

_PRECISION: Final = 2.0**-40  # of the mean cost of a pair, about 1e-12
_ROUNDINGS: Final = 64  # of potentials, at most so many units in the last place: what the solver itself leaves
_MOST_SWEEPS: Final = 200


def prove(problem: Costs, columns: Columns, u: Potentials, v: Potentials) -> tuple[Potentials, Potentials, Certificate]:
    """The certificate, and the potentials that it is of: given ones, or smaller ones where those are too large.

    Auctions lower a potential by as much as a row's second best pair costs, such as a million that stands for "never".
    """
    certificate = certificate_of(problem, columns, u, v)
    if certificate.is_optimal or problem.of_potentials is np.int64:
        return u, v, certificate
    pairs = problem.of_pairs(columns).astype(np.float64)
    allowed = _allowed(pairs) + _allowed(pairs - problem.least_of_rows())
    smaller_u, smaller_v = _smaller(problem, columns, pairs)
    again = _measured(problem, columns, smaller_u, smaller_v, allowed)
    return (smaller_u, smaller_v, again) if again.is_optimal else (u, v, certificate)


def certificate_of(problem: Costs, columns: Columns, u: Potentials, v: Potentials) -> Certificate:
    """What the potentials prove of the assignment."""
    return _measured(problem, columns, u, v, _allowed(problem.of_pairs(columns)))


def is_exact_enough(problem: Costs, columns: Columns, rounding: float) -> bool:
    """Whether the costs of an assignment allow that potentials were rounded so far."""
    return problem.of_potentials is np.int64 or rounding <= _allowed(problem.of_pairs(columns))


def rounding_of(u: Potentials, v: Potentials) -> float:
    """Bound on the rounding error of cost - u - v: half a unit in the last place of |u| + |v| for each difference."""
    largest = float(np.abs(u).max(initial=0)) + float(np.abs(v).max(initial=0))
    return float(np.finfo(np.float64).eps) * largest


def _allowed(pairs: NDArray[Any]) -> float:
    largest = float(np.abs(pairs).max(initial=0))
    if largest == 0 or pairs.dtype == np.int64:
        return 0.0
    return _PRECISION * largest * float(np.mean(np.abs(pairs / largest)))  # a sum could overflow


def _measured(problem: Costs, columns: Columns, u: Potentials, v: Potentials, allowed: float) -> Certificate:
    violation, slack = problem.certify(u, v, columns)
    gap = total(problem.of_pairs(columns)) - (math.fsum(u.tolist()) + math.fsum(v.tolist()))
    rounding = 0.0 if problem.of_potentials is np.int64 else rounding_of(u, v)
    return Certificate(violation, slack, gap, rounding, min(allowed, _ROUNDINGS * rounding))


def total(pairs: NDArray[Any]) -> float | int:
    """The cost of pairs, rounded once; integers exactly."""
    return int(pairs.sum()) if pairs.dtype == np.int64 else math.fsum(pairs.tolist())


def _smaller(problem: Costs, columns: Columns, pairs: NDArray[np.float64]) -> tuple[Potentials, Potentials]:
    """Potentials of an assignment that are as large as what was assigned, if it is optimal: shortest distances.

    A column is as far below another as a row that gives up the one for the other pays less (Bellman and Ford). If the
    assignment is not optimal there is a cycle that pays, and distances fall for ever.
    """
    v = problem.least_of_columns(np.zeros(problem.num_rows))
    if problem.num_rows < problem.num_columns:
        v[:] = 0
    for _ in range(min(_MOST_SWEEPS, problem.num_rows + 1)):
        u = pairs - v[columns]
        found = np.minimum(v, problem.least_of_columns(u))
        is_over = float((v - found).max()) <= rounding_of(u, v)
        v = found
        if is_over:
            break
    return pairs - v[columns], v
