"""When readings were taken: times of any unit in seconds, and clocks that jitter told from clocks with gaps."""

import logging
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.tasks.traffic.page import DAY_S

_log = logging.getLogger(__name__)

_UNITS: Final = (("seconds", 1), ("milliseconds", 10**3), ("microseconds", 10**6), ("nanoseconds", 10**9))
_SECONDS_BELOW: Final = 10**11  # the year 5138; the same number of milliseconds is in 1973, so no date has two readings
_JITTER_ALLOWED: Final = 0.01  # share of steps: a clock that was set right now and then is no jittered clock


def seconds_of(times: NDArray[Any], path: Path) -> NDArray[np.int64]:
    """Whole seconds since 1970 [num_steps] of numbers that count seconds, or thousandths, millionths, … of them.

    The unit is known by the size of the numbers, and said where it is not seconds. `UserError` if a time is not a
    number, or two are in one second.
    """
    if times.dtype.kind == "f" and not (np.isfinite(times).all() and (np.abs(times) < 2.0**63).all()):
        raise UserError(f"{path}: a time is not a number", fix="give a time for every row, or leave the row out")
    if times.dtype.kind == "u":
        times = times.astype(np.int64)  # their differences would wrap
    largest = float(np.abs(times.astype(np.float64)).max(initial=0))
    unit, per_s = next((each for each in _UNITS if largest < _SECONDS_BELOW * each[1]), _UNITS[-1])
    seconds: NDArray[np.int64] = np.floor_divide(times, per_s).astype(np.int64)
    if per_s > 1:
        _log.info(f"times are read as {unit} since 1970: {_at(seconds[0])} to {_at(seconds[-1])}")
    within = np.flatnonzero((np.diff(seconds) == 0) & (np.diff(times) > 0))
    if len(within):
        raise UserError(
            f"{path}: rows {within[0]} and {within[0] + 1} were read within one second ({_at(seconds[within[0]])})",
            fix="average the readings over a second or more",
        )
    return seconds


def check_rising(timestamps: NDArray[np.int64], path: Path) -> None:
    """`UserError` if a time is not after the one before it."""
    steps = np.diff(timestamps)
    if len(steps) and int(steps.min()) <= 0:
        at = int(np.flatnonzero(steps <= 0)[0]) + 1
        problem = "is the same as the one before it" if steps[at - 1] == 0 else "lies before the one before it"
        raise UserError(
            f"{path}: the time of row {at} ({_at(timestamps[at])}) {problem}",
            fix="sort the rows by time, and keep one row per time",
        )


def interval_of(timestamps: NDArray[np.int64]) -> int:
    """Seconds between two steps: the most frequent distance; 1 of a single step."""
    lengths, counts = np.unique(np.diff(timestamps), return_counts=True)
    return int(lengths[counts.argmax()]) if len(lengths) else 1


def longest_run(timestamps: NDArray[np.int64], interval_s: int) -> int:
    """Steps in the longest stretch without a gap."""
    edges = np.flatnonzero(np.diff(timestamps) != interval_s) + 1
    return int(np.diff(np.concatenate([[0], edges, [len(timestamps)]])).max())


def check_regular(timestamps: NDArray[np.int64], path: Path) -> None:
    """`UserError` if the clock jitters: no window could be cut. A gap of whole intervals is none."""
    steps = np.diff(timestamps)
    off = int(np.count_nonzero(steps % interval_of(timestamps)))
    if off > _JITTER_ALLOWED * len(steps):
        middle = int(np.median(steps))
        likely = _part_of_a_day(middle)
        raise UserError(
            f"{path}: the clock jitters: {off:,} of {len(steps):,} steps are not a whole number of intervals"
            f" ({steps.min()} to {steps.max()} s, median {middle} s)",
            fix=f"-o interval_s={likely} moves every time to the nearest step of {likely} s; or resample the readings",
        )


def _part_of_a_day(seconds: int) -> int:
    """The part of a day nearest to `seconds`, if within a twentieth, as a clock that jitters had it; else `seconds`."""
    nearest = min((part for part in range(1, DAY_S + 1) if DAY_S % part == 0), key=lambda part: abs(part - seconds))
    return nearest if abs(nearest - seconds) <= seconds / 20 else seconds


def on_grid(timestamps: NDArray[np.int64], interval_s: int, path: Path) -> NDArray[np.int64]:
    """Each time moved to the nearest step of a grid of `interval_s` that lies as the times do in the median.

    `UserError` if two rows meet at one step.
    """
    since = timestamps - timestamps[0]
    phase = int(np.median((since + interval_s // 2) % interval_s - interval_s // 2))
    steps = np.rint((since - phase) / interval_s).astype(np.int64)
    moved: NDArray[np.int64] = timestamps[0] + phase + steps * interval_s
    met = np.flatnonzero(np.diff(moved) == 0)
    if len(met):
        pair = " and ".join(_at(time) for time in timestamps[met[0] : met[0] + 2])
        raise UserError(
            f"{path}: with interval_s={interval_s} {len(met)} rows meet another at one step, the first {pair}",
            fix="give a smaller -o interval_s, or keep one row per interval",
        )
    far = int(np.abs(moved - timestamps).max())
    _log.info(f"times are moved to a grid of {interval_s} s, by {far} s at most")
    return moved


def _at(seconds: np.int64) -> str:
    return str(np.datetime64(int(seconds), "s"))
