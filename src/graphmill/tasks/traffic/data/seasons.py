"""Readings a day or a week before others, and which of the two forecasts best."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.traffic.page import SEASON_S, Season

_COMPARED: Final = 2**22  # readings at most, in rows that are evenly spread
_AHEAD: Final = 12  # steps of the horizon at most for which the last reading is compared
_TRAINED_ON: Final = 0.5  # share of the training steps that must have a reading a season before


def rows_before(times: NDArray[np.int64], seconds: int) -> NDArray[np.int64]:
    """[num_steps] the step `seconds` before each, for rising `times`; -1: there is none."""
    rows = np.searchsorted(times, times - seconds)
    rows[times[rows] != times - seconds] = -1
    return rows


def preferred(
    values: NDArray[np.float32],
    times: NDArray[np.int64],
    *,
    interval_s: int,
    horizon: int,
    validation: tuple[int, int],
) -> Season:
    """The season before that forecasts the validation steps best; "none": repeating the last reading does, or there
    are no readings a season before half of the training steps.

    Args:
        values: [num_steps, num_sensors]; NaN: missing.
        times: [num_steps], seconds, rising.
        interval_s: seconds between two steps.
        horizon: Steps that are forecast.
        validation: First and last step (left out) of the readings that are compared; training steps lie before.
    """
    first, end = validation
    every = max(1, -(-(end - first) * values.shape[1] // _COMPARED))
    steps = np.arange(first, end, every)
    seasons = {season: rows_before(times, seconds) for season, seconds in SEASON_S.items()}
    usable: Mapping[Season, NDArray[np.int64]] = {
        season: rows
        for season, rows in seasons.items()
        if horizon * interval_s <= SEASON_S[season] and np.mean(rows[:first] >= 0) >= _TRAINED_ON
    }
    if not usable:
        return "none"
    ahead = np.unique(np.linspace(1, horizon, min(horizon, _AHEAD)).round().astype(int))
    last = np.mean([_error(values, steps, rows_before(times, int(k) * interval_s)) for k in ahead])
    errors = {season: _error(values, steps, rows) for season, rows in usable.items()}
    best = min(errors, key=lambda season: errors[season])
    return best if errors[best] < last else "none"


def _error(values: NDArray[np.float32], steps: NDArray[np.int64], rows: NDArray[np.int64]) -> float:
    """Mean absolute difference of the steps to those before them; infinite if none is known."""
    steps = steps[rows[steps] >= 0]
    differences = np.abs(values[steps] - values[rows[steps]])
    known = differences[~np.isnan(differences)]
    return float(known.mean(dtype=np.float64)) if len(known) else np.inf
