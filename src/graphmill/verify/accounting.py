"""Slurm's accounting of a run's jobs: from sacct if it answers, else from what the epilog recorded."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.base.retries import retried
from graphmill.record.run_folder import RunFolder
from graphmill.slurm.accounting import Accounted, accounted, ask_for_rows
from graphmill.slurm.commands import SlurmError, is_job_id
from graphmill.verify.check import in_a_line

NOT_ENDED: Final = ("RUNNING", "COMPLETING", "PENDING")
_LAG_S: Final = 10.0  # of the accounting behind the end of a job
_JUST_NOW_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounting records, and their source."""

    entries: list[Accounted]
    source: str
    is_record: bool  # written when the job was about to end, so that it may still count as running

    @property
    def last(self) -> Accounted | None:
        """The last run of the last job; a successor that was cancelled before it started is none."""
        jobs = [
            entry
            for entry in self.entries
            if not entry.step and (entry.state != "CANCELLED" or entry.hosts != "None assigned")
        ]
        return max(jobs, key=lambda entry: (entry.submitted, entry.start or 0), default=None)

    def steps_of(self, job: Accounted) -> list[Accounted]:
        """The steps of one run of a job: a requeued job's runs share their names."""
        mine = [entry for entry in self.entries if entry.step and entry.job_id == job.job_id]
        return [step for step in mine if (step.start or 0) >= (job.start or 0)]


def accounts_of(folder: RunFolder) -> Accounts:
    """What is known of the run's jobs; `UserError` says why nothing is. A job that is just ending is waited for."""
    ids = sorted({job.job_id for job in folder.jobs() if is_job_id(job.job_id)})
    why = "jobs.jsonl names no job"
    if ids and set(ids) <= ended_jobs(folder):  # first: another cluster's jobs have the same numbers
        told = retried(folder.sacct_ended_path, Path.read_bytes)
        return Accounts(read_accounts(told), "sacct there, by pull", is_record=False)
    if ids:
        try:
            accounts = _accounts(ids, time.monotonic() + (_LAG_S if _ended_just_now(folder) else 0))
            why = f"sacct does not know job {', '.join(ids)}"
            if accounts.last is not None:
                return accounts
        except SlurmError as error:
            why = error.message
    if not folder.sacct_path.exists():
        raise UserError(f"{why}, and sacct.json is not there", fix="run verify on the cluster, where sacct answers")
    return Accounts(read_accounts(retried(folder.sacct_path, Path.read_bytes)), f"sacct.json; {why}", is_record=True)


def ended_jobs(folder: RunFolder) -> set[str]:
    """The jobs whose end `pull` heard of from their cluster. `UserError` if what it wrote is damaged."""
    if not folder.sacct_ended_path.exists():
        return set()
    return {entry.job_id for entry in read_accounts(retried(folder.sacct_ended_path, Path.read_bytes))}


def _accounts(ids: list[str], until: float) -> Accounts:
    while True:
        accounts = Accounts(accounted(ask_for_rows(ids)), "sacct", is_record=False)
        last = accounts.last
        if (last is not None and last.state not in NOT_ENDED) or time.monotonic() >= until:
            return accounts
        time.sleep(0.5)


def _ended_just_now(folder: RunFolder) -> bool:
    """Whether the ranks ended so recently that the accounting may lag."""
    with suppress(OSError):
        return time.time() - folder.outcome_path.stat().st_mtime < _JUST_NOW_S
    return False


def read_accounts(content: bytes) -> list[Accounted]:
    """The entries of a sacct.json: rows of sacct by column name. `UserError` if it is not one."""
    try:
        return accounted(dict(row) for row in parse_json(content))
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"sacct.json is damaged: {in_a_line(error)}", fix="write it again: python -m graphmill.diagnose.epilog RUN"
        ) from None
