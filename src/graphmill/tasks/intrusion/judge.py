"""Measures of scores of windows, as the kind names them."""

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.intrusion.data.store import CaptureStore
from graphmill.tasks.intrusion.page import KIND
from graphmill.tasks.intrusion.threshold import InTime, alarms_of, in_time, tells


def measured(
    store: CaptureStore, ids: NDArray[np.int64], scores: NDArray[np.float64], threshold: float
) -> dict[str, float]:
    """Measures of windows `ids` [n], ascending, with `scores` [n]. NaN: not measurable, or no threshold chosen yet."""
    is_attack = np.asarray(store.labels)[ids] == 1
    if np.isnan(threshold):
        return {measure.name: float("nan") for measure in KIND.measures}
    times = np.asarray(store.times)[ids]
    at = InTime(capture=store.capture[ids], begins=times[:, 0], ends=times[:, 1], attack_begins=times[:, 2])
    found = tells(scores, is_attack, threshold) | in_time(alarms_of(scores, threshold), is_attack, at)
    return {measure.name: float(found.get(measure.name, threshold)) for measure in KIND.measures}
