"""Solve a problem again after some of its rows and columns changed: all other pairs stay until a path needs them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.assignment.costs import Columns, Costs, costs_of
from graphmill.assignment.solution import InvalidCostsError, Potentials, Solution
from graphmill.assignment.solver import FROM_COLUMNS, FROM_PAIRS, begun, nothing, refused, solution_of
from graphmill.base.arguments import flag

NO_COLUMN = -1


def solve_changed(
    costs: Any,  # noqa: ANN401  # whatever numpy makes an array of
    before: Solution,
    *,
    rows: Sequence[int] = (),
    columns: Sequence[int] = (),
    maximize: bool = False,
    check: bool = True,
) -> Solution:
    """An assignment of least total cost where all but some rows and columns are as they were solved before.

    Only rows that changed, or whose column did, look for a column: one shortest path each, as in the dynamic Hungarian
    algorithm (Mills-Tettey, Stentz and Dias 2007). Costs with more rows than columns are copied, which takes longer
    than a path: give the longer side as columns.

    Args:
        costs: all costs [n, m], the changed ones among them, as `solve` takes them.
        before: the solution of the costs as they were, of the same shape, with the same `maximize`.
        rows: numbers of the rows that changed.
        columns: numbers of the columns that changed.
        maximize: find the greatest total instead.
        check: measure the certificate, one sweep over all costs. Where it proves nothing, since costs changed that were
            not named, the problem is solved whole. Without it, what was not named is believed to be as it was.

    Returns:
        The solution, as `solve` gives it.

    Raises:
        InvalidCostsError: as of `solve`; `before` is of another shape; a row or column that the costs do not have.
    """
    problem, check = costs_of(costs, maximize=maximize), flag("check", check)
    shape = (problem.num_rows, problem.num_columns)
    given = shape[::-1] if problem.is_transposed else shape
    if not isinstance(before, Solution) or (len(before.u), len(before.v)) != given:
        told = f"of {len(before.u)} x {len(before.v)} costs" if isinstance(before, Solution) else f"{before!r:.40}"
        raise InvalidCostsError(
            f"the costs are {given[0]} x {given[1]}, and before is {told}",
            fix="give the solution of costs of that shape, or call solve",
        )
    changed = _numbers("rows", rows, given[0]), _numbers("columns", columns, given[1])
    if problem.num_rows == 0:
        return nothing(problem, check=check)
    changed_rows, changed_columns = changed[::-1] if problem.is_transposed else changed
    pairs, u, v = _as_solved(problem, before)
    columns_of, u, v, work = again(problem, pairs, u, v, changed_rows, changed_columns)
    found = solution_of(problem, columns_of, u, v, work, check=check)
    if found.certificate is None or found.certificate.is_optimal:
        return found
    return solution_of(problem, *begun(problem, FROM_COLUMNS, u, v), check=check)


def again(
    problem: Costs,
    pairs: Columns,
    u: Potentials,
    v: Potentials,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
) -> tuple[Columns, Potentials, Potentials, dict[str, int]]:
    """What `begun` gives, from optimal pairs [num_rows] and potentials, which are overwritten, but for what changed."""
    pairs[rows] = NO_COLUMN
    pairs[~_are_allowed(problem, pairs)] = NO_COLUMN
    if len(columns):
        has_changed = np.zeros(problem.num_columns + 1, bool)  # the last for rows that have no column
        has_changed[columns] = True
        pairs[has_changed[pairs]] = NO_COLUMN
        v[columns] = _highest(problem, np.flatnonzero(pairs != NO_COLUMN), u, columns)
    _refuse_odd_changes(problem, rows, columns)
    return begun(problem, FROM_PAIRS, u, v, pairs)


def _as_solved(problem: Costs, before: Solution) -> tuple[Columns, Potentials, Potentials]:
    """Pairs and potentials of a solution, as the problem has rows, columns and signs."""
    sign = -1 if problem.is_negated else 1
    sides = ((before.rows, sign * before.u), (before.cols, sign * before.v))
    (rows, u), (columns, v) = sides[::-1] if problem.is_transposed else sides
    pairs = np.full(problem.num_rows, NO_COLUMN, np.int64)
    pairs[rows] = columns
    return pairs, u.astype(problem.of_potentials), v.astype(problem.of_potentials)


def _are_allowed(problem: Costs, pairs: Columns) -> NDArray[np.bool_]:
    """Which rows have a pair that is allowed: one that is not has changed, named or not."""
    has_one = pairs != NO_COLUMN
    if problem.indptr is None:
        return np.asarray(has_one & (problem.values[np.arange(problem.num_rows), pairs] < np.inf))
    of_row = np.repeat(np.arange(problem.num_rows), np.diff(problem.indptr))
    found = np.zeros(problem.num_rows, bool)
    found[of_row[problem.indices == pairs[of_row]]] = True
    return np.asarray(has_one & found)


def _highest(problem: Costs, rows: NDArray[np.int64], u: Potentials, columns: NDArray[np.int64]) -> Potentials:
    """The largest potentials of columns at which no pair of these rows costs less than its potentials."""
    if problem.indptr is None:
        of_rows = problem.values[np.ix_(rows, columns)] - u[rows, None]
        least = of_rows.min(axis=0) if len(rows) else np.zeros(len(columns))
    else:
        everywhere = np.full(problem.num_rows, -np.inf)  # of other rows: they bound nothing
        everywhere[rows] = u[rows]
        least = problem.least_of_columns(everywhere)[columns]
    least = np.where(np.isfinite(least), least, 0)
    return np.minimum(least, 0) if problem.num_rows < problem.num_columns else least


def _refuse_odd_changes(problem: Costs, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> None:
    if problem.indptr is not None or problem.values.dtype == np.int64:
        return
    places = (
        (np.repeat(rows, problem.num_columns), np.tile(np.arange(problem.num_columns), len(rows))),
        (np.tile(np.arange(problem.num_rows), len(columns)), np.repeat(columns, problem.num_rows)),
    )
    for of_row, of_column in places:
        costs = problem.values[of_row, of_column]
        is_odd = np.isnan(costs) | (costs == -np.inf)
        if is_odd.any():
            at = int(is_odd.argmax())
            raise refused(problem, int(of_row[at]), int(of_column[at]), float(costs[at]))


def _numbers(name: str, given: Any, count: int) -> NDArray[np.int64]:  # noqa: ANN401  # whatever a caller gives
    try:
        numbers = np.atleast_1d(np.asarray(given if isinstance(given, np.ndarray) else list(given)))
    except (TypeError, ValueError):
        numbers = np.empty(0, object)
    if numbers.size == 0 and numbers.dtype != object:
        return np.empty(0, np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= count:
        raise InvalidCostsError(f"{name} are {given!r:.40}", fix=f"give numbers from 0 to {count - 1}, as a list")
    return np.unique(numbers.astype(np.int64))
