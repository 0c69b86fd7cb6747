"""Measures of scores of windows, as the kind names them."""

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.intrusion.data.store import CaptureStore
from graphmill.tasks.intrusion.page import KIND
from graphmill.tasks.intrusion.threshold import (
    InTime,
    alarms_of,
    choose_threshold,
    in_time,
    tells,
    threshold_of_benign,
)


def measured(
    store: CaptureStore, ids: NDArray[np.int64], scores: NDArray[np.float64], threshold: float
) -> dict[str, float]:
    """Measures of windows `ids` [n], ascending, with `scores` [n]. NaN: not measurable, or no threshold chosen yet."""
    is_attack = np.asarray(store.labels)[ids] == 1
    if np.isnan(threshold):
        return {measure.name: float("nan") for measure in KIND.measures}
    found = tells(scores, is_attack, threshold)
    found |= in_time(alarms_of(scores, threshold), is_attack, _in_time(store, ids))
    return {measure.name: float(found.get(measure.name, threshold)) for measure in KIND.measures}


def chosen_threshold(
    store: CaptureStore, ids: NDArray[np.int64], scores: NDArray[np.float64], per_hour: float | None
) -> float:
    """The threshold of windows `ids` [n]: with `per_hour` false alarms in an hour; None: that with the highest F1."""
    is_attack = np.asarray(store.labels)[ids] == 1
    if per_hour is None:
        return choose_threshold(scores, is_attack).value
    return threshold_of_benign(scores, is_attack, _in_time(store, ids), per_hour)


def _in_time(store: CaptureStore, ids: NDArray[np.int64]) -> InTime:
    times = np.asarray(store.times)[ids]
    return InTime(capture=store.capture[ids], begins=times[:, 0], ends=times[:, 1], attack_begins=times[:, 2])
