"""What is to be stopped is known, or nothing is."""

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster import stop
from graphmill.record.documents import SubmittedJob
from graphmill.slurm.queue import JobReading


class HalfAnAnswer:
    """A queue that knows of job 1, and had no answer for another."""

    def __init__(self) -> None:
        self.troubles = ["squeue: timed out"]

    def read(self, _):
        return {"1": JobReading("1", "RUNNING", "squeue")}


@pytest.mark.parametrize("jobs", [("1", "2"), ("2",)])
def test_a_run_whose_job_slurm_said_nothing_of_is_not_taken_for_ended(new_run, monkeypatch, jobs):
    folders = [new_run(run_id=f"of-{job}")[0] for job in jobs]
    for folder, job in zip(folders, jobs, strict=True):
        folder.note_job(SubmittedJob(job_id=job, time=1.0))
    monkeypatch.setattr(stop, "Queue", HalfAnAnswer)
    with pytest.raises(UserError, match="cannot query Slurm for these jobs: squeue: timed out"):
        stop.find_targets(folders)
