"""Slurm's accounting of a run's jobs: from sacct if it answers, else from what the epilog recorded."""

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.record.run_folder import RunFolder
from graphmill.slurm.accounting import ask_for_rows
from graphmill.slurm.commands import SlurmError, is_job_id
from graphmill.verify.check import in_a_line

NOT_ENDED: Final = ("RUNNING", "COMPLETING", "PENDING")
_LAG_S: Final = 10.0  # of the accounting behind the end of a job
_JUST_NOW_S: Final = 60.0
_STEP: Final = re.compile(r"([0-9]+(?:_[0-9]+)?)\.(\S+)")


@dataclass(frozen=True, slots=True)
class Accounted:
    """One run of a job, or of a step of it. A requeued job has several."""

    job_id: str
    step: str  # "" for the job itself; else batch, extern, 0, 1 …
    state: str  # one word: "CANCELLED by 1000" is CANCELLED
    exit_code: int
    num_hosts: int
    hosts: str  # as Slurm writes them: node[1-2]
    elapsed_s: int | None
    limit_s: int | None
    submitted: int  # Unix time, s
    started: int  # 0: never


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
        return max(jobs, key=lambda entry: (entry.submitted, entry.started), default=None)

    def steps_of(self, job: Accounted) -> list[Accounted]:
        """The steps of one run of a job: a requeued job's runs share their names."""
        mine = [entry for entry in self.entries if entry.step and entry.job_id == job.job_id]
        return [step for step in mine if step.started >= job.started]


def accounts_of(folder: RunFolder) -> Accounts:
    """What is known of the run's jobs; `UserError` says why nothing is. A job that is just ending is waited for."""
    ids = sorted({job.job_id for job in folder.jobs() if is_job_id(job.job_id)})
    why = "jobs.jsonl names no job"
    if ids and set(ids) <= ended_jobs(folder):  # first: another cluster's jobs have the same numbers
        return Accounts(read_accounts(folder.sacct_ended_path.read_bytes()), "sacct there, by pull", is_record=False)
    if ids:
        try:
            accounts = _asked(ids, time.monotonic() + (_LAG_S if _ended_just_now(folder) else 0))
            why = f"sacct does not know job {', '.join(ids)}"
            if accounts.last is not None:
                return accounts
        except SlurmError as error:
            why = error.message
    if not folder.sacct_path.exists():
        raise UserError(f"{why}, and sacct.json is not there", fix="run verify on the cluster, where sacct answers")
    return Accounts(read_accounts(folder.sacct_path.read_bytes()), f"sacct.json; {why}", is_record=True)


def ended_jobs(folder: RunFolder) -> set[str]:
    """The jobs whose end `pull` heard of from their cluster. `UserError` if what it wrote is damaged."""
    if not folder.sacct_ended_path.exists():
        return set()
    return {entry.job_id for entry in read_accounts(folder.sacct_ended_path.read_bytes())}


def _asked(ids: list[str], until: float) -> Accounts:
    while True:
        accounts = Accounts(from_rows(ask_for_rows(ids)), "sacct", is_record=False)
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
        return from_rows(dict(row) for row in parse_json(content))
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"sacct.json is damaged: {in_a_line(error)}", fix="write it again: python -m graphmill.diagnose.epilog RUN"
        ) from None


def from_rows(rows: Iterable[Mapping[str, Any]]) -> list[Accounted]:
    """The entries of sacct's rows. KeyError if a column is missing."""
    entries = []
    for row in rows:
        name, minutes = str(row["JobID"]), _count(row["TimelimitRaw"])
        match = _STEP.fullmatch(name)
        entries.append(
            Accounted(
                job_id=match[1] if match else name,
                step=match[2] if match else "",
                state=(str(row["State"]).split() or [""])[0],
                exit_code=_count(str(row["ExitCode"]).partition(":")[0]) or 0,
                num_hosts=_count(row["NNodes"]) or 0,
                hosts=str(row["NodeList"]),
                elapsed_s=_count(row["ElapsedRaw"]),
                limit_s=None if minutes is None else minutes * 60,
                submitted=_count(row["Submit"]) or 0,
                started=_count(row["Start"]) or 0,
            )
        )
    return entries


def _count(text: object) -> int | None:
    """A number as Slurm writes it; None for its placeholders: UNLIMITED, Unknown, nothing."""
    number = str(text)
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 20 else None
