"""Linear autoregression beside numpy's least squares, sensor by sensor and step by step."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.tasks.traffic import baselines
from graphmill.tasks.traffic.baselines import LinearAutoregression
from graphmill.tasks.traffic.data.generate import generate
from graphmill.tasks.traffic.data.store import TrafficStore, write_traffic
from graphmill.tasks.traffic.data.windows import TrafficWindows

HISTORY, HORIZON = 3, 2


@pytest.fixture(params=[0.0, 0.2], ids=["whole", "missing"])
def windows(request, tmp_path) -> TrafficWindows:
    raw = generate(num_sensors=4, num_steps=600, interval_s=3600, missing_share=request.param, seed=5)
    values = raw.series.values.copy()
    values[:, 3] = 7  # a sensor that always reads the same
    store = write_traffic(replace(raw, series=replace(raw.series, values=values)), tmp_path / "store")
    return TrafficWindows(store, HISTORY, HORIZON)


def history_of(store: TrafficStore, start: int, sensor: int) -> np.ndarray:
    """Scaled readings with 1 behind them; a missing one is the one before, the first ones the mean."""
    row, last = [], 0.0
    for reading in store.values[start : start + HISTORY, sensor]:
        if not np.isnan(reading):
            last = (float(reading) - store.metadata.mean) / store.metadata.std
        row.append(last)
    return np.array([*row, 1.0])


def test_coefficients_are_those_of_least_squares(windows) -> None:
    store, starts, fitted = windows.store, windows.of("train"), LinearAutoregression.fitted(windows)
    for sensor in range(3):
        x = np.stack([history_of(store, start, sensor) for start in starts])
        for step in range(HORIZON):
            y = (store.values[starts + HISTORY + step, sensor].astype(float) - store.metadata.mean) / store.metadata.std
            known = ~np.isnan(y)
            wanted = np.linalg.lstsq(x[known], y[known], rcond=None)[0]
            np.testing.assert_allclose(fitted.coefficients[sensor, :, step], wanted, atol=1e-3)


def test_forecasts_are_their_sums(windows) -> None:
    store, fitted = windows.store, LinearAutoregression.fitted(windows)
    starts = windows.of("test")[:9]
    batch = windows.batch(EvaluationSeeds(SeedIds(starts)))
    forecasts = fitted.of(batch, torch.zeros(0))
    for row, start in enumerate(starts):
        for sensor in range(4):
            scaled = history_of(store, start, sensor) @ fitted.coefficients[sensor].numpy()
            wanted = scaled * store.metadata.std + store.metadata.mean
            np.testing.assert_allclose(forecasts[row, :, sensor], wanted, rtol=1e-6)
    np.testing.assert_allclose(forecasts[:, :, 3], 7, rtol=1e-3)


def test_blocks_of_sensors_and_fewer_windows_make_no_other_forecast(windows, monkeypatch) -> None:
    whole = LinearAutoregression.fitted(windows)
    monkeypatch.setattr(baselines, "_AT_ONCE", 1)
    np.testing.assert_allclose(LinearAutoregression.fitted(windows).coefficients, whole.coefficients, rtol=1e-9)
    monkeypatch.setattr(baselines, "_WINDOWS", 100)
    few = LinearAutoregression.fitted(windows)
    assert not np.array_equal(few.coefficients, whole.coefficients)
