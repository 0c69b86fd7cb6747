"""The state of a run with a successor, by what Slurm says of its jobs; its answers are given here."""

import os
from dataclasses import replace

import pytest

from graphmill.cluster.status import Watcher, log_of
from graphmill.record.documents import Attempt, Outcome, SubmittedJob
from graphmill.slurm.queue import JobReading, Queue
from graphmill.spec.world import World


class Answers(Queue):
    """A queue that knows what it is given."""

    def __init__(self, **states: str) -> None:
        super().__init__()
        self.given = {
            job[1:]: JobReading(job[1:], state, "squeue", hosts="" if never else "node1")
            for job, (state, never) in (
                (job, (state.rstrip("!"), state.endswith("!"))) for job, state in states.items()
            )
        }

    def read(self, jobs):
        return {job.job_id: self.given[job.job_id] for job in jobs if job.job_id in self.given}


@pytest.fixture
def look(new_run):
    folder, _ = new_run(1)
    folder.note_job(SubmittedJob(job_id="17", time=1.0))
    folder.note_job(SubmittedJob(job_id="18", time=2.0, how="resubmit", dependency="afterany:17"))

    def look(told: str | None, **states: str):
        if told is not None:
            folder.write_outcome(Outcome(status=told, exit_code=0, epochs=1, steps_per_rank=4, wall_s=1.0))
        return Watcher([folder], queue=Answers(**states)).look()[0]

    look.folder = folder
    return look


@pytest.mark.parametrize(
    ("told", "states", "state", "job"),
    [
        (None, {"j17": "RUNNING", "j18": "PENDING!"}, "starting", "17"),
        ("done", {"j17": "RUNNING", "j18": "PENDING!"}, "closing", "17"),
        ("done", {"j17": "COMPLETED", "j18": "PENDING!"}, "done", "18"),
        ("done", {"j17": "COMPLETED", "j18": "CANCELLED!"}, "done", "17"),
        ("preempted", {"j17": "PREEMPTED", "j18": "PENDING!"}, "waiting", "18"),
        (None, {"j17": "PREEMPTED", "j18": "CANCELLED"}, "stopped", "18"),
    ],
)
def test_a_successor_that_never_ran_says_nothing_of_the_run(look, told, states, state, job):
    view = look(told, **states)
    assert (view.state, view.job_id) == (state, job)
    assert "CANCELLED" not in view.detail or state == "stopped"


def test_the_time_of_a_job_does_not_go_back_when_its_run_is_done(look):
    """The run's own is of its ranks, which the job starts."""
    ended = {"j17": "COMPLETED", "j18": "CANCELLED!"}
    assert look("done", **ended).elapsed_s == 1.0, "Slurm does not say"
    answers = Answers(**ended)
    answers.given["17"] = replace(answers.given["17"], elapsed_s=44)
    assert Watcher([look.folder], queue=answers).look()[0].elapsed_s == 44


def test_hosts_of_a_run_without_a_job_are_those_of_its_last_attempt(new_run):
    folder, _ = new_run(2)
    for hosts, shown in ((1, "h"), (2, "h and 1 more")):
        world = World(hosts=hosts, ranks=2, threads=1)
        begun = Attempt(time=1.0, hostname="h", pid=1, resumed=False, command=(), code="", world=world)
        with folder.attempts_path.open("a") as file:
            file.write(begun.model_dump_json() + "\n")
        assert Watcher([folder], queue=Answers()).look()[0].hosts == shown


def test_a_job_that_failed_before_it_began_is_told_by_its_log(look):
    """A module that does not exist ends the script before any process of ours: only its log has the reason."""
    look.folder.job_log_path("18").write_text("Loading...\nLmod: these modules are unknown: gcc/99\n\n")
    view = look(None, j17="COMPLETED", j18="FAILED")
    assert view.state == "failed"
    assert view.detail.endswith("; its log ends with: Lmod: these modules are unknown: gcc/99")
    assert "log ends" not in look(None, j17="COMPLETED", j18="CANCELLED").detail


def test_code_that_changed_between_attempts_is_shown(look):
    for code in ("a", "b"):
        begun = Attempt(time=1.0, hostname="h", pid=1, resumed=code == "b", command=(), code=code)
        with look.folder.attempts_path.open("a") as file:
            file.write(begun.model_dump_json() + "\n")
    assert "before attempt 2" in look(None, j17="RUNNING").detail


OF_THE_END = ("outcome.json", "events/rank_0.jsonl")
FILES = ("plan.json", "attempts.jsonl", "jobs.jsonl", *OF_THE_END)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("what", ["pipe", "device", "noise"])
def test_a_run_whose_files_are_none_does_not_hide_the_others(new_run, name, what):
    """A stranger's folder in a shared logs root may hold a pipe, which is read without end, or a line of noise."""
    folder, _ = new_run(1)
    path = folder.path / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_text("noise\n")
    view = Watcher([folder], queue=Answers()).look()[0]
    assert view.state == ("planned" if name in OF_THE_END else "damaged")
    assert name in OF_THE_END or name in view.detail


def test_a_job_that_runs_is_alive_whatever_its_record_says(new_run):
    folder, _ = new_run(1)
    folder.note_job(SubmittedJob(job_id="17", time=1.0))
    (folder.path / "attempts.jsonl").write_text("noise\n")
    view = Watcher([folder], queue=Answers(j17="RUNNING")).look()[0]
    assert (view.state, view.is_alive, view.job_id) == ("running", True, "17")
    assert "attempts.jsonl" in view.detail


@pytest.mark.parametrize("later", ["rank", "job"])
def test_the_log_that_was_written_to_last_is_the_one_that_is_shown(new_run, later):
    """A run that is resumed has an old log of rank 0, and what its new job printed."""
    folder, _ = new_run(1)
    paths = {"rank": folder.log_path(0), "job": folder.job_log_path("17")}
    for which, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a line\n")
        os.utime(path, (1, 2 if which == later else 1))
    assert log_of(folder, "17") == paths[later]
