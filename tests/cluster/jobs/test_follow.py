"""What follows an attempt inside a job, without a Slurm: from what the run folder holds."""

import errno
import socket
import time

import pytest

from graphmill.base.errors import UnreadableError
from graphmill.cluster.jobs.arguments import parse_arguments
from graphmill.cluster.jobs.in_job import Driver
from graphmill.cluster.jobs.job_end import attempt_end
from graphmill.cluster.jobs.srun_step import Signals
from graphmill.cluster.launch.judge import Judgement
from graphmill.record.documents import Attempt, Outcome
from graphmill.record.endings import ENDINGS
from graphmill.record.events import EventWriter, Failure
from graphmill.record.lock import hold

TIME_UP = Judgement(ENDINGS["out_of_time"], None)
LOST = Judgement(ENDINGS["lost"], None)


def driver_of(folder) -> Driver:
    signals = Signals()
    signals.terminated = True  # in haste: there is no Slurm to ask for an epilog
    words = ["--python=python", "--on-time-limit=requeue", "--max-attempts=9", str(folder.path)]
    return Driver(parse_arguments(words), {"SLURM_JOB_ID": "17"}, signals)


def note_attempts(folder, *steps_saved: int | None) -> None:
    """Attempts that began with checkpoints after so many steps."""
    for number, steps in enumerate(steps_saved):
        begun = Attempt(
            time=float(number), hostname=socket.gethostname(), pid=1, resumed=number > 0, command=(), job_id="17",
            steps_saved=steps,
        )  # fmt: skip
        with folder.attempts_path.open("a") as file:
            file.write(begun.model_dump_json() + "\n")


@pytest.mark.parametrize(
    ("saved", "after_idle"),
    [
        *[((0,), False), ((0, 0), True), ((0, 5), False), ((0, 5, 5), True), ((5, 5, 9), False)],
        *[((0, None), False), ((0, None, 102), False), ((102, None, None), True), ((None,), False)],
    ],
)
def test_an_attempt_after_one_that_saved_nothing_new(new_run, saved, after_idle):
    folder, _ = new_run(2)
    note_attempts(folder, *saved)
    end = attempt_end(folder, LOST, tries_left=0)
    assert (end.number, end.steps_before, end.after_idle) == (len(saved), saved[-1], after_idle)


def test_nothing_follows_once_a_person_has_asked_to_stop(new_run, monkeypatch):
    folder, _ = new_run(2)
    note_attempts(folder, 0)
    monkeypatch.setattr("graphmill.cluster.jobs.job_end.saved_steps", lambda _: 3)
    for asked, steps in ((False, "retry"), (True, "give_up")):
        if asked:
            folder.ask_to_stop()
        assert driver_of(folder)._follow(folder, TIME_UP, tries_left=0).step == steps


@pytest.mark.parametrize(("is_done", "known"), [(False, "io_error"), (True, "done")])
def test_a_job_that_cannot_read_what_its_ranks_left_is_retried(new_run, monkeypatch, is_done, known):
    def ranks(driver, folder, started):
        if is_done:
            folder.write_outcome(Outcome(status="done", exit_code=0, epochs=2, steps_per_rank=8, wall_s=1.0))
        raise UnreadableError(folder.events_path(0), OSError(errno.EIO, "Input/output error"))

    def retry(folder, *_, **__):
        with hold(folder.path):  # whoever continues it finds it free, however long the controller is away
            followed.append(1)

    monkeypatch.setattr(Driver, "_ranks", ranks)
    monkeypatch.setattr("graphmill.cluster.jobs.next_job.retry", retry)
    (folder, _), followed = new_run(2), []
    decision = driver_of(folder).train(folder)
    assert (decision.step, decision.exit_code, followed) == ("retry", 71, [1])
    assert folder.read_outcome().status == known, "what rank 0 recorded is not replaced by what is not known"


def test_a_rank_that_was_lost_in_an_earlier_attempt_is_not_missed_now(new_run):
    folder, _ = new_run(2)
    with EventWriter(folder.events_path(0), rank=0) as events:
        events.write(Failure(message="rank 1 became unresponsive", exit_code=74))
    assert driver_of(folder)._has_missed_a_rank(folder, started=time.time() - 60)
    assert not driver_of(folder)._has_missed_a_rank(folder, started=time.time() + 60)


NO_SLURM = "srun: error: Unable to confirm allocation for job 17: Unable to contact slurm controller (connect failure)"
# Fails as often as `fails` has lines.
SRUN = """#!/bin/sh
here=$(dirname "$0"); echo begun >>"$here/asked"
[ "$(grep -c . "$here/asked")" -gt {fails} ] && exit 75
echo "{said}" >&2; exit 1
"""


@pytest.mark.parametrize(
    ("said", "has_begun", "asked", "status"), [(NO_SLURM, False, 3, 75), (NO_SLURM, True, 1, 1), ("no", False, 1, 1)]
)
def test_ranks_that_slurm_did_not_start_are_started_once_it_answers(
    new_run, tmp_path, monkeypatch, said, has_begun, asked, status
):
    (tmp_path / "srun").write_text(SRUN.format(fails=2, said=said))
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setattr("graphmill.cluster.jobs.in_job._SRUN_AGAIN_S", 0.0)
    folder, _ = new_run(1)
    if has_begun:
        with EventWriter(folder.events_path(0), rank=0) as events:
            events.write(Failure(message="the ranks had begun", exit_code=1))
    driver = driver_of(folder)
    driver.signals.terminated = False
    step = driver._srun([str(tmp_path / "srun")], {"PATH": "/usr/bin:/bin"}, folder, started=time.time() - 60)
    assert (len((tmp_path / "asked").read_text().splitlines()), step.status) == (asked, status)
