"""Thresholds and measures of alarms, against their definitions and scikit-learn."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score, roc_auc_score
from slow_cases import num_examples

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.threshold import InTime, alarms_of, choose_threshold, in_time, roc_auc, tells

FEW = st.sampled_from([-1.0, 0.0, 0.5, 0.5 + 2**-53, 1.0, 3e300])  # few values: many ties


@st.composite
def judged(draw):
    pairs = draw(st.lists(st.tuples(FEW | st.floats(-10, 10), st.booleans()), min_size=2, max_size=40))
    scores, is_attack = (np.array(column) for column in zip(*pairs, strict=True))
    assume(0 < is_attack.sum() < len(is_attack))
    return scores, is_attack


@given(judged())
def test_auc_is_the_share_of_pairs_in_the_right_order(case):
    scores, is_attack = case
    pairs = list(itertools.product(scores[is_attack], scores[~is_attack]))
    wanted = sum((high > low) + (high == low) / 2 for high, low in pairs) / len(pairs)
    assert roc_auc(scores, is_attack) == pytest.approx(wanted, abs=1e-12)
    assert roc_auc(scores, is_attack) == pytest.approx(roc_auc_score(is_attack, scores), abs=1e-12)


@settings(max_examples=num_examples(30))
@given(judged(), st.floats(-10, 10))
def test_measures_are_those_of_scikit_learn(case, threshold):
    scores, is_attack = case
    alarms = scores >= threshold
    found = tells(scores, is_attack, threshold)
    assert found["f1"] == f1_score(is_attack, alarms, zero_division=0)
    assert found["precision"] == precision_score(is_attack, alarms, zero_division=0)
    assert found["recall"] == recall_score(is_attack, alarms, zero_division=0)
    assert found["accuracy"] == accuracy_score(is_attack, alarms)


@settings(max_examples=num_examples(30))
@given(judged())
def test_no_threshold_is_better_and_none_as_good_has_fewer_alarms(case):
    scores, is_attack = case
    chosen = choose_threshold(scores, is_attack)
    alarms = scores >= chosen.value
    assert chosen.f1 == f1_score(is_attack, alarms)
    for value in np.unique(scores):
        other = scores >= value
        assert f1_score(is_attack, other) <= chosen.f1
        if f1_score(is_attack, other) == chosen.f1:
            assert alarms.sum() <= other.sum()


def test_a_threshold_lies_between_scores():
    scores = np.array([1.0, 2.0, 5.0, 7.0])
    assert choose_threshold(scores, scores > 4).value == 3.5
    assert choose_threshold(scores, np.array([False, True, False, True])).value == 1.5
    assert choose_threshold(scores, np.array([True, True, False, True])).value == 1.0


def test_neighbours_in_float32_stay_apart():
    """What lies between two of them is no float32, and would be rounded to one of them, were it compared as such."""
    low = np.float32(1.0)
    for _ in range(4):
        high = np.nextafter(low, np.float32(2))
        scores = np.array([low, high])
        chosen = choose_threshold(scores, np.array([False, True]))
        assert alarms_of(scores, chosen.value).tolist() == [False, True]
        low = high


@pytest.mark.parametrize("is_attack", [[True, True], [False, False]])
def test_windows_of_one_kind_choose_nothing(is_attack):
    with pytest.raises(UserError, match=f"{sum(is_attack)} are attacked"):
        choose_threshold(np.array([0.0, 1.0]), np.array(is_attack))
    assert np.isnan(roc_auc(np.array([0.0, 1.0]), np.array(is_attack)))


def test_scores_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="1 of 2"):
        choose_threshold(np.array([np.nan, 1.0]), np.array([True, False]))


def _windows(captures):
    """Of captures, each given as windows (begin, end, begin of attack or None)."""
    rows = [(number, *window) for number, windows in enumerate(captures) for window in windows]
    number, begins, ends, attack = zip(*rows, strict=True)
    return InTime(
        np.array(number), np.array(begins), np.array(ends), np.array([np.nan if t is None else t for t in attack])
    ), np.array([t is not None for t in attack])


def test_latency_is_from_the_first_frame_of_an_attack_to_the_end_of_the_first_alarm_in_it():
    at, is_attack = _windows(
        [
            [(0.0, 1.0, None), (1.0, 2.0, 1.5), (2.0, 3.0, 2.0), (3.0, 4.0, None), (4.0, 5.0, 4.25)],
            [(0.0, 1.0, 0.75), (1.0, 2.0, None), (3.5, 4.0, 3.5)],
        ]
    )
    alarms = np.array([True, False, True, False, False, False, True, True])
    found = in_time(alarms, is_attack, at)
    # capture 0 has one attack of windows 1, 2 and 4, told in 2; capture 1 has two, and the first is missed
    assert (found["num_attacks"], found["num_attacks_told"]) == (3, 2)
    assert found["latency_s"] == np.median([3.0 - 1.5, 4.0 - 3.5])
    assert found["latency_worst_s"] == 1.5
    assert found["false_alarms"] == 2
    assert found["false_alarms_per_hour"] == pytest.approx(2 * 3600 / 3.0)  # three windows are benign, of 1 s each
    assert in_time(alarms, is_attack, at, same_attack_s=0.5)["num_attacks"] == 4


def test_captures_without_times_have_no_rate_and_no_attack_no_latency():
    at = InTime(np.zeros(2, np.int64), np.zeros(2), np.zeros(2), np.full(2, np.nan))
    found = in_time(np.array([True, False]), np.zeros(2, bool), at)
    assert np.isnan(found["false_alarms_per_hour"])
    assert np.isnan(found["latency_s"])
    assert found["false_alarms"] == 1
