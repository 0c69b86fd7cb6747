"""What became of jobs: squeue is queried first, then sacct for what it has forgotten; both may be unavailable.

However many jobs are asked for, a reading costs one call of squeue per cluster, and one of sacct if jobs have left the
queue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from graphmill.slurm.accounting import Accounted, sacct
from graphmill.slurm.commands import QueuedJob, SlurmError, SlurmMissingError, SlurmSilentError, squeue
from graphmill.slurm.states import Phase, phase

Source = Literal["squeue", "sacct"]


class KnownJob(Protocol):
    """A job to ask Slurm about."""

    @property
    def job_id(self) -> str:
        """Job id as Slurm writes it: 17, or 17_3 for a task of an array."""

    @property
    def cluster(self) -> str:
        """Name of the cluster in a federation; empty: the one this host belongs to."""


@dataclass(frozen=True, slots=True)
class JobReading:
    """What Slurm reported about one job. Times are Unix times in seconds."""

    job_id: str
    state: str  # Slurm's word
    source: Source
    reason: str = ""  # of a waiting job: Slurm's word
    elapsed_s: int | None = None
    limit_s: int | None = None
    num_hosts: int = 0
    hosts: str = ""
    start: int | None = None  # of a waiting job: when Slurm expects it to start
    end: int | None = None
    exit_code: int | None = None  # not shown by squeue

    @property
    def phase(self) -> Phase:
        """Whether it waits, runs or has ended."""
        return phase(self.state)

    @property
    def is_alive(self) -> bool:
        """Whether it will run, or runs."""
        return self.phase != "ended"

    @property
    def has_succeeded(self) -> bool:
        """Whether it ended, and well."""
        return self.state == "COMPLETED"

    @property
    def is_cancelled(self) -> bool:
        """Whether a person, or a dependency that can never be met, ended it."""
        return self.state == "CANCELLED"


@dataclass(slots=True)
class Queue:
    """Reads jobs again and again; a job that has ended is not queried again."""

    troubles: tuple[str, ...] = ()  # of the last reading: which queries failed, in words
    is_silent: bool = False  # squeue got no answer then: an unknown job may be alive
    _ended: dict[str, JobReading] = field(default_factory=dict)

    def read(self, jobs: Iterable[KnownJob]) -> dict[str, JobReading]:
        """What is known of the jobs, by id. Of those left out nothing is known, and `troubles` may say why."""
        clusters: dict[str, set[str]] = {}
        known: dict[str, JobReading] = {}
        for job in jobs:
            if job.job_id in self._ended:
                known[job.job_id] = self._ended[job.job_id]
            else:
                clusters.setdefault(job.cluster, set()).add(job.job_id)
        self.troubles, self.is_silent = (), False
        for cluster, ids in clusters.items():
            known.update(self._ask(ids, cluster))
        self._ended.update({job_id: reading for job_id, reading in known.items() if not reading.is_alive})
        return known

    def ask_again(self, job_id: str) -> None:
        """Ask for this job again: it was requeued after its end."""
        self._ended.pop(job_id, None)

    def _ask(self, ids: set[str], cluster: str) -> dict[str, JobReading]:
        known: dict[str, JobReading] = {}
        is_queue_known = True
        try:
            known = {job.job_id: _from_squeue(job) for job in squeue(ids, cluster=cluster) if job.job_id in ids}
        except SlurmError as error:
            is_queue_known = False
            self.is_silent |= isinstance(error, SlurmSilentError)
            self.troubles += (error.message,)
        missing = ids - known.keys()
        if not missing:
            return known
        try:
            accounted = {job.job_id: _from_sacct(job) for job in sacct(missing, cluster=cluster)}  # the last run counts
        except SlurmMissingError as error:
            if not is_queue_known:  # else the run folder says enough of a job that left the queue
                self.troubles += (error.message,)
            return known
        except SlurmError as error:
            self.troubles += (error.message,)
            return known
        for job_id, reading in accounted.items():
            # It has left the queue, so it has ended, whatever sacct, which lags, still reports.
            if job_id in missing and not (is_queue_known and reading.is_alive):
                known[job_id] = reading
        return known


def _from_squeue(job: QueuedJob) -> JobReading:
    return JobReading(
        job_id=job.job_id,
        state=job.state,
        source="squeue",
        reason=job.reason if job.phase == "waits" else "",
        elapsed_s=job.elapsed_s,
        limit_s=job.limit_s,
        num_hosts=job.num_hosts,
        hosts=job.hosts,
        start=job.start,
        end=job.end,
    )


def _from_sacct(job: Accounted) -> JobReading:
    return JobReading(
        job_id=job.job_id,
        state=job.state,
        source="sacct",
        elapsed_s=job.elapsed_s,
        limit_s=job.limit_s,
        num_hosts=job.num_hosts,
        hosts="" if job.hosts == "None assigned" else job.hosts,
        start=job.start,
        end=job.end,
        exit_code=job.exit_code or (128 + job.signal if job.signal else 0),
    )


def alive(jobs: Iterable[KnownJob], readings: Mapping[str, JobReading]) -> list[JobReading]:
    """Readings of the jobs that run or will run, in the order in which the jobs were submitted."""
    ids = dict.fromkeys(job.job_id for job in jobs)
    return [readings[job_id] for job_id in ids if job_id in readings and readings[job_id].is_alive]


def jobs_of_script(script: Path) -> list[QueuedJob]:
    """Our jobs in the queue that have this script, the first submitted first. Raises `SlurmError`."""
    return sorted((job for job in squeue([]) if job.command == str(script)), key=lambda job: job.submitted or 0)
