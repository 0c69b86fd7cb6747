"""Which run belongs to a Slurm job? First what the run folders say, then what Slurm says of the job."""

from contextlib import suppress
from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.record.run_folder import RunFolder, find_runs
from graphmill.slurm.job import folders_of


def find_job(job_id: str, logs_root: Path) -> RunFolder | None:
    """The run that `job_id` ran: by jobs.jsonl below the logs root, else below the folder that the job worked in."""
    for run in find_runs(logs_root) if logs_root.is_dir() else []:
        if _ran(run, job_id):
            return run
    for folder in folders_of(job_id):
        if RunFolder(folder).plan_path.is_file():
            return RunFolder(folder)
        below = folder / logs_root.name
        for run in find_runs(below) if below.is_dir() else []:
            if _ran(run, job_id):
                return run
    return None


def _ran(run: RunFolder, job_id: str) -> bool:
    with suppress(UserError, OSError):
        return any(job.job_id == job_id for job in run.jobs())
    return False
