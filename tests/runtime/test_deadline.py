"""How long have I got, and how much of it is kept back."""

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.runtime.deadline import Reserve, job_deadline


def test_outside_a_job_there_is_no_limit():
    assert job_deadline({}).remaining_s() == float("inf")


def test_the_variable_is_believed():
    end = int(time.time()) + 1000
    deadline = job_deadline({"SLURM_JOB_ID": "1", "SLURM_JOB_END_TIME": str(end)})
    assert (deadline.end_time, deadline.source) == (end, "SLURM_JOB_END_TIME")


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("2:05|N/A", 125),
        ("2:05|AT", 125),
        ("2:00:00|AT", 3000),  # a moved end, or a preemption's grace
        ("UNLIMITED|N/A", None),
    ],
)
def test_squeue_is_asked_where_the_variable_is_missing(tmp_path, monkeypatch, said, left):
    program = tmp_path / "squeue"
    in_50_minutes = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 3000))
    answer = said.replace("AT", in_50_minutes)
    program.write_text(f'#!/bin/sh\n[ "$3" = 17 ] && echo "{answer}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    deadline = job_deadline({"SLURM_JOB_ID": "17"})
    if left is None:
        assert deadline.end_time is None
        assert "UNLIMITED" in deadline.source
    else:
        assert left - 120 < deadline.remaining_s() <= left


def test_a_task_of_an_array_asks_for_itself(tmp_path, monkeypatch):
    """SLURM_JOB_ID of one of the tasks is the number of the whole array."""
    program = tmp_path / "squeue"
    program.write_text('#!/bin/sh\n[ "$3" = 17_2 ] && echo "2:05|N/A"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    task = {"SLURM_JOB_ID": "17", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "2"}
    assert job_deadline(task).remaining_s() <= 125


def test_without_squeue_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "unknown" in job_deadline({"SLURM_JOB_ID": "17"}).source


@given(st.lists(st.floats(0, 1e4)), st.lists(st.floats(0, 1e4)), st.floats(0, 1e3))
def test_the_reserve_covers_the_longest_round_the_longest_save_and_one_more_process(rounds, saves, start_s):
    reserve = Reserve(start_s=start_s)
    for seconds in rounds:
        reserve.saw_round(seconds)
    for seconds in saves:
        reserve.saw_save(seconds)
    assert reserve.needed_s >= max(rounds, default=0) + max(saves, default=0) + start_s


def test_an_end_that_may_have_moved_is_asked_for_though_the_variable_says_one(tmp_path, monkeypatch):
    program = tmp_path / "squeue"
    program.write_text('#!/bin/sh\necho "2:05|N/A"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    environ = {"SLURM_JOB_ID": "17", "SLURM_JOB_END_TIME": str(int(time.time()) + 9000)}
    assert job_deadline(environ).remaining_s() > 1000
    assert job_deadline(environ, moved=True).remaining_s() <= 125
