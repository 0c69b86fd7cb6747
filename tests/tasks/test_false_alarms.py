"""Thresholds at a wanted rate of false alarms: counted by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.tasks.false_alarms import covered_s, threshold_at_rate

SCORES = np.array([1.0, 2.0, 3.0, 4.0, 4.0, 7.0])


@pytest.mark.parametrize(
    ("per_hour", "threshold"),
    [(1, 5.5), (2, 5.5), (3, 3.5), (4, 2.5), (5, 1.5), (6, 1.0), (60, 1.0)],  # two windows share the score 4
)
def test_the_threshold_has_the_wanted_number_of_alarms_or_fewer(per_hour, threshold):
    assert threshold_at_rate(SCORES, 3600.0, per_hour) == threshold


def test_more_windows_than_are_wanted_share_the_highest_score():
    assert threshold_at_rate(np.ones(5), 3600.0, 2) > 1.0


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 50))
def test_no_lower_threshold_would_do(drawn, most):
    scores = np.array(drawn, np.float64)
    alarms = scores >= threshold_at_rate(scores, 3600.0, most)
    assert alarms.sum() <= most
    left = scores[~alarms]
    assert not len(left) or alarms.sum() + (left == left.max()).sum() > most


@pytest.mark.parametrize("seconds", [0.0, float("nan")])
def test_captures_without_times_have_no_rate(seconds):
    with pytest.raises(UserError, match="no times"):
        threshold_at_rate(SCORES, seconds, 6)


def test_a_rate_that_the_traffic_is_too_short_for_is_refused():
    with pytest.raises(UserError, match=r"0\.5 in the 300 s") as refused:
        threshold_at_rate(SCORES, 300.0, 6)
    assert "600 s" in str(refused.value)
    assert "12 an hour" in str(refused.value)


def test_windows_that_overlap_cover_their_time_once():
    begins, ends = np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0])
    assert covered_s(begins, ends) == 4.0
    assert covered_s(begins[:0], ends[:0]) == 0.0
