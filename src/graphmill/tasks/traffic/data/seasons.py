"""Mean readings by time of the day or of the week, and which of the two forecasts best."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.traffic.page import DAY_S, FIRST_WEEKDAY, SEASON_S, Season, has_two, slots_of

_COMPARED: Final = 256  # sensors at most, evenly spread
_AT_ONCE: Final = 2**24  # readings in memory together
_AHEAD: Final = 12  # steps of the horizon at most for which the last reading is compared


@dataclass(frozen=True, slots=True)
class BestSeason:
    """The season whose mean readings forecast the validation steps best, and how well."""

    season: Season  # "none": nothing is known of any
    over_last: float  # their error, over that of the last reading, for the steps of the horizon
    over_far: float  # the same, over that of the reading half a day, and at least a horizon, before; 0: not known


_UNKNOWN: Final = BestSeason("none", 1.0, 0.0)


def slots(times: NDArray[Any], season: Season, interval_s: int) -> NDArray[np.int64]:
    """Which step of a day, or of a week from Monday on, each time is in; times in seconds since 1970, local."""
    seconds = (times + FIRST_WEEKDAY * DAY_S) % SEASON_S[season]
    return np.asarray(seconds // interval_s, dtype=np.int64)


def averages(
    values: NDArray[np.float32], times: NDArray[np.int64], season: Season, interval_s: int
) -> NDArray[np.float32]:
    """Mean reading of each sensor in each step of a day or week [num_slots, num_sensors]; NaN: none is known.

    In a week, of a step without a reading the mean of that time of the day.

    Args:
        values: [num_steps, num_sensors], those that are learnt from; NaN: missing.
        times: [num_steps], when they were read.
        season: "day" or "week".
        interval_s: seconds between two steps.
    """
    means = _means(values, slots(times, season, interval_s), slots_of(season, interval_s))
    if season == "week":
        of_day = averages(values, times, "day", interval_s)
        begins = np.arange(len(means)) * interval_s
        means = np.where(np.isnan(means), of_day[begins % DAY_S // interval_s], means)
    return means


def preferred(
    values: NDArray[np.float32],
    times: NDArray[np.int64],
    *,
    interval_s: int,
    horizon: int,
    validation: tuple[int, int],
) -> BestSeason:
    """Compare the mean readings of seasons with the last reading, on the validation steps.

    `BestSeason` says "none" where the steps before hold less than two seasons, nothing is known of these, or the last
    reading is without an error.

    Args:
        values: [num_steps, num_sensors]; NaN: missing.
        times: [num_steps], seconds, rising.
        interval_s: seconds between two steps.
        horizon: steps that are forecast.
        validation: first step that is compared, and the one after the last; those before are learnt from.
    """
    first, end = validation
    values = values[:end, :: -(-values.shape[1] // _COMPARED)]
    shown, errors = values[first:], dict[Season, float]()
    for season in SEASON_S:
        if has_two(season, first, interval_s):
            means = averages(values[:first], times[:first], season, interval_s)
            errors[season] = _error(shown - means[slots(times[first:end], season, interval_s)])
    ahead = np.unique(np.linspace(1, horizon, min(horizon, _AHEAD)).round().astype(int))
    last = np.mean([_error(shown - _before(values, times, k, interval_s, validation)) for k in ahead if k <= first])
    best = min(errors, key=lambda season: errors[season], default=None)
    if best is None or errors[best] == np.inf or not last:
        return _UNKNOWN
    span = max(horizon, DAY_S // 2 // interval_s)
    far = _error(shown - _before(values, times, span, interval_s, validation)) if span <= first else np.inf
    return BestSeason(best, float(errors[best] / last), float(errors[best] / far) if far else 0.0)


def _before(
    values: NDArray[np.float32], times: NDArray[np.int64], k: int, interval_s: int, steps: tuple[int, int]
) -> NDArray[np.float32]:
    """Readings `k` steps before those of a range; NaN where a gap in time lies between."""
    first, end = steps
    is_near = times[first:end] - times[first - k : end - k] == k * interval_s
    return np.where(is_near[:, None], values[first - k : end - k], np.float32(np.nan))


def _means(values: NDArray[np.float32], slot_of: NDArray[np.int64], num_slots: int) -> NDArray[np.float32]:
    """[num_slots, num_sensors] of what is known in each slot; NaN: nothing."""
    order = np.argsort(slot_of, kind="stable")
    found, begins = np.unique(slot_of[order], return_index=True)
    means = np.full((num_slots, values.shape[1]), np.nan, dtype=np.float32)
    at_once = max(1, _AT_ONCE // max(1, len(values)))
    for begin in range(0, values.shape[1], at_once):
        block = values[:, begin : begin + at_once][order]
        known = ~np.isnan(block)
        sums = np.add.reduceat(np.where(known, block, 0).astype(np.float64), begins, axis=0)
        counts = np.add.reduceat(known.astype(np.int64), begins, axis=0)
        with np.errstate(invalid="ignore"):  # 0 / 0 is the NaN that says so
            means[found, begin : begin + at_once] = sums / counts
    return means


def _error(differences: NDArray[np.float32]) -> float:
    """Mean absolute difference; infinite if none is known."""
    known = np.abs(differences[~np.isnan(differences)])
    return float(known.mean(dtype=np.float64)) if len(known) else np.inf
