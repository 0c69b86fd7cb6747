"""Is it time to stop? Signals, clocks and what a warning means."""

import os
import signal
import time

import pytest

from graphmill.runtime.deadline import Deadline
from graphmill.runtime.stop import StopRequest
from graphmill.train.time_left import NO_DEADLINE, TimeLeft


def ends_in(seconds: float) -> Deadline:
    return Deadline(time.time() + seconds, "a test")


def warned() -> StopRequest:
    stop = StopRequest()
    stop.warned = True
    return stop


def test_without_a_deadline_only_a_signal_stops():
    time_left = TimeLeft(StopRequest())
    assert not time_left.is_up()
    time_left.stop.requested = True
    assert time_left.is_up()


@pytest.mark.parametrize(("left_s", "is_up"), [(1000, False), (100, True), (-5, True)])
def test_the_reserve_is_what_was_measured(left_s, is_up):
    time_left = TimeLeft(StopRequest(), ends_in(left_s))
    time_left.reserve.saw_round(60)
    time_left.reserve.saw_save(30)
    assert time_left.is_up() is is_up
    if is_up:
        assert "a round took up to 60.0 s here, a checkpoint 30.0" in time_left.why()


def test_a_warning_makes_it_ask_again_and_go_on_where_there_is_time():
    asked, later = [], ends_in(500)
    time_left = TimeLeft(warned(), ends_in(1000), lambda within_s: asked.append(1) or later)
    assert not time_left.is_up()
    assert not time_left.is_up()
    assert len(asked) == 1
    assert time_left.deadline is later


def test_it_asks_once_more_before_it_leaves_and_stays_where_the_limit_was_extended():
    asked, extended = [], ends_in(1000)
    time_left = TimeLeft(StopRequest(), ends_in(15), lambda within_s: asked.append(1) or extended)
    time_left.reserve.saw_round(60)  # 90 s are kept back
    assert not time_left.is_up()
    assert time_left.deadline is extended
    assert len(asked) == 1


@pytest.mark.parametrize("answer", [Deadline(None, "unknown: no squeue"), None])
def test_it_asks_early_and_late_and_no_more_where_the_limit_was_not_extended(answer):
    asked, end = [], ends_in(15)
    time_left = TimeLeft(StopRequest(), end, lambda within_s: asked.append(within_s) or answer or end)
    for _ in range(2):
        assert not time_left.is_up(), "there is time to wait for the answer"
    assert asked == [20.0]
    time_left.reserve.saw_round(60)
    for _ in range(2):
        assert time_left.is_up()
    assert len(asked) == 2
    assert asked[1] < 4, "a quarter of what is left"


def test_a_limit_that_is_extended_after_it_was_asked_for_is_seen_when_it_counts():
    end, later = ends_in(15), ends_in(1000)
    answers = [end, later]
    time_left = TimeLeft(StopRequest(), end, lambda within_s: answers.pop(0))
    assert not time_left.is_up()
    assert time_left.deadline is end
    time_left.reserve.saw_round(60)
    assert not time_left.is_up()
    assert time_left.deadline is later
    assert not answers


def test_a_limit_that_was_extended_is_asked_for_again_before_it_counts():
    answers = [ends_in(500), ends_in(5000)]
    time_left = TimeLeft(StopRequest(), ends_in(15), lambda within_s: answers.pop(0))
    for round_s in (60, 1000):
        time_left.reserve.saw_round(round_s)
        assert not time_left.is_up()
    assert not answers


def test_an_answer_that_is_no_later_does_not_move_the_end():
    """squeue counts in minutes."""
    end = ends_in(15)
    time_left = TimeLeft(StopRequest(), end, lambda within_s: Deadline(end.end_time - 10, "squeue"))
    assert not time_left.is_up()
    assert time_left.deadline is end


def test_a_limit_that_was_shortened_is_found_by_the_warning():
    assert TimeLeft(warned(), ends_in(1000), lambda within_s: ends_in(1)).is_up()


def test_where_nobody_knows_the_end_a_warning_means_now():
    time_left = TimeLeft(warned(), ends_in(1000), lambda within_s: Deadline(None, "unknown: no squeue"))
    assert time_left.is_up()
    assert "unknown: no squeue" in time_left.why()


def test_ranks_that_do_not_watch_the_clock_leave_a_warning_to_rank_0():
    assert not TimeLeft(warned(), NO_DEADLINE).is_up()


def test_the_warning_is_usr2_and_sets_a_flag(monkeypatch):
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)}
    try:
        stop = StopRequest()
        stop.install()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert (stop.warned, stop.requested) == (True, False)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize(
    ("left_s", "by", "ending"),
    [
        (1000, signal.SIGINT, "stopped"),
        (1, signal.SIGINT, "stopped"),
        (1, None, "out_of_time"),
        (1000, None, "stopped"),  # another rank's wish
    ],
)
def test_what_the_decision_to_stop_is_called(left_s, by, ending):
    stop = StopRequest()
    if by is not None:
        stop.requested, stop.signal = True, by
    time_left = TimeLeft(stop, ends_in(left_s))
    time_left.reserve.saw_round(60)
    assert time_left.ending() == ending
