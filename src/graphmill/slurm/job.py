"""One job: what the controller shows of it, how long it has, and what it is told to do with it."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.runtime.deadline import ASK_TIMEOUT_S, Deadline
from graphmill.runtime.job_environment import END_TIME, JobEnvironment
from graphmill.slurm.commands import SlurmError, SlurmKilledError, call, scontrol, squeue
from graphmill.slurm.hostlist import expand_hostlist

_FIELD: Final = re.compile(r"(?:^|\s)(JobState|Reason|Restarts|PreemptTime|ExcNodeList)=(\S+)")
_NOT_SET: Final = (None, "None", "N/A", "Unknown", "NONE", "(null)")
KILL_WAIT_S: Final = 30.0  # the default of slurm.conf


@dataclass(frozen=True, slots=True)
class ShownJob:
    """What `scontrol show job` says of a job."""

    fields: Mapping[str, str]

    @property
    def restarts(self) -> int:
        """How often it was requeued."""
        return int(self.fields.get("Restarts", "0"))

    @property
    def is_out_of_time(self) -> bool:
        """Whether its time limit ends it."""
        return self.fields.get("Reason") == "TimeLimit" or self.fields.get("JobState") == "TIMEOUT"

    @property
    def is_preempted(self) -> bool:
        """Whether a job of higher priority takes its hosts, now or after a grace period."""
        return self.fields.get("JobState") == "PREEMPTED" or self.fields.get("PreemptTime") not in _NOT_SET

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody cancelled it, where neither of the others holds."""
        return self.fields.get("JobState") in ("CANCELLED", "COMPLETING")

    @property
    def excluded_hosts(self) -> list[str]:
        """Hosts that it is not to be given."""
        hosts = self.fields.get("ExcNodeList")
        return [] if hosts is None or hosts in _NOT_SET else expand_hostlist(hosts)


def show_job(job_id: str) -> ShownJob:
    """Ask the controller about a job; without a field, it said nothing of it. Raises `SlurmError`.

    A SIGTERM that is asked about may end scontrol, too; it comes twice at most, to the steps and to the script.
    """
    for _ in range(2):
        with suppress(SlurmKilledError):
            return _shown(job_id)
    return _shown(job_id)


def _shown(job_id: str) -> ShownJob:
    return ShownJob(dict(_FIELD.findall(scontrol(["show", "job", job_id, "-o"]))))


def requeue(job_id: str, *, restarts: int) -> None:
    """Requeue a job unless it is requeued: Slurm may have given up this host, and the job may run elsewhere.

    `restarts`: how often it had been requeued when it began here. Slurm's SIGTERM to all processes of the job may end
    scontrol, too, before it has its answer.
    """
    with suppress(SlurmKilledError):
        if show_job(job_id).restarts > restarts:
            return
    try:
        scontrol(["requeue", job_id])
    except SlurmError:
        if show_job(job_id).restarts <= restarts:
            raise


def exclude_hosts(job_id: str, hosts: Sequence[str]) -> None:
    """Have a job that waits start on other hosts than these."""
    scontrol(["update", f"JobId={job_id}", f"ExcNodeList={','.join(hosts)}"])


def folders_of(job_id: str) -> Iterator[Path]:
    """Folders that Slurm names for a job: its comment if that is one, then its working folder."""
    with suppress(SlurmError):
        options = ["--parsable2", "--noheader", "--allocations", "--format=Comment%500,WorkDir", f"--jobs={job_id}"]
        for line in call("sacct", options)[0].splitlines():
            yield from (Path(cell) for cell in line.split("|") if cell.startswith("/"))
    with suppress(SlurmError):
        shown = scontrol(["show", "job", job_id])
        for name in ("Comment", "WorkDir"):
            match = re.search(rf"^\s*{name}=(/.*?)\s*$", shown, re.MULTILINE)
            if match:
                yield Path(match[1])


def job_deadline(environ: Mapping[str, str], *, moved: bool = False, within_s: float = ASK_TIMEOUT_S) -> Deadline:
    """The end of the Slurm job this process runs in: by its environment, else by squeue, if it answers `within_s`.

    `moved`: the end may have changed since the job began, so the environment is ignored.
    """
    job = JobEnvironment(environ)
    if not job.job_id:
        return Deadline(None, "no job of a scheduler")
    if job.end_time is not None and not moved:
        return Deadline(job.end_time, END_TIME)
    try:
        queued = squeue([job.queue_id], timeout_s=within_s)
    except SlurmError as error:
        return Deadline(None, f"unknown: neither {END_TIME} nor squeue says it: {error.message}")
    own = next((each for each in queued if each.job_id == job.queue_id), None)
    if own is None:
        return Deadline(None, f"unknown: squeue does not list job {job.queue_id}")
    if own.limit_s is None or own.elapsed_s is None:
        return Deadline(None, "no limit, by squeue")
    by_limit = time.time() + own.limit_s - own.elapsed_s
    # A moved end, or a preemption's grace period, shows in `end` only: the limit is in minutes.
    return Deadline(by_limit if own.end is None else min(by_limit, float(own.end)), "squeue")


def kill_wait_s() -> float:
    """Seconds between SIGTERM and SIGKILL for a job whose time is up; Slurm's default if it does not answer."""
    try:
        found = re.search(r"^KillWait\s*=\s*([0-9]+)", scontrol(["show", "config"]), re.MULTILINE)
    except SlurmError:
        found = None
    return float(found[1]) if found else KILL_WAIT_S
