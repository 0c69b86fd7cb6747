"""Turn scores of windows into alarms: the threshold, how well alarms tell attacks, how soon, how many are false.

An alarm is a score that is the threshold or more. Nothing here knows what made the scores.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.tasks.false_alarms import HOUR_S, covered_s, threshold_at_rate
from graphmill.tasks.intrusion.data.store import CaptureStore
from graphmill.tasks.intrusion.page import KIND

SAME_ATTACK_S: Final = 1.0
"""Attacked windows that begin no later than this after the end of the one before belong to one stretch of attack."""

Scores = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Threshold:
    """The score from which on a window is an alarm."""

    value: float
    f1: float
    """On the windows it was chosen on."""


@dataclass(frozen=True, slots=True)
class InTime:
    """Where windows lie in time [num_windows each], in the order of their captures."""

    capture: NDArray[np.int64]
    """The number of the capture; its windows stand together."""
    begins: NDArray[np.float64]
    """Seconds, of the first frame."""
    ends: NDArray[np.float64]
    """Seconds, of the last frame."""
    attack_begins: NDArray[np.float64]
    """Seconds, of the first frame that is an attack; read where a window is attacked only."""


def choose_threshold(scores: Scores, is_attack: Flags) -> Threshold:
    """The threshold with the highest F1 on `scores` [n], where `is_attack` [n] is the truth.

    Of several with the same F1 it is the one with the fewest alarms. It lies half way between the lowest score that is
    an alarm and the highest that is none, so that rounding decides nothing; if all are alarms, on the lowest.

    Raises:
        UserError: all windows are attacked, or none is: then every threshold, or none, has the F1 of 1.
    """
    _refuse_nan(scores)
    refuse_one_kind(is_attack, "a threshold cannot be chosen")
    values, places = np.unique(np.asarray(scores, np.float64), return_inverse=True)
    hits = _from_the_top(np.bincount(places[is_attack], minlength=len(values)))
    alarms = _from_the_top(np.bincount(places, minlength=len(values)))
    f1 = 2 * hits / (alarms + is_attack.sum())
    best = int(np.flatnonzero(f1 == f1.max())[-1])  # F1s that are equal are quotients of whole numbers that are equal
    value = float(values[best])
    if best > 0:
        between = value - (value - float(values[best - 1])) / 2
        value = between if between > values[best - 1] else value
    return Threshold(value, float(f1[best]))


def refuse_one_kind(is_attack: Flags, what: str) -> None:
    """`UserError` with `what` cannot be done, if all windows are attacked, or none is."""
    if is_attack.all() or not is_attack.any():
        raise UserError(
            f"{what} on {len(is_attack):,} windows of which {int(is_attack.sum()):,} are attacked",
            fix="take validation windows of both kinds: another split, or captures with and without attacks",
        )


def alarms_of(scores: Scores, threshold: float) -> Flags:
    """Which scores [n] are alarms, in float64: in float32 the threshold could be rounded past a score."""
    alarms: Flags = np.asarray(scores, np.float64) >= threshold
    return alarms


def roc_auc(scores: Scores, is_attack: Flags) -> float:
    """The probability that an attacked window scores higher than another, ties counting half; NaN without either."""
    _refuse_nan(scores)
    num_attacked = int(is_attack.sum())
    num_others = len(scores) - num_attacked
    if not num_attacked or not num_others:
        return float("nan")
    _, places, counts = np.unique(np.asarray(scores, np.float64), return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # the mean rank, from 1, of those that are equal
    return float((ranks[places][is_attack].sum() - num_attacked * (num_attacked + 1) / 2) / (num_attacked * num_others))


def tells(scores: Scores, is_attack: Flags, threshold: float) -> dict[str, float]:
    """F1, precision, recall, accuracy and AUC of the alarms; as scikit-learn, 0 where a quotient has no denominator."""
    alarms = alarms_of(scores, threshold)
    hits = int((alarms & is_attack).sum())
    num_alarms, num_attacked = int(alarms.sum()), int(is_attack.sum())
    return {
        "f1": 2 * hits / max(num_alarms + num_attacked, 1),
        "auc": roc_auc(scores, is_attack),
        "precision": hits / max(num_alarms, 1),
        "recall": hits / max(num_attacked, 1),
        "accuracy": float((alarms == is_attack).mean()) if len(alarms) else float("nan"),
    }


def in_time(alarms: Flags, is_attack: Flags, at: InTime, same_attack_s: float = SAME_ATTACK_S) -> dict[str, float]:
    """How soon attacks are detected, and how many alarms per hour are false.

    - `num_attacks`: stretches of attack: attacked windows of a capture with at most `same_attack_s` between them
    - `num_attacks_told`: those of which an attacked window is an alarm
    - `latency_s`, `latency_worst_s`: median and maximum, over the attacks that were told, of the time from the first
      frame of the attack to the last frame of the first such window, for only then is a window known; NaN if none was
    - `false_alarms_per_hour`: alarms of windows without attack, by the hours that those windows cover; NaN where the
      captures have no times
    """
    latencies, num_attacks = [], 0
    for rows in _stretches(is_attack, at, same_attack_s):
        num_attacks += 1
        told = rows[alarms[rows]]
        if len(told):
            latencies.append(max(0.0, float(at.ends[told[0]] - at.attack_begins[rows[0]])))
    seconds = benign_s(is_attack, at)
    false_alarms = int((alarms & ~is_attack).sum())
    return {
        "num_attacks": num_attacks,
        "num_attacks_told": len(latencies),
        "latency_s": float(np.median(latencies)) if latencies else float("nan"),
        "latency_worst_s": max(latencies, default=float("nan")),
        "false_alarms": false_alarms,
        "false_alarms_per_hour": false_alarms * HOUR_S / seconds if seconds > 0 else float("nan"),
    }


def benign_s(is_attack: Flags, at: InTime) -> float:
    """Seconds that the windows without attack cover; NaN where the captures have no times."""
    captures = (rows[~is_attack[rows]] for rows in _captures(at))
    return sum(covered_s(at.begins[rows], at.ends[rows]) for rows in captures)


def threshold_of_benign(scores: Scores, is_attack: Flags, at: InTime, per_hour: float) -> float:
    """The threshold with `per_hour` false alarms in an hour, by the windows [n] without attack alone."""
    _refuse_nan(scores)
    return threshold_at_rate(scores[~is_attack], benign_s(is_attack, at), per_hour)


def _stretches(is_attack: Flags, at: InTime, same_attack_s: float) -> Iterator[NDArray[np.int64]]:
    """The attacked windows of each stretch of attack, in order."""
    for capture in _captures(at):
        rows = capture[is_attack[capture]]
        breaks = np.flatnonzero(at.begins[rows[1:]] - at.ends[rows[:-1]] > same_attack_s) + 1
        yield from (part for part in np.split(rows, breaks) if len(part))


def _captures(at: InTime) -> Iterator[NDArray[np.int64]]:
    """The windows of each capture."""
    rows = np.arange(len(at.capture))
    yield from (part for part in np.split(rows, np.flatnonzero(np.diff(at.capture)) + 1) if len(part))


def _from_the_top(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    sums: NDArray[np.int64] = counts[::-1].cumsum()[::-1]
    return sums


def _refuse_nan(scores: Scores) -> None:
    if np.isnan(scores).any():
        raise ValueError(f"{int(np.isnan(scores).sum())} of {len(scores)} scores are no numbers")


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
