"""After some rows and columns changed, the solver ends where it would have ended from nothing."""

import re

import numpy as np
import pytest
from assignment_costs import KINDS, problem
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from graphmill.assignment import InvalidCostsError, solve, solve_changed

RELATIVE = 1e-12  # of a total, as in test_solver


def assert_as_good(found, costs, *, maximize=False):
    expected = solve(costs, maximize=maximize)
    assert len(np.unique(found.cols)) == len(found.cols) == min(costs.shape)
    assert (np.diff(found.rows) > 0).all()
    largest = float(np.abs(costs[np.isfinite(costs)]).max()) * min(costs.shape)
    assert abs(float(found.cost) - float(expected.cost)) <= RELATIVE * largest


@pytest.mark.each_isa
@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1), maximize=st.booleans(), checked=st.booleans())
def test_changed_rows_and_columns(kind, seed, maximize, checked):
    rng = np.random.default_rng(seed)
    costs = problem(kind, rng, largest=40)
    is_finite = np.isfinite(costs)
    maximize = maximize and bool(is_finite.all())
    some = costs[is_finite]
    solution = solve(costs, maximize=maximize)
    for _ in range(3):
        rows, columns = (rng.choice(n, size=rng.integers(0, min(n, 4) + 1), replace=False) for n in costs.shape)
        costs = costs.copy()
        costs[rows] = rng.choice(some, size=costs[rows].shape)
        costs[:, columns] = rng.choice(some, size=costs[:, columns].shape)
        solution = solve_changed(costs, solution, rows=rows, columns=columns, maximize=maximize, check=checked)
        assert_as_good(solution, costs, maximize=maximize)
        assert solution.certificate is None or solution.certificate.is_optimal


@given(seed=st.integers(0, 2**32 - 1))
def test_changed_rows_of_a_sparse_problem(seed):
    """A pair that was assigned may be gone."""
    rng = np.random.default_rng(seed)
    dense = problem("infeasible_pairs", rng, largest=40)
    solution = solve(csr_array((dense[np.isfinite(dense)], np.nonzero(np.isfinite(dense))), dense.shape))
    row, column = (int(rng.integers(n)) for n in dense.shape)
    dense[row] = np.where(rng.random(dense.shape[1]) < 0.7, rng.random(dense.shape[1]), np.inf)
    dense[:, column] = rng.random(dense.shape[0])  # one assignment is left at least: of the row, or by it
    dense[row, rng.integers(dense.shape[1])] = 0.5
    is_pair = np.isfinite(dense)
    sparse = csr_array((dense[is_pair], np.nonzero(is_pair)), dense.shape)
    try:
        expected = solve(sparse)
    except InvalidCostsError:
        with pytest.raises(InvalidCostsError, match="no assignment"):
            solve_changed(sparse, solution, rows=[row], columns=[column])
        return
    found = solve_changed(sparse, solution, rows=[row], columns=[column])
    assert found.certificate.is_optimal
    assert abs(found.cost - expected.cost) <= RELATIVE * min(dense.shape)


def test_only_what_changed_looks_for_a_column():
    """A row of 200 that pays less for a column of its own: one search, no bids, few rows read."""
    costs = np.random.default_rng(0).random((200, 300))
    before = solve(costs)
    costs[7, np.setdiff1d(np.arange(300), before.cols)[0]] = -1.0
    found = solve_changed(costs, before, rows=[7])
    assert found.certificate.is_optimal
    assert (found.work["free_after_greedy"], found.work["bids"]) == (1, 0)
    assert found.work["rows_chosen"] < 10
    assert solve_changed(costs, found, check=False).work["row_scans"] == 0


def test_a_change_that_was_not_named_is_found_by_the_certificate():
    rng = np.random.default_rng(1)
    costs = rng.random((50, 50))
    before = solve(costs)
    costs = rng.random((50, 50))
    found = solve_changed(costs, before, rows=[0])
    assert found.certificate.is_optimal
    assert_as_good(found, costs)


WIDE, SOLVED = np.arange(20.0).reshape(4, 5), solve(np.arange(20.0).reshape(4, 5))
WITH_NAN = WIDE.copy()
WITH_NAN[1, 2] = np.nan


@pytest.mark.parametrize(
    ("costs", "before", "named", "says"),
    [
        (WIDE, SOLVED, {"rows": [4]}, r"rows are \[4\].*0 to 3"),
        (WIDE, SOLVED, {"rows": [-1]}, "rows are"),
        (WIDE, SOLVED, {"rows": [0.5]}, "rows are"),
        (WIDE, SOLVED, {"rows": 1.5}, "rows are"),
        (WIDE, SOLVED, {"columns": ["a"]}, "columns are"),
        (WIDE, SOLVED, {"columns": [5]}, r"columns are \[5\].*0 to 4"),
        (WIDE, None, {}, "before is None"),
        (WIDE, solve(WIDE.T), {}, "before is of 5 x 4"),
        (WITH_NAN, SOLVED, {"rows": [1]}, "row 1, column 2 is NaN"),
        (WITH_NAN, SOLVED, {"columns": [2]}, "row 1, column 2 is NaN"),
        (WITH_NAN.T, solve(WIDE.T), {"columns": [1]}, "row 2, column 1 is NaN"),
    ],
)
def test_what_is_refused(costs, before, named, says):
    with pytest.raises(InvalidCostsError) as refused:
        solve_changed(costs, before, **named)
    assert re.search(says, f"{refused.value.message} {refused.value.fix}")


def test_of_no_rows():
    assert solve_changed(np.empty((0, 3)), solve(np.empty((0, 3)))).cost == 0
