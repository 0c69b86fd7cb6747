"""The k best assignments, in the order of their costs (Murty 1968)."""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.assignment.changes import again
from graphmill.assignment.costs import Columns, Costs, costs_of
from graphmill.assignment.proof import total
from graphmill.assignment.solution import InvalidCostsError, Potentials
from graphmill.assignment.solver import COLD, begun, empty
from graphmill.base.arguments import whole_number

_LARGEST_INTEGER: Final = 2**53  # that float64 holds exactly


@dataclass(frozen=True, slots=True)
class RankedAssignment:
    """One assignment: its pairs by row, int64 [min(n, m)], and its cost."""

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    cost: float | int


def solve_best(costs: Any, count: int, *, maximize: bool = False) -> list[RankedAssignment]:  # noqa: ANN401
    """The assignments of least total cost: the best, the second best, and so on.

    After Murty (1968), An algorithm for ranking all the assignments in order of increasing cost: the assignments that
    differ from one that was found are parted by the first row in which they do, and each part has its best from one
    shortest path, begun with the potentials of what was found. That is min(n, m) paths for each assignment.

    Args:
        costs: the costs [n, m], dense, as `solve` takes them.
        count: assignments, at most.
        maximize: give those of the greatest totals instead.

    Returns:
        As many as there are, up to `count`, by cost; of equal costs in an order that is the same each time.

    Raises:
        InvalidCostsError: as of `solve`; costs that are sparse, or integers whose sums are beyond 2^53.
    """
    problem, count = costs_of(costs, maximize=maximize), whole_number("count", count)
    if problem.indptr is not None:
        raise InvalidCostsError("the costs are sparse", fix="give a dense matrix, with inf for pairs not allowed")
    if problem.num_rows == 0:
        none = np.empty(0, np.int64)
        return [RankedAssignment(none, none.copy(), 0 if problem.of_potentials is np.int64 else 0.0)]
    if problem.of_potentials is np.int64 and int(np.abs(problem.values).max()) * problem.num_rows >= _LARGEST_INTEGER:
        raise InvalidCostsError("sums of the integer costs are beyond 2^53", fix="give smaller integers")
    found = []
    for columns in _in_order(_dense(problem.values.astype(np.float64))):
        found.append(_assignment(problem, columns))
        if len(found) == count:
            break
    return found


@dataclass(order=True)
class _Part:
    """Assignments that begin with the same pairs, and lack some; and the best of them."""

    cost: float
    number: int  # of equal costs the earlier one is first
    settled: Columns = field(compare=False)  # of the first rows, which are no longer in the costs
    open: NDArray[np.int64] = field(compare=False)  # columns of the costs, by their numbers in the problem
    costs: NDArray[np.float64] = field(compare=False)  # of the other rows and columns; inf: not allowed in this part
    pairs: Columns = field(compare=False)  # the best, as places in `open`
    u: Potentials = field(compare=False)
    v: Potentials = field(compare=False)

    @property
    def columns(self) -> Columns:
        """The best, as columns of the problem."""
        return np.concatenate([self.settled, self.open[self.pairs]])


def _in_order(problem: Costs) -> Iterator[Columns]:
    """The column of each row, of all assignments by cost."""
    pairs, u, v, _ = begun(problem, COLD, *empty(problem))
    everything = np.arange(problem.num_columns)
    parts = [_Part(0.0, 0, np.empty(0, np.int64), everything, problem.values, pairs, u, v)]
    number = 0
    while parts:
        best = heapq.heappop(parts)
        yield best.columns
        for row in range(len(best.pairs)):
            number += 1
            other = _that_differs(problem, best, row, number)
            if other is not None:
                heapq.heappush(parts, other)


def _that_differs(problem: Costs, best: _Part, row: int, number: int) -> _Part | None:
    """The best of the assignments that are as `best` in the rows before, and differ in this one; None: none."""
    stays = np.ones(len(best.open), bool)
    stays[best.pairs[:row]] = False
    place = np.cumsum(stays) - 1  # of each column among those that stay
    costs = np.compress(stays, best.costs[row:], axis=1)
    pairs = place[best.pairs[row:]]
    costs[0, pairs[0]] = np.inf
    fixed = np.concatenate([best.settled, best.open[best.pairs[:row]]])
    u, v = best.u[row:].copy(), best.v[stays]
    first, none = np.zeros(1, np.int64), np.empty(0, np.int64)
    try:
        pairs, u, v, _ = again(_dense(costs), pairs, u, v, first, none)
    except InvalidCostsError:  # no assignment is left
        return None
    open_columns = best.open[stays]
    columns = np.concatenate([fixed, open_columns[pairs]])
    cost = math.fsum(problem.of_pairs(columns).tolist())
    return _Part(cost, number, fixed, open_columns, costs, pairs, u, v)


def _dense(costs: NDArray[np.float64]) -> Costs:
    num_rows, num_columns = costs.shape
    return Costs(num_rows, num_columns, costs, None, None, is_transposed=False, is_negated=False)


def _assignment(problem: Costs, columns: Columns) -> RankedAssignment:
    cost = total(problem.of_pairs(columns))
    rows = np.arange(problem.num_rows, dtype=np.int64)
    if problem.is_transposed:
        order = np.argsort(columns)
        rows, columns = columns[order], rows[order]
    return RankedAssignment(rows, columns, -cost if problem.is_negated else cost)
