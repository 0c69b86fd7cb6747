"""Solve assignment problems: one, many over threads, or frames that follow each other."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.assignment.costs import Columns, Costs, costs_of
from graphmill.assignment.proof import is_exact_enough, prove, rounding_of, total
from graphmill.assignment.solution import Certificate, Duals, InvalidCostsError, Potentials, Solution
from graphmill.base.arguments import flag, items_of, whole_number

COLD, FROM_ROWS, FROM_COLUMNS, FROM_PAIRS = 0, 1, 2, 3  # native/assignment.h, AssignmentStart
_CANDIDATES: Final = 16
_LANES: Final = 8  # that a sweep takes at once
_SAMPLED_ROWS: Final = 32
_MOST_SPANS: Final = 4.0
_LARGEST: Final = 1e300  # of floats: sums of some millions of such are below the largest there is


def solve(costs: Any, duals: Duals | None = None, *, maximize: bool = False, check: bool = True) -> Solution:  # noqa: ANN401
    """An assignment of least total cost, exactly, and optimal dual potentials.

    The solver is described in native/assignment.h: column reduction, an auction and shortest augmenting paths on a few
    candidates of each row (Jonker and Volgenant 1987; Bertsekas 1988; sparse as Volgenant 1996), which are exact since
    a row looks further when its candidates do not suffice. One thread; the GIL is released.

    Args:
        costs: real numbers [n, m], float32, float64 or integers; every item of the shorter side gets one of the other.
            inf marks a pair that is not allowed; in a scipy.sparse matrix those that are missing are not.
        duals: potentials (u [n], v [m]) to begin with, in the unit of the costs, any at all; one of them may be None.
            Good ones save work, and none change the cost.
        maximize: find the greatest total instead.
        check: measure the certificate, one more sweep over the costs.

    Returns:
        The assignment, its cost, the potentials, and the certificate if it was measured.

    Raises:
        InvalidCostsError: a ValueError: NaN or -inf, no assignment without infeasible pairs, potentials that are NaN
            or of another length.
    """
    problem, check = costs_of(costs, maximize=maximize), flag("check", check)
    if problem.num_rows == 0:
        return nothing(problem, check=check)
    columns, u, v, work = begun(problem, *_start(problem, duals))
    return solution_of(problem, columns, u, v, work, check=check)


def solve_many(
    costs: Iterable[Any], *, maximize: bool = False, check: bool = True, threads: int | None = None
) -> list[Solution]:
    """Solutions of many dense problems, one on each thread at a time.

    Args:
        costs: the costs of each problem, as `solve` takes them.
        maximize: find the greatest totals instead.
        check: measure the certificates.
        threads: threads; None: as many as there are processors.

    Returns:
        A solution for each problem, in their order.

    Raises:
        InvalidCostsError: as of `solve`, with the number of the problem, counted from 0.
    """
    problems: list[Costs] = []
    for number, given in enumerate(items_of("costs", costs)):
        problems.append(_named(number, given, maximize=maximize))
    potentials = [empty(problem) for problem in problems]
    columns = [np.empty(problem.num_rows, np.int64) for problem in problems]
    kinds = sorted({str(problem.values.dtype) for problem in problems})
    for kind in kinds:
        chosen = [q for q, problem in enumerate(problems) if str(problem.values.dtype) == kind and problem.num_rows]
        _solve_batch(problems, potentials, columns, chosen, threads)
    return [
        solution_of(problem, mine, u, v, {}, check=check) if problem.num_rows else nothing(problem, check=check)
        for problem, (u, v), mine in zip(problems, potentials, columns, strict=True)
    ]


def solve_sequence(
    frames: Iterable[Any], row_ids: Iterable[Sequence[int]] | None = None, *, check: bool = False
) -> list[Solution]:
    """Solutions of problems that follow each other, begun with the potentials of the one before where that pays.

    Rows that are new begin with 0. Frames with more rows than columns are begun cold.

    Args:
        frames: the costs of each problem, as `solve` takes them.
        row_ids: what stays the same from frame to frame, such as numbers of tracks: one sequence [n] for each frame;
            None: row i of a frame is row i of the next.
        check: measure the certificates.

    Returns:
        A solution for each frame, in their order.

    Raises:
        InvalidCostsError: as of `solve`, or a frame whose ids are not as many as its rows.
    """
    ids = None if row_ids is None else items_of("row_ids", row_ids)
    solutions: list[Solution] = []
    known = _Known()
    for number, frame in enumerate(items_of("frames", frames)):
        problem = costs_of(frame)
        names = None if ids is None else _names(next(ids, ()))
        num_rows = problem.num_columns if problem.is_transposed else problem.num_rows
        if names is not None and len(names) != num_rows:
            raise InvalidCostsError(
                f"frame {number} has {num_rows} rows and {len(names)} row_ids", fix="give one id for each row"
            )
        u = known.potentials(problem, names)
        solution = _solve_frame(problem, u, check=check)
        known.remember(solution, names, was_warm=u is not None)
        solutions.append(solution)
    return solutions


def _names(given: Any) -> list[int]:  # noqa: ANN401  # whatever a caller gives
    names = list(items_of("row_ids", given))
    try:
        hash(tuple(names))
    except TypeError:
        raise InvalidCostsError(f"row_ids are {given!r:.40}", fix="give a number for each row") from None
    return names


def _solve_frame(problem: Costs, u: Potentials | None, *, check: bool) -> Solution:
    if problem.num_rows == 0:
        return nothing(problem, check=check)
    rows, v = empty(problem)
    if u is not None:
        rows[:] = u
    columns, rows, v, work = begun(problem, COLD if u is None else FROM_ROWS, rows, v)
    return solution_of(problem, columns, rows, v, work, check=check)


class _Known:
    """Potentials of the rows of the frame before, and whether beginning with them pays.

    They cost one more sweep over the costs. They are used after a frame whose search, begun cold, took more than that
    as far as counts of operations say, and until a frame begun with them takes more than the last cold one.
    """

    def __init__(self) -> None:
        self._u: Potentials | None = None
        self._by_name: dict[int, float] = {}
        self._is_worth_it = False
        self._cold_search = 0.0
        self._backoff = 2  # frames that are begun cold after one for which it did not pay: twice as many each time
        self._stay_cold = 0

    def potentials(self, problem: Costs, names: Sequence[int] | None) -> Potentials | None:
        """Potentials that the rows of a frame begin with; None: begin cold."""
        if not self._is_worth_it or self._u is None or problem.is_transposed:
            return None
        num_rows = problem.num_rows
        if names is not None:
            return np.array([self._by_name.get(name, 0.0) for name in names])
        u = np.zeros(num_rows)
        shared = min(num_rows, len(self._u))
        u[:shared] = self._u[:shared]
        return u

    def remember(self, solution: Solution, names: Sequence[int] | None, *, was_warm: bool) -> None:
        """What the next frame may begin with."""
        self._u = solution.u
        if names is not None:
            self._by_name = dict(zip(names, solution.u.tolist(), strict=True))
        search = _CANDIDATES * (solution.work.get("row_scans", 0) + solution.work.get("bids", 0))
        search += len(solution.u) * solution.work.get("column_scans", 0)
        if not was_warm:
            self._cold_search = search
        sweep = len(solution.u) * len(solution.v) / _LANES
        pays = self._cold_search > (search if was_warm else 0) + sweep
        if was_warm and not pays:
            self._backoff *= 2
            self._stay_cold = self._backoff
        self._stay_cold = max(0, self._stay_cold - 1)
        self._is_worth_it = pays and self._stay_cold == 0


def _named(number: int, given: Any, *, maximize: bool) -> Costs:  # noqa: ANN401
    try:
        problem = costs_of(given, maximize=maximize)
    except InvalidCostsError as error:
        raise InvalidCostsError(f"problem {number}: {error.message}", fix=error.fix) from None
    if problem.indptr is not None:
        raise InvalidCostsError(f"problem {number} is sparse", fix="solve sparse problems one by one, with solve")
    return problem


def _solve_batch(
    problems: list[Costs],
    potentials: list[tuple[Potentials, Potentials]],
    columns: list[Columns],
    chosen: list[int],
    threads: int | None,
) -> None:
    if not chosen:
        return
    num_threads = len(os.sched_getaffinity(0)) if threads is None else whole_number("threads", threads, most=4096)
    try:
        solved = _native.solve_assignments(
            [problems[q].values for q in chosen],
            COLD,
            [_candidates(problems[q]) for q in chosen],
            [potentials[q][0] for q in chosen],
            [potentials[q][1] for q in chosen],
            [columns[q] for q in chosen],
            num_threads,
        )
    except ValueError as error:
        number, _, what = str(error).removeprefix("problem ").partition(": ")  # counted among those of its type
        q = chosen[int(number)]
        raise _refused(problems[q], what, f"problem {q}: ") from None
    for q, is_solved in zip(chosen, solved, strict=True):
        u, v = potentials[q]
        if not is_solved or not max(np.abs(u).max(), np.abs(v).max()) <= _LARGEST:
            _refuse_huge(problems[q])
        if not is_solved:
            raise _infeasible(f"problem {q}: ")


def empty(problem: Costs) -> tuple[Potentials, Potentials]:
    """Potentials of rows and of columns, all 0."""
    u: Potentials = np.zeros(problem.num_rows, problem.of_potentials)
    v: Potentials = np.zeros(problem.num_columns, problem.of_potentials)
    return u, v


def _start(problem: Costs, duals: Duals | None) -> tuple[int, Potentials, Potentials]:
    """What the solver begins with, and potentials that it may overwrite."""
    u, v = empty(problem)
    if not (duals is None or (isinstance(duals, tuple | list) and len(duals) == 2)):
        raise InvalidCostsError(f"duals are {duals!r:.80}", fix="give (u, v), either of which may be None")
    given_u, given_v = (None, None) if duals is None else duals
    if problem.is_transposed:
        given_u, given_v = given_v, given_u
    sign = -1 if problem.is_negated else 1
    sides = ("v", "u") if problem.is_transposed else ("u", "v")
    if given_v is not None:
        v[:] = sign * _usable(problem, np.asarray(given_v), problem.num_columns, sides[1])
        return FROM_COLUMNS, u, v
    if given_u is not None:
        u[:] = sign * _usable(problem, np.asarray(given_u), problem.num_rows, sides[0])
        return FROM_ROWS, u, v
    return COLD, u, v


def _usable(problem: Costs, given: NDArray[Any], length: int, name: str) -> NDArray[Any]:
    """Potentials no further apart than costs are, since differences of costs bound those of the best.

    Larger ones would cost digits. The range of the costs is taken from some rows: no result depends on it.
    """
    if given.shape != (length,) or given.dtype.kind not in "fiub":
        raise InvalidCostsError(
            f"{name} is {given.dtype} {list(given.shape)}", fix=f"give {length:,} potentials, or None"
        )
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise InvalidCostsError(f"{name} holds NaN or inf", fix="give finite potentials, or None")
    step = max(1, problem.num_rows // _SAMPLED_ROWS) if problem.indptr is None else 1
    sample = problem.values[::step]
    finite = sample[np.isfinite(sample)]
    if finite.size == 0:
        return np.zeros(length)
    reach = _MOST_SPANS * max(float(finite.max()) - float(finite.min()), abs(float(finite.max())), 1e-300)
    middle = float(np.median(given)) if problem.num_rows == problem.num_columns else 0.0
    near = np.clip(given.astype(np.float64) - middle, -reach, reach)
    return np.rint(near) if problem.of_potentials is np.int64 else near


def begun(
    problem: Costs, start: int, u: Potentials, v: Potentials, pairs: Columns | None = None
) -> tuple[Columns, Potentials, Potentials, dict[str, int]]:
    """The solution from potentials, or from none where those are so large that they round the costs away."""
    rounding = 0.0 if start == COLD else rounding_of(u, v)
    columns, work = _solved(problem, start, u, v, pairs)
    if start != COLD and not is_exact_enough(problem, columns, max(rounding, rounding_of(u, v))):
        u, v = empty(problem)
        columns, work = _solved(problem, COLD, u, v)
    return columns, u, v, work


def _solved(
    problem: Costs, start: int, u: Potentials, v: Potentials, pairs: Columns | None = None
) -> tuple[Columns, dict[str, Any]]:
    try:
        found = problem.solve(start, _candidates(problem), u, v, pairs)
    except ValueError as error:
        raise _refused(problem, str(error)) from None
    if found is None:
        _refuse_huge(problem)
        raise _infeasible("")
    if not found[1].pop("largest_potential") <= _LARGEST:
        _refuse_huge(problem)
    return found


def _candidates(problem: Costs) -> int:
    return min(_CANDIDATES, max(4, problem.num_columns // 16))


def refused(problem: Costs, row: int, column: int, cost: float) -> InvalidCostsError:
    """Refuse a cost that is NaN or -inf, of the problem as the solver has it."""
    return _refused(problem, f"the cost of row {row}, column {column} is {'NaN' if cost != cost else '-inf'}")  # noqa: PLR0124


def _refused(problem: Costs, message: str, where: str = "") -> InvalidCostsError:
    """What the native solver says of the costs as it has them, of those as they were given."""
    told = re.fullmatch(r"the cost of row (\d+), column (\d+) is (.+)", message)
    never = "-inf" if problem.is_negated else "inf"
    if told:
        row, column, value = told.groups()
        row, column = (column, row) if problem.is_transposed else (row, column)
        value = "inf" if value == "-inf" and problem.is_negated else value
        message = f"the cost of row {row}, column {column} is {value}"
    return InvalidCostsError(where + message, fix=f"give finite costs; {never} for a pair that is not allowed")


def _refuse_huge(problem: Costs) -> None:
    """Potentials are differences of costs, and their sums overflow where costs are near the largest float."""
    largest = float(np.abs(problem.values[np.isfinite(problem.values)]).max(initial=0))
    if largest > _LARGEST:
        raise InvalidCostsError(
            f"costs reach {largest:.3g}: sums of potentials overflow", fix=f"give costs below {_LARGEST:.0e}"
        )


def _infeasible(where: str) -> InvalidCostsError:
    return InvalidCostsError(
        f"{where}no assignment gives every row (or column, if they are fewer) a pair that is allowed",
        fix="allow more pairs: costs that are not inf",
    )


def solution_of(
    problem: Costs, columns: Columns, u: Potentials, v: Potentials, work: dict[str, int], *, check: bool
) -> Solution:
    """The solution of the problem as it was given, from that of the problem as the solver has it."""
    cost = total(problem.of_pairs(columns))
    certificate = None
    if check:
        u, v, certificate = prove(problem, columns, u, v)
    if problem.is_negated:
        cost = -cost
    u, v = (-u, -v) if problem.is_negated else (u.copy(), v.copy())
    rows = np.arange(problem.num_rows, dtype=np.int64)
    if problem.is_transposed:
        order = np.argsort(columns)
        rows, columns, u, v = columns[order], rows[order], v, u
    return Solution(rows, columns, u, v, cost, certificate, work)


def nothing(problem: Costs, *, check: bool) -> Solution:
    """The solution of a problem that has no rows, or no columns."""
    none = np.empty(0, np.int64)
    u, v = empty(problem)
    if problem.is_transposed:
        u, v = v, u
    cost: float | int = 0 if problem.of_potentials is np.int64 else 0.0
    return Solution(none, none.copy(), u, v, cost, Certificate(0.0, 0.0, 0.0, 0.0, 0.0) if check else None, {})
