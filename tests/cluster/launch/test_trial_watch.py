"""The clock of a search that several processes work on."""

import pytest

from graphmill.cluster.launch.trial_watch import SearchClock
from graphmill.record.trials import SearchFolder

LONG_S = 1e6


@pytest.fixture
def folder(tmp_path):
    found = SearchFolder(tmp_path)
    with found.lock(), found.claim(0), found.claim(1), found.claim(2):
        yield found


def test_the_time_of_other_processes_counts_and_that_of_earlier_attempts_once(folder):
    folder.note_spent(0, LONG_S)
    clock = SearchClock(folder, 3 * LONG_S, folder.spent_s())
    clock.begin(1)
    clock.tick(now=True)
    assert clock.spent_s == pytest.approx(LONG_S, rel=1e-3)
    assert not clock.is_over
    folder.note_spent(0, 3 * LONG_S)  # by the process that is at it
    clock.tick(now=True)
    assert clock.is_over
    again = SearchClock(folder, LONG_S, folder.spent_s())
    again.begin(0)
    assert again.spent_s == pytest.approx(3 * LONG_S, rel=1e-3)


def test_time_that_this_process_has_noted_counts_once(folder):
    clock = SearchClock(folder, LONG_S, folder.spent_s())
    clock.begin(0)
    clock.started -= 1000
    clock.tick(now=True)
    assert (clock.spent_s, folder.spent_s()) == pytest.approx((1000, 1000), rel=1e-2)


def test_a_trial_that_is_resumed_keeps_the_time_of_its_earlier_attempts(folder):
    folder.note_spent(0, 500.0)
    clock = SearchClock(folder, LONG_S, folder.spent_s())
    clock.begin(0)
    clock.started -= 1000
    clock.tick(now=True)
    assert (clock.spent_s, folder.spent_s(0)) == pytest.approx((1500, 1500), rel=1e-2)


def test_what_is_done_between_two_trials_is_of_the_second(folder):
    clock = SearchClock(folder, LONG_S, folder.spent_s())
    clock.started -= 1000
    clock.begin(0)
    clock.end()
    clock.started -= 3000
    clock.begin(1)
    clock.end()
    assert [folder.spent_s(0), folder.spent_s(1)] == pytest.approx([1000, 3000], rel=1e-2)
    assert clock.spent_s == pytest.approx(4000, rel=1e-2)


def test_what_was_noted_before_trials_had_times_of_their_own_counts(folder, tmp_path):
    (tmp_path / "spent.json").write_text('{"seconds": 7.5}')
    folder.note_spent(2, 2.5)
    assert folder.spent_s() == 10.0
