"""Exact answers and the proof of them; one gauge for all duals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment

from graphmill.tasks.assignment.data.oracle import (
    InfeasibleError,
    breach,
    fix_gauge,
    matched_cost,
    not_an_assignment,
    shortest_path_duals,
    solve_exactly,
    tolerance,
)

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 9))
# Few values, so that there are ties; some of them forbidden.
MATRICES = SHAPES.flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.1, 0.7, 1.0, -3.5, 1e6, np.inf]))
)


def of_solver(costs, shift=0.0):
    """How far rounding may take a solver's duals, and their means, from the truth.

    The solver may have met the largest cost on its way even if no dual in the fixed gauge is that large: its own duals
    are sums of at most rows + cols costs, and the mean of n of them, which fixes the gauge, adds n roundings of those.
    `shift`: by which the duals were shifted against each other before that.
    """
    largest = max(np.abs(costs[np.isfinite(costs)]).max(), shift)
    return 64 * sum(costs.shape) * np.finfo(float).eps * largest


@given(MATRICES)
def test_answers_are_scipys_and_the_duals_prove_them(costs):
    try:
        rows, cols = linear_sum_assignment(costs)
    except ValueError:
        with pytest.raises(InfeasibleError):
            solve_exactly(costs)
        return
    columns, u, v, optimum = solve_exactly(costs)
    assert not_an_assignment(costs.shape, columns) is None
    assert breach(costs, columns, *shortest_path_duals(costs, columns)) is None
    assert breach(costs, columns, u, v, of_solver(costs)) is None
    scale = float(np.abs(costs[rows, cols]).max())
    assert abs(optimum - costs[rows, cols].sum()) <= len(rows) ** 2 * np.finfo(float).eps * scale
    assert matched_cost(costs, columns) == optimum


@given(MATRICES)
def test_the_gauge_fixes_the_one_constant(costs):
    try:
        _, u, v, _ = solve_exactly(costs)
    except InfeasibleError:
        return
    shifted = fix_gauge(u + 2.5, v - 2.5)
    for one, other in zip(shifted, (u, v), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=of_solver(costs, 2.5))
    if len(u) == len(v):
        assert abs(u.mean() - v.mean()) <= of_solver(costs)
    else:
        longer = u if len(u) > len(v) else v
        assert longer.max() == 0


def test_each_way_in_which_an_answer_is_wrong_is_named():
    costs = np.array([[1.0, 5.0, 2.0], [4.0, 2.0, 7.0]])
    columns, u, v, _ = solve_exactly(costs)
    assert columns.tolist() == [0, 1]
    assert breach(costs, columns, u, v) is None
    assert "exceeds C[0,0] by 0.1" in breach(costs, columns, u + np.array([0.1, 0]), v)
    assert "below C[1,1]" in breach(costs, columns, u - [0, 0.1], v)
    assert "v[2] is -1" in breach(costs, columns, u, v - [0, 0, 1])
    assert "u[0] is nan" in breach(costs, columns, u * [np.nan, 1], v)
    swapped = np.array([1, 0], np.int32)
    assert breach(costs, swapped, u, v) is not None
    assert "taken 2 times" in not_an_assignment((2, 3), np.array([1, 1]))
    assert "column 3 is none of the 3" in not_an_assignment((2, 3), np.array([1, 3]))
    assert "1 pairs, and there can be 2" in not_an_assignment((2, 3), np.array([-1, 1]))


def test_what_is_overlooked_is_what_rounding_does():
    rng = np.random.default_rng(0)
    costs = rng.random((200, 200))
    columns, u, v, _ = solve_exactly(costs)
    assert breach(costs, columns, u, v) is None
    assert tolerance(costs, columns, u, v) < 1e-12
    assert breach(costs, columns, u + 1e-9 * (np.arange(200) == 7), v) is not None
