"""The fits find the share that points were made with; what they leave is said."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.report import laws
from graphmill.report.laws import Fit, fit_amdahl, fit_gustafson

SIZES = st.lists(st.integers(2, 64), min_size=2, max_size=6, unique=True).map(lambda sizes: [1, *sizes])


def test_doctests():
    assert doctest.testmod(laws).failed == 0


@given(SIZES, st.floats(0, 1))
def test_a_law_is_found_again_in_its_own_points(sizes, share):
    for law, fit in (("amdahl", fit_amdahl), ("gustafson", fit_gustafson)):
        exact = Fit(law, share, None, 0)
        found = fit(sizes, [exact.speedup(n) for n in sizes])
        assert found.serial_share == pytest.approx(share, abs=1e-6)
        assert found.residual == pytest.approx(0, abs=1e-6)


def test_a_slowdown_is_more_than_serial():
    assert fit_amdahl([1, 2, 4], [1, 0.9, 0.7]).serial_share > 1


def test_better_than_ideal_is_not_capped():
    assert fit_gustafson([1, 2, 4], [1, 2.2, 4.6]).serial_share < 0


def test_two_points_have_no_residual_and_one_has_no_fit():
    assert fit_amdahl([1, 2], [1, 1.7]).residual is None
    assert fit_amdahl([1], [1]) is None
    assert fit_gustafson([1], [1]) is None
