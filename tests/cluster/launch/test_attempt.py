"""What follows an attempt in a job: one test per arrow of the state machine, and what holds for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.cluster.launch.attempt import AttemptEnd, decide
from graphmill.record.endings import ENDINGS

RETRIED = ("out_of_time", "preempted", "lost", "io_error")
NEVER_RETRIED = ("stopped", "interrupted", "bad_request", "failed")


def end(ending, *, number=1, before=0, saved=10, **facts):
    return AttemptEnd(ENDINGS[ending], number, **{"steps_before": before, "steps_saved": saved, **facts})


def after(ending, *, by="requeue", most=5, **facts):
    return decide(end(ending, **facts), on_time_limit=by, max_attempts=most)


def test_done_finishes():
    assert (after("done").step, after("done").exit_code) == ("finish", 0)


@pytest.mark.parametrize("ending", RETRIED)
@pytest.mark.parametrize("by", ["requeue", "resubmit"])
def test_what_need_not_happen_again_is_retried(ending, by):
    decision = after(ending, by=by)
    assert (decision.step, decision.exit_code) == ("retry", ENDINGS[ending].exit_status)
    assert "10 steps" in decision.reason
    assert by in decision.reason


def test_a_busy_port_is_tried_again_but_not_for_ever():
    assert (after("port_busy", tries_left=1).step, after("port_busy", tries_left=1).exit_code) == ("other_port", 69)
    assert (after("port_busy").step, after("port_busy").exit_code) == ("give_up", 1)


@pytest.mark.parametrize("ending", NEVER_RETRIED)
def test_what_was_asked_for_or_is_wrong_is_not_retried(ending):
    assert (after(ending).step, after(ending).exit_code) == ("give_up", ENDINGS[ending].exit_status)


@pytest.mark.parametrize("ending", RETRIED)
def test_the_last_attempt_gives_up(ending):
    assert after(ending, number=4).step == "retry"
    decision = after(ending, number=5)
    assert decision.step == "give_up"
    assert "slurm.max_attempts" in decision.reason


@pytest.mark.parametrize(("before", "saved"), [(None, None), (None, 0), (0, None)])
@pytest.mark.parametrize("ending", RETRIED)
def test_progress_that_is_not_known_decides_nothing(ending, before, saved):
    for after_idle in (False, True) if ending != "io_error" else (False,):
        decision = after(ending, before=before, saved=saved, after_idle=after_idle)
        assert decision.step == "retry"
        assert "not known" in decision.reason


def test_a_disk_that_answers_two_attempts_in_a_row_nothing_is_given_up():
    decision = after("io_error", before=None, saved=None, after_idle=True)
    assert decision.step == "give_up"
    assert "not known" in decision.reason


@pytest.mark.parametrize(("ending", "after_idle"), [("out_of_time", False), ("lost", True), ("io_error", True)])
def test_an_attempt_without_progress_gives_up(ending, after_idle):
    decision = after(ending, before=10, saved=10, after_idle=after_idle)
    assert decision.step == "give_up"
    assert "no progress" in decision.reason


@pytest.mark.parametrize("ending", ["lost", "io_error"])
def test_chance_may_strike_once_before_anything_was_saved(ending):
    assert after(ending, before=0, saved=0).step == "retry"


def test_hosts_may_be_taken_away_again_and_again_before_anything_was_saved():
    assert after("preempted", before=0, saved=0, after_idle=True).step == "retry"
    assert after("preempted", before=0, saved=0, after_idle=True, number=5).step == "give_up"


@pytest.mark.parametrize(("retries_left", "step"), [(2, "retry"), (1, "retry"), (0, "give_up")])
def test_a_failure_is_retried_as_often_as_was_asked_for(retries_left, step):
    for saved in (0, 10):
        decision = after("failed", saved=saved, retries_left=retries_left)
        assert (decision.step, decision.exit_code) == (step, 1)
    assert after("failed", retries_left=retries_left, number=5).step == "give_up", "slurm.max_attempts counts, too"


def test_the_rest_of_a_job_says_nothing_about_progress():
    assert after("out_of_time", saved=0, is_second_in_job=True).step == "retry"
    assert after("out_of_time", saved=0, is_second_in_job=True, number=5).step == "give_up"
    assert after("failed", saved=0, is_second_in_job=True).step == "give_up"


@pytest.mark.parametrize("ending", RETRIED)
def test_nothing_follows_where_the_plan_says_so(ending):
    assert after(ending, by="stop").step == "give_up"


@given(
    ending=st.sampled_from(sorted(ENDINGS)),
    by=st.sampled_from(("requeue", "resubmit", "stop")),
    most=st.integers(1, 30),
    number=st.integers(1, 60),
    before=st.integers(0, 100),
    gained=st.integers(0, 100),
    after_idle=st.booleans(),
)
def test_a_run_is_never_retried_for_ever_and_never_claims_to_be_done(
    ending, by, most, number, before, gained, after_idle
):
    facts = {"number": number, "before": before, "saved": before + gained, "after_idle": after_idle}
    decision = after(ending, by=by, most=most, **facts)
    if decision.step == "retry":
        assert gained > 0 or ending == "preempted" or (ending in ("lost", "io_error") and not after_idle)
        assert number < most
        assert ending in RETRIED
    assert (decision.exit_code == 0) == (ending == "done")
