"""What `submit` says of a job that Slurm has looked at, and its exit status."""

from types import SimpleNamespace

import pytest
import typer

from graphmill.cli.submit import tell_submitted
from graphmill.record.documents import SubmittedJob
from graphmill.slurm.queue import JobReading


@pytest.mark.parametrize(
    ("state", "reason", "status"),
    [
        ("RUNNING", "", 0),
        ("PENDING", "Resources", 0),
        ("COMPLETED", "", 0),
        ("FAILED", "", 1),
        ("PENDING", "JobHeldUser", 0),  # as it was asked for, with --hold
        ("PENDING", "JobHeldAdmin", 1),
    ],
)
def test_a_job_that_has_failed_already_is_no_success(state, reason, status, monkeypatch, capsys):
    reading = JobReading("7", state, "squeue", reason=reason, hosts="host1")
    monkeypatch.setattr("graphmill.cluster.jobs.sbatch.first_state", lambda *_, **__: reading)
    told = 0
    try:
        tell_submitted(SimpleNamespace(path="logs/one"), SubmittedJob(job_id="7", time=0.0), json=False)
    except typer.Exit as left:
        told = left.exit_code
    assert told == status
    assert "job 7" in capsys.readouterr().out
