"""Exact answers: the optimal assignment, optimal duals in one fixed gauge, and the proof of both.

Of rows i and columns j with costs C, duals are feasible where u_i + v_j <= C_ij, and tight where equality holds; an
assignment whose pairs are all tight is optimal (complementary slackness), whatever found it.
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.assignment import InvalidCostsError, solve

Costs = NDArray[np.floating[Any]]
Duals = NDArray[np.float64]
Columns = NDArray[np.int32]

UNMATCHED: Final = -1
_EPS: Final = float(np.finfo(np.float64).eps)


class InfeasibleError(Exception):
    """No assignment takes as many pairs as there are rows, or columns if they are fewer."""


def solve_exactly(cost: Costs) -> tuple[Columns, Duals, Duals, float]:
    """Optimal column of each row [rows] (-1: none), duals u [rows] and v [cols] in the fixed gauge, and the optimum.

    `cost` [rows, cols]: finite, or +inf where a pair is infeasible. Raises `InfeasibleError`.
    """
    try:
        solution = solve(np.asarray(cost, np.float64), check=False)
    except InvalidCostsError as error:
        raise InfeasibleError(error.message) from None
    columns = np.full(len(cost), UNMATCHED, np.int32)
    columns[solution.rows] = solution.cols
    return columns, *fix_gauge(solution.u, solution.v), matched_cost(cost, columns)


def fix_gauge(u: NDArray[Any], v: NDArray[Any]) -> tuple[Duals, Duals]:
    """Fix the one constant by which the duals may be shifted against each other; returns float64.

    Square: the means of u and v are equal (their sum is the optimum, so both are fixed). Else the side with more lines
    has a line without a partner, whose dual is 0, and none above it.
    """
    u, v = np.asarray(u, np.float64), np.asarray(v, np.float64)
    if len(u) == len(v):
        shift = (v.mean() - u.mean()) / 2 if len(u) else 0.0
    else:
        shift = v.max() if len(u) < len(v) else -u.max()
    return u + shift, v - shift


def matched_cost(cost: Costs, columns: Columns) -> float:
    """The sum over the pairs of an assignment, rounded once."""
    rows = np.flatnonzero(columns != UNMATCHED)
    return math.fsum(cost[rows, columns[rows]].tolist())


def not_an_assignment(shape: tuple[int, int], columns: NDArray[np.integer[Any]]) -> str | None:
    """Why `columns` [rows] pairs not as many lines as can be, each once; None: it does."""
    taken = columns[columns != UNMATCHED]
    if len(columns) != shape[0]:
        return f"it has {len(columns)} rows of {shape[0]}"
    if taken.size and (taken.min() < 0 or taken.max() >= shape[1]):
        return f"column {int(taken[(taken < 0) | (taken >= shape[1])][0])} is none of the {shape[1]}"
    if len(np.unique(taken)) < len(taken):
        values, counts = np.unique(taken, return_counts=True)
        return f"column {int(values[counts > 1][0])} is taken {int(counts.max())} times"
    if len(taken) < min(shape):
        return f"{len(taken)} pairs, and there can be {min(shape)}"
    return None


def tolerance(cost: Costs, columns: Columns, u: Duals, v: Duals) -> float:
    """How far rounding may take duals from the truth: a shortest path adds up to rows + cols costs of this size."""
    rows = np.flatnonzero(columns != UNMATCHED)
    largest = max((float(np.abs(each).max()) for each in (u, v, cost[rows, columns[rows]]) if len(each)), default=0.0)
    return 4 * (len(u) + len(v)) * _EPS * largest


def breach(cost: Costs, columns: Columns, u: Duals, v: Duals, allowed: float | None = None) -> str | None:
    """Why duals do not prove that the assignment is optimal, with row, column and amount; None: they do.

    `allowed`: what is overlooked in each pair; None: what rounding may do.
    """
    allowed = tolerance(cost, columns, u, v) if allowed is None else allowed
    for name, duals in (("u", u), ("v", v)):
        if not np.isfinite(duals).all():
            line = int(np.flatnonzero(~np.isfinite(duals))[0])
            return f"{name}[{line}] is {duals[line]}"
    worst, at = 0.0, (0, 0)
    for row in range(len(u)):  # a row at a time: no second matrix
        slack = cost[row] - (u[row] + v)
        column = int(slack.argmin()) if len(slack) else 0
        if len(slack) and slack[column] < worst:
            worst, at = float(slack[column]), (row, column)
    if worst < -allowed:
        return f"u[{at[0]}] + v[{at[1]}] exceeds C[{at[0]},{at[1]}] by {-worst:.3g}"
    rows = np.flatnonzero(columns != UNMATCHED)
    matched = cost[rows, columns[rows]]
    if not np.isfinite(matched).all():
        row = int(rows[~np.isfinite(matched)][0])
        return f"C[{row},{columns[row]}] is matched, and it is {cost[row, columns[row]]}"
    loose = matched - u[rows] - v[columns[rows]]
    if loose.size and loose.max() > allowed:
        row = int(rows[loose.argmax()])
        return f"u[{row}] + v[{columns[row]}] is {loose.max():.3g} below C[{row},{columns[row]}], which is matched"
    return _unpaired(u, v, columns, allowed)


def _unpaired(u: Duals, v: Duals, columns: Columns, allowed: float) -> str | None:
    """The longer side's duals are at most 0, and 0 where there is no partner."""
    if len(u) == len(v):
        return None
    name, duals = ("v", v) if len(u) < len(v) else ("u", u)
    is_free = np.ones(len(v), bool) if name == "v" else columns == UNMATCHED
    if name == "v":
        is_free[columns] = False
    wrong = np.where(is_free, np.abs(duals), np.maximum(duals, 0))
    if wrong.max() > allowed:
        at = int(wrong.argmax())
        return f"{name}[{at}] is {duals[at]:.3g}, and it {'has no partner' if is_free[at] else 'may not exceed 0'}"
    return None


def shortest_path_duals(cost: Costs, columns: Columns) -> tuple[Duals, Duals]:
    """Duals of an optimal assignment, in the fixed gauge, whose rounding is that of the costs on shortest paths alone.

    A solver that has met costs of 1e6 on its way may leave duals that are off by their rounding. For rows <= cols these
    are the largest v <= 0: v_j <= C_ij - C_i,columns(i) + v_columns(i) for every row i, shortest paths (Bellman-Ford)
    over columns, of which there is no negative cycle. A pass sweeps the rows whose column has changed since.
    """
    if cost.shape[0] > cost.shape[1]:
        row_of = np.empty(cost.shape[1], np.int32)
        rows = np.flatnonzero(columns != UNMATCHED)
        row_of[columns[rows]] = rows
        v, u = shortest_path_duals(np.ascontiguousarray(cost.T), row_of)
        return u, v
    rows = np.arange(len(columns))
    matched = cost[rows, columns].astype(np.float64)
    tiny = 4 * _EPS * float(np.abs(matched).max())
    v = np.zeros(cost.shape[1])
    changed = rows
    for _ in range(2 * len(rows) + 2):
        best = v.copy()
        for row in changed:
            np.minimum(best, cost[row] + (v[columns[row]] - matched[row]), out=best)
        is_less = best < v - tiny  # rounding can make a cycle of length 0 a negative one
        if not is_less.any():
            break
        v = np.where(is_less, best, v)
        changed = rows[is_less[columns]]
    if len(columns) < len(v):
        is_free = np.ones(len(v), bool)
        is_free[columns] = False
        v[is_free] = 0.0
    return fix_gauge(matched - v[columns], v)
