"""What a job that was submitted in advance does: by the run folder, and by Slurm's word for the job before it."""

import itertools
import socket
import time
from typing import get_args

import pytest

from graphmill.cluster.jobs.arguments import parse_arguments
from graphmill.cluster.jobs.driver import Driver
from graphmill.cluster.jobs.next_job import ending_before, predecessor, why_leave
from graphmill.cluster.jobs.srun_step import Signals
from graphmill.record.documents import Attempt, Outcome, SubmittedJob
from graphmill.record.endings import ENDINGS, EndingName
from graphmill.slurm.queue import JobReading, Queue

SUCCESSOR = {"SLURM_JOB_ID": "18"}
STATES = ("", "COMPLETED", "FAILED", "CANCELLED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "TIMEOUT", "OUT_OF_MEMORY")


@pytest.mark.parametrize(
    ("told", "state", "ending"),
    [
        # The driver had its say, and Slurm adds nothing.
        ("done", "COMPLETED", "done"),
        ("done", "PREEMPTED", "done"),
        ("out_of_time", "FAILED", "out_of_time"),
        ("out_of_time", "TIMEOUT", "out_of_time"),
        ("preempted", "PREEMPTED", "preempted"),
        ("preempted", "CANCELLED", "preempted"),
        ("lost", "NODE_FAIL", "lost"),
        ("io_error", "FAILED", "io_error"),
        # A person's wish, which Slurm does not contradict.
        ("stopped", "CANCELLED", "stopped"),
        ("stopped", "", "stopped"),
        ("interrupted", "FAILED", "interrupted"),
        # Slurm did not say so in time.
        ("stopped", "PREEMPTED", "preempted"),
        ("stopped", "NODE_FAIL", "lost"),
        # The driver was killed, and Slurm sent the ranks SIGTERM.
        ("stopped", "FAILED", "lost"),
        ("stopped", "TIMEOUT", "out_of_time"),
        ("failed", "PREEMPTED", "preempted"),
        ("failed", "NODE_FAIL", "lost"),
        # The same error would come again.
        ("failed", "FAILED", "failed"),
        ("failed", "TIMEOUT", "failed"),
        ("bad_request", "FAILED", "bad_request"),
        # The driver had no say.
        (None, "PREEMPTED", "preempted"),
        (None, "NODE_FAIL", "lost"),
        (None, "BOOT_FAIL", "lost"),
        (None, "TIMEOUT", "out_of_time"),
        (None, "CANCELLED", "stopped"),
        (None, "DEADLINE", "stopped"),
        (None, "OUT_OF_MEMORY", "failed"),
        (None, "FAILED", "lost"),
        (None, "COMPLETED", "lost"),
        (None, "", "lost"),
    ],
)
def test_how_the_attempt_before_ended(told, state, ending):
    assert ending_before(told, state).name == ending


def test_a_persons_scancel_is_never_overruled():
    """Whatever the run folder says, but for what the job itself had decided before."""
    for told in (None, *get_args(EndingName)):
        ending = ending_before(told, "CANCELLED")
        assert not ending.retried or (told is not None and ENDINGS[told].retried)


def test_slurms_word_never_ends_what_the_run_folder_continues():
    for told, state in itertools.product(get_args(EndingName), STATES):
        assert ending_before(told, state).retried >= ENDINGS[told].retried


@pytest.fixture
def chain(new_run, monkeypatch):
    """A run whose job 17 has ended in `state`, and the jobs that Slurm was asked about."""

    def make(state: str, *, told: EndingName | None = None, steps_saved=(0,)):
        folder, _ = new_run(2)
        asked: list[str] = []
        for number, steps in enumerate(steps_saved):
            begun = Attempt(
                time=float(number), hostname=socket.gethostname(), pid=1, resumed=number > 0, command=(), job_id="17",
                steps_saved=steps, code="c",
            )  # fmt: skip
            with folder.attempts_path.open("a") as file:
                file.write(begun.model_dump_json() + "\n")
        folder.note_job(SubmittedJob(job_id="17", time=1.0))
        folder.note_job(SubmittedJob(job_id="18", time=2.0, how="resubmit", dependency="afterany:17"))
        if told is not None:
            code = ENDINGS[told].exit_status
            folder.write_outcome(Outcome(status=told, exit_code=code, epochs=0, steps_per_rank=0, wall_s=1.0))

        def read(queue, jobs):
            asked.extend(job.job_id for job in jobs)
            return {"17": JobReading("17", state, "sacct")} if state else {}

        monkeypatch.setattr(Queue, "read", read)
        return folder, asked

    return make


def leave(folder, environ=SUCCESSOR, most=9) -> str:
    return why_leave(folder, environ, max_attempts=most, retries=0)


@pytest.mark.parametrize(
    ("state", "told", "goes_on"),
    [
        ("PREEMPTED", None, True), ("NODE_FAIL", None, True), ("FAILED", None, True), ("", None, True),
        ("CANCELLED", None, False), ("OUT_OF_MEMORY", None, False), ("CANCELLED", "stopped", False),
        ("PREEMPTED", "stopped", True), ("FAILED", "stopped", True), ("FAILED", "failed", False),
        ("COMPLETED", "done", False),
    ],
)  # fmt: skip
def test_a_successor_goes_on_or_leaves(chain, state, told, goes_on):
    folder, _ = chain(state, told=told)
    assert (leave(folder) == "") is goes_on


@pytest.mark.parametrize(("retries", "goes_on"), [(0, False), (1, True)])
def test_a_successor_tries_again_what_may_pass(chain, retries, goes_on):
    folder, _ = chain("FAILED", told="failed")
    assert why_leave(folder, SUCCESSOR, max_attempts=9, retries=retries), "an exception of Python's"
    folder.write_outcome(folder.read_outcome().model_copy(update={"may_pass": True}))
    assert (why_leave(folder, SUCCESSOR, max_attempts=9, retries=retries) == "") is goes_on
    assert why_leave(folder, SUCCESSOR, max_attempts=1, retries=retries)


def test_a_successor_that_leaves_says_why_in_the_run_folder_if_nothing_did(chain):
    folder, _ = chain("CANCELLED")
    why = leave(folder)
    assert folder.read_outcome().status == "stopped"
    assert folder.read_outcome().message == why
    assert "job 17" in why
    assert "CANCELLED" in why


@pytest.mark.parametrize("told", ["done", "out_of_time"])
def test_what_the_run_folder_says_is_not_asked_of_slurm(chain, told):
    folder, asked = chain("", told=told)
    leave(folder)
    assert asked == []


def test_a_stop_ends_the_chain_whatever_became_of_the_job(chain):
    folder, asked = chain("PREEMPTED")
    folder.ask_to_stop()
    assert "stop" in leave(folder)
    assert asked == []


@pytest.mark.parametrize(("steps_saved", "goes_on"), [((0,), True), ((0, 0), False)])
def test_a_driver_that_dies_again_and_again_without_progress_is_not_started_for_ever(chain, steps_saved, goes_on):
    folder, _ = chain("FAILED", steps_saved=steps_saved)
    assert (leave(folder) == "") is goes_on


def test_the_last_attempt_has_no_other(chain):
    folder, _ = chain("PREEMPTED")
    assert "slurm.max_attempts" in leave(folder, most=1)


def test_a_job_that_a_person_submits_always_begins(chain):
    folder, asked = chain("CANCELLED", told="stopped")
    folder.note_job(SubmittedJob(job_id="30", time=3.0))
    assert leave(folder, {"SLURM_JOB_ID": "30"}) == ""
    assert asked == []


def test_a_successor_whose_number_was_not_recorded_is_known_by_its_dependency(chain):
    folder, _ = chain("CANCELLED")
    stray = {"SLURM_JOB_ID": "19", "SLURM_JOB_DEPENDENCY": "afterany:17(unfulfilled)"}
    assert predecessor(folder.jobs(), stray) == "17"
    assert leave(folder, stray)
    assert predecessor(folder.jobs(), {**stray, "SLURM_JOB_DEPENDENCY": "afterany:4711"}) is None, "not of this run"
    assert predecessor(folder.jobs(), {**stray, "SLURM_JOB_DEPENDENCY": "afterok:17"}) is None, "of submit --after"


def test_the_driver_of_such_a_job_begins_nothing_and_ends_with_0(chain, monkeypatch):
    folder, _ = chain("CANCELLED")
    monkeypatch.setattr(Driver, "start", lambda *_: pytest.fail("no rank is started"))
    words = ["--python=python", "--on-time-limit=resubmit", "--max-attempts=9", str(folder.path)]
    began = time.time()
    decision = Driver(parse_arguments(words), SUCCESSOR, Signals()).train(folder)
    assert (decision.step, decision.exit_code) == ("give_up", 0)
    assert all(attempt.time < began for attempt in folder.attempts())
    assert len(folder.jobs()) == 2, "it has no successor of its own"
