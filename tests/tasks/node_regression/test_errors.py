"""Measures of numbers against scikit-learn's, losses against torch's; what is not known counts nowhere."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from graphmill.tasks.node_regression.nn.errors import measures, tally, value_losses
from graphmill.tasks.node_regression.page import ValueLossSpec

NUMBERS = st.floats(-50, 50, width=32).map(lambda value: round(value, 2))


@st.composite
def predicted(draw):
    """Values and predictions of one shape, two nodes at least; where the values lie."""
    shape = (draw(st.integers(2, 20)), draw(st.integers(1, 3)))
    values, found = (draw(arrays(np.float64, shape, elements=NUMBERS)) for _ in range(2))
    return values, found, draw(st.sampled_from([0.0, 1e6]))


def measured(values: np.ndarray, found: np.ndarray, parts: int = 1) -> dict[str, float]:
    centre = torch.from_numpy(np.nanmean(values, axis=0))
    shares = np.array_split(np.arange(len(values)), parts)
    total = sum(tally(torch.from_numpy(found[mine]), torch.from_numpy(values[mine]), centre) for mine in shares)
    return measures(total.flatten())


@given(predicted(), st.integers(1, 3))
@example((np.ones((3, 2)), np.ones((3, 2)), 1e6), 1)  # a constant, met
@example((np.ones((3, 2)), np.zeros((3, 2)), 0.0), 2)  # a constant, not met
def test_scikit_learn_says_the_same(case, parts):
    values, found, offset = case
    values, found = values + offset, found + offset
    ours = measured(values, found, parts)
    assert ours["mae"] == pytest.approx(mean_absolute_error(values, found), rel=1e-9)
    rmse = root_mean_squared_error(values.ravel(), found.ravel())
    assert ours["rmse"] == pytest.approx(rmse, rel=1e-9)
    spread, is_rounded = (
        np.ptp(values, axis=0),
        values.mean(axis=0) != values[0],
    )  # of a constant's mean: no constant there
    if ((spread == 0).any() or (spread > 0.1).all()) and not (is_rounded & (spread == 0)).any():
        assert ours["r2"] == pytest.approx(r2_score(values, found), rel=1e-6, abs=1e-6)


def test_values_that_are_not_known_count_nowhere():
    values = np.array([[1.0, np.nan], [2.0, 10.0], [np.nan, 30.0], [4.0, 50.0]])
    found = np.array([[1.5, 7.0], [2.0, 11.0], [9.0, 28.0], [3.0, 50.0]])
    ours = measured(values, found)
    known = ~np.isnan(values)
    assert ours["mae"] == pytest.approx(np.abs(values - found)[known].mean())
    assert ours["rmse"] == pytest.approx(np.sqrt(np.square(values - found)[known].mean()))
    r2 = [r2_score(values[known[:, number], number], found[known[:, number], number]) for number in (0, 1)]
    assert ours["r2"] == pytest.approx(np.mean(r2))


@pytest.mark.parametrize(
    ("loss", "torchs"),
    [
        ({"kind": "mse"}, torch.nn.MSELoss),
        ({"kind": "l1"}, torch.nn.L1Loss),
        ({"kind": "huber", "delta": 0.5}, lambda reduction: torch.nn.HuberLoss(reduction=reduction, delta=0.5)),
    ],
)
def test_losses_are_torchs_and_have_no_gradient_where_nothing_is_known(loss, torchs):
    generator = torch.Generator().manual_seed(0)
    found = torch.randn(6, 2, generator=generator, requires_grad=True)
    truths = torch.randn(6, 2, generator=generator)
    exact = torchs(reduction="none")(found, truths)
    truths[2, 1] = torch.nan
    ours = value_losses(ValueLossSpec(**loss), found, truths)
    is_known = ~truths.isnan()
    assert torch.equal(ours[is_known], exact[is_known])
    assert ours[2, 1] == 0
    (gradient,) = torch.autograd.grad(ours.sum(), found)
    assert gradient[2, 1] == 0
    assert gradient.isfinite().all()
