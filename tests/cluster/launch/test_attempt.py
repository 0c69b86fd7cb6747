"""The state machine of a run that is longer than its limit: one test per arrow, and what holds for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.cluster.launch.attempt import AttemptEnd, decide, ending_of

ENDINGS = ("done", "out_of_time", "lost", "port_busy", "failed", "bad_request", "interrupted")


def end(ending, *, number=1, before=0, saved=10, after_idle=False, tries_left=0):
    facts = {"steps_before": before, "steps_saved": saved, "after_idle": after_idle, "tries_left": tries_left}
    return AttemptEnd(ending, number, **facts)


def after(ending, *, by="requeue", most=5, **facts):
    return decide(end(ending, **facts), goes_on_by=by, max_attempts=most)


def test_done_finishes():
    assert (after("done").step, after("done").exit_code) == ("finish", 0)


@pytest.mark.parametrize("by", ["requeue", "follow_up"])
def test_out_of_time_goes_on(by):
    decision = after("out_of_time", by=by)
    assert (decision.step, decision.exit_code) == ("go_on", 75)
    assert f"10 steps further, by {by}" in decision.reason


def test_lost_goes_on_from_the_last_checkpoint():
    assert (after("lost").step, after("lost").exit_code) == ("go_on", 74)


def test_a_busy_port_is_tried_again():
    decision = after("port_busy", tries_left=1)
    assert (decision.step, decision.exit_code) == ("try_again", 69)


def test_ports_are_not_tried_for_ever():
    assert (after("port_busy").step, after("port_busy").exit_code) == ("give_up", 1)


@pytest.mark.parametrize(("ending", "code"), [("failed", 1), ("bad_request", 2), ("interrupted", 130)])
def test_an_error_is_given_up(ending, code):
    assert (after(ending).step, after(ending).exit_code) == ("give_up", code)


@pytest.mark.parametrize("ending", ["out_of_time", "lost"])
def test_the_last_attempt_gives_up(ending):
    assert after(ending, number=4).step == "go_on"
    decision = after(ending, number=5)
    assert decision.step == "give_up"
    assert "attempt 5 of 5 (slurm.max_attempts)" in decision.reason


@pytest.mark.parametrize(("ending", "after_idle"), [("out_of_time", False), ("out_of_time", True), ("lost", True)])
def test_an_attempt_without_progress_gives_up(ending, after_idle):
    decision = after(ending, before=10, saved=10, after_idle=after_idle)
    assert decision.step == "give_up"
    assert "no progress" in decision.reason


def test_a_rank_may_be_lost_once_before_anything_was_saved():
    assert after("lost", before=0, saved=0).step == "go_on"


@pytest.mark.parametrize("ending", ["out_of_time", "lost"])
def test_nothing_follows_where_the_plan_says_so(ending):
    assert after(ending, by="nothing").step == "give_up"


@given(
    ending=st.sampled_from(ENDINGS),
    by=st.sampled_from(("requeue", "follow_up", "nothing")),
    most=st.integers(1, 30),
    number=st.integers(1, 60),
    before=st.integers(0, 100),
    gained=st.integers(0, 100),
    after_idle=st.booleans(),
)
def test_a_run_never_goes_on_for_ever_and_never_claims_to_be_done(ending, by, most, number, before, gained, after_idle):
    facts = {"number": number, "before": before, "saved": before + gained, "after_idle": after_idle}
    decision = after(ending, by=by, most=most, **facts)
    if decision.step == "go_on":
        assert gained > 0 or (ending == "lost" and not after_idle)
        assert number < most
        assert ending in ("out_of_time", "lost")
    assert (decision.exit_code == 0) == (ending == "done")


def test_exit_statuses_have_their_endings():
    named = [ending_of(code) for code in (0, 75, 74, 69, 2, 130)]
    assert named == ["done", "out_of_time", "lost", "port_busy", "bad_request", "interrupted"]
    assert {ending_of(code) for code in (1, 134, 137, 139)} == {"failed"}
