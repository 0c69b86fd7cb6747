"""The k best assignments are the k best of all that there are."""

from itertools import permutations

import numpy as np
import pytest
from assignment_costs import KINDS, problem
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from graphmill.assignment import InvalidCostsError, solve, solve_best

RELATIVE = 1e-12  # of the largest cost times the pairs


def totals(costs, *, maximize):
    """Of every assignment there is, the best first."""
    wide = costs.T if costs.shape[0] > costs.shape[1] else costs
    rows = np.arange(len(wide))
    found = (wide[rows, list(each)].astype(float).sum() for each in permutations(range(wide.shape[1]), len(wide)))
    return sorted((float(total) for total in found if np.isfinite(total)), reverse=maximize)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 30), maximize=st.booleans())
def test_against_all_there_are(kind, seed, count, maximize):
    costs = problem(kind, np.random.default_rng(seed), largest=5)[:5, :6]
    maximize = maximize and bool(np.isfinite(costs).all())
    expected = totals(costs, maximize=maximize)
    if not expected:
        with pytest.raises(InvalidCostsError, match="no assignment"):
            solve_best(costs, count)
        return
    found = solve_best(costs, count, maximize=maximize)
    assert len(found) == min(count, len(expected))
    assert len({(*each.rows, *each.cols) for each in found}) == len(found)
    allowed = RELATIVE * float(np.abs(costs[np.isfinite(costs)]).max()) * min(costs.shape)
    for each, total in zip(found, expected, strict=False):
        assert (np.diff(each.rows) > 0).all()
        assert len(np.unique(each.cols)) == min(costs.shape)
        assert abs(float(each.cost) - total) <= allowed
    assert abs(float(found[0].cost) - float(solve(costs, maximize=maximize).cost)) <= allowed


def test_integers_are_exact_and_come_back_as_such():
    costs = np.random.default_rng(0).integers(0, 5, (4, 4))
    found = solve_best(costs, 24)
    assert [each.cost for each in found] == totals(costs, maximize=False)
    assert all(isinstance(each.cost, int) for each in found)


@pytest.mark.parametrize(
    ("costs", "count", "says"),
    [
        (csr_array(np.eye(3)), 2, "sparse"),
        (np.full((3, 3), 2**52), 2, "2\\^53"),
        (np.eye(3), 0, "count"),
        (np.eye(3), 1.5, "count"),
        (np.full((2, 2), np.nan), 2, "NaN"),
    ],
)
def test_what_is_refused(costs, count, says):
    with pytest.raises(ValueError, match=says):
        solve_best(costs, count)


def test_of_no_rows():
    (only,) = solve_best(np.empty((0, 3)), 5)
    assert only.cost == 0
