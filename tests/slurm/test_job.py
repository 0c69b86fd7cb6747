"""How long a job has. A program on PATH says what squeue says."""

import time

import pytest

from graphmill.slurm.job import job_deadline

JOB = {"SLURM_JOB_ID": "17"}


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """The only program on PATH; it knows the job 17, or 17_2, and is asked for one job."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def make(limit: str, end: str, job: str = "17") -> None:
        line = f"{job}|RUNNING|0:55|{limit}|1|node1|1795259310|1795259310|{end}|debug|None|x"
        program = tmp_path / "squeue"
        program.write_text(f'#!/bin/bash\nif [[ " $* " == *" --jobs={job} "* ]]; then echo "{line}"; fi\n')
        program.chmod(0o755)

    return make


def test_outside_a_job_there_is_no_limit():
    assert job_deadline({}).remaining_s() == float("inf")


def test_the_variable_is_believed():
    end = int(time.time()) + 1000
    deadline = job_deadline({**JOB, "SLURM_JOB_END_TIME": str(end)})
    assert (deadline.end_time, deadline.source) == (end, "SLURM_JOB_END_TIME")


@pytest.mark.parametrize(
    ("limit", "end_in_s", "left"),
    [
        ("3:00", None, 125),
        ("3:00", 3000, 125),
        ("2:00:00", 3000, 3000),  # a moved end, or a preemption's grace
        ("UNLIMITED", None, None),
    ],
)
def test_squeue_is_asked_where_the_variable_is_missing(squeue, limit, end_in_s, left):
    squeue(limit, "N/A" if end_in_s is None else str(int(time.time()) + end_in_s))
    deadline = job_deadline(JOB)
    if left is None:
        assert (deadline.end_time, "no limit" in deadline.source) == (None, True)
    else:
        assert left - 120 < deadline.remaining_s() <= left


def test_a_task_of_an_array_asks_for_itself(squeue):
    """SLURM_JOB_ID of one of the tasks is the number of the whole array."""
    squeue("3:00", "N/A", job="17_2")
    assert job_deadline({**JOB, "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "2"}).remaining_s() <= 125


def test_a_limit_that_has_passed_leaves_no_time(squeue):
    """Slurm looks at limits every half a minute, so a job may live a little longer."""
    squeue("0:30", "N/A")
    assert -120 < job_deadline(JOB).remaining_s() <= -25


def test_without_squeue_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "unknown" in job_deadline(JOB).source


def test_a_job_that_squeue_does_not_list_has_no_known_end(squeue):
    squeue("3:00", "N/A", job="18")
    assert "does not list job 17" in job_deadline(JOB).source


def test_an_end_that_may_have_moved_is_asked_for_though_the_variable_says_one(squeue):
    squeue("3:00", "N/A")
    environ = {**JOB, "SLURM_JOB_END_TIME": str(int(time.time()) + 9000)}
    assert job_deadline(environ).remaining_s() > 1000
    assert job_deadline(environ, moved=True).remaining_s() <= 125
