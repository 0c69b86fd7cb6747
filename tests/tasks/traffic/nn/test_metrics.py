"""Errors: exact sums, nothing missing counted."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rounding import Bounded, assert_near, assert_within

from graphmill.base.errors import UserError
from graphmill.tasks.traffic.nn.metrics import by_steps, empty_tally, horizons, measures, tally


def random_forecast(windows: int, horizon: int = 12, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    targets = rng.uniform(1, 70, (windows, horizon, 3)) * (rng.random((windows, horizon, 3)) < 0.8)
    return torch.from_numpy(targets + rng.normal(0, 5, targets.shape)).float(), torch.from_numpy(targets).float()


def test_against_numpy() -> None:
    forecasts, targets = random_forecast(40)
    values = measures(tally(forecasts, targets, targets != 0), 300)
    t = targets.double().numpy()
    f = t + (forecasts - targets).double().numpy()  # the difference of float32 numbers is one
    for label, column in (("", slice(None)), ("_15min", 2), ("_30min", 5), ("_60min", 11)):
        known = t[:, column] != 0
        error, truth = (f[:, column] - t[:, column])[known], t[:, column][known]
        expected = {
            "mae": np.abs(error).mean(),
            "rmse": np.sqrt((error**2).mean()),
            "mape": 100 * np.abs(error / truth).mean(),
        }
        for name, value in expected.items():  # sums of positive numbers, in float64
            exact = Bounded.of(value).rounded(len(error) + 4)
            assert_near(values[name + label], exact, computed=torch.float64)
    assert len(values) == 12 + 3 * 12
    for name in ("mae", "rmse", "mape"):
        assert values[f"{name}_3_steps_15min"] == values[f"{name}_15min"]


def test_a_reading_of_0_counts_but_has_no_relative_error() -> None:
    targets = torch.tensor([0.0, 4.0, float("nan"), 0.0]).view(1, 2, 2)
    forecasts = torch.tensor([1.0, 3.0, 9.0, 2.0]).view(1, 2, 2)
    values = measures(tally(forecasts, targets, ~targets.isnan()), 86_400)
    assert values["mae"] == 4 / 3
    assert values["mape"] == 25
    assert values["mae_2_steps_2d"] == 2
    assert "mape_2_steps_2d" not in values, "every reading of that horizon is 0"


@pytest.mark.parametrize(
    ("step", "interval", "name"),
    [(3, 300, "3_steps_15min"), (1, 3600, "1_step_1h"), (24, 3600, "24_steps_1d"), (7, 90, "7_steps_630s")],
)
def test_every_horizon_is_named_by_its_steps_and_its_time(step: int, interval: int, name: str) -> None:
    assert by_steps(step, interval) == name


@given(st.integers(1, 30), st.lists(st.integers(0, 30), max_size=4))
def test_shares_of_ranks_add_up(windows: int, cuts: list[int]) -> None:
    forecasts, targets = random_forecast(windows)
    known = targets != 0
    edges = [0, *sorted(min(cut, windows) for cut in cuts), windows]
    total = empty_tally(12)
    for begin, end in pairwise(edges):
        total += tally(forecasts[begin:end], targets[begin:end], known[begin:end])
    whole = Bounded.of(tally(forecasts, targets, known))  # of positive numbers
    assert_within(total, whole.rounded(forecasts[:, 0].numel() + 1), computed=torch.float64)


def test_what_is_missing_may_be_anything() -> None:
    forecasts, targets = random_forecast(5)
    wild = torch.where(targets == 0, torch.tensor(float("nan")), forecasts)
    assert torch.equal(tally(wild, targets, targets != 0), tally(forecasts, targets, targets != 0))


def test_nothing_known() -> None:
    with pytest.raises(UserError, match="no reading"):
        measures(empty_tally(12), 300)


@pytest.mark.parametrize(
    ("horizon", "interval", "labels"),
    [
        (12, 300, [("15min", 2), ("30min", 5), ("60min", 11)]),
        (3, 300, [("15min", 2)]),
        (1, 300, [("step1", 0)]),
        (2, 1800, [("30min", 0), ("60min", 1)]),
        (1, 7200, [("step1", 0)]),
    ],
)
def test_labels(horizon: int, interval: int, labels: list[tuple[str, int]]) -> None:
    assert horizons(horizon, interval) == labels
