"""Scores to alarms at a wanted rate of false ones: what benign traffic scores says how many there will be."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError

HOUR_S: Final = 3600.0


def covered_s(begins: NDArray[np.float64], ends: NDArray[np.float64]) -> float:
    """Seconds that windows cover together, which may overlap; of one capture, in order, [n] each."""
    before = np.concatenate([[-np.inf], ends[:-1]])
    return float(np.maximum(ends - np.maximum(begins, before), 0).sum())


def threshold_at_rate(scores: NDArray[np.floating[Any]], seconds: float, per_hour: float) -> float:
    """The threshold with `per_hour` alarms in an hour of such benign windows, or fewer: a score, or more, is an alarm.

    Args:
        scores: of benign windows [n].
        seconds: that they cover.
        per_hour: alarms that are wanted in an hour.

    Returns:
        Half way between the lowest score that is an alarm, and the highest that is none.

    Raises:
        UserError: the windows have no times, or cover too little time to tell such a rate.
    """
    if not seconds > 0:
        raise UserError(
            "the captures have no times, so that no rate of false alarms in an hour can be kept",
            fix="give captures with times, or a threshold",
        )
    most = int(per_hour * seconds / HOUR_S + 1e-9)
    if most < 1:
        raise UserError(
            f"{per_hour:g} false alarms an hour are {per_hour * seconds / HOUR_S:.2g} in the {seconds:,.0f} s that"
            f" {len(scores):,} benign windows cover: too few to count",
            fix=f"give {HOUR_S / per_hour:,.0f} s of benign traffic, better ten times as much, or ask for"
            f" {HOUR_S / seconds:.3g} an hour or more",
        )
    falling = np.unique(np.asarray(scores, np.float64))[::-1]
    alarms = np.searchsorted(np.sort(-np.asarray(scores, np.float64)), -falling, side="right")
    allowed = int(np.searchsorted(alarms, most, side="right"))  # of the scores, from the highest on
    if allowed == len(falling):
        return float(falling[-1])
    if allowed == 0:  # more windows than are wanted share the highest score
        return float(np.nextafter(falling[0], np.inf))
    between = float(falling[allowed] + (falling[allowed - 1] - falling[allowed]) / 2)
    return between if between > falling[allowed] else float(falling[allowed - 1])
