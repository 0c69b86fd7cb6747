"""How long a job has: until its end, and from the signal that asks it to end to the one that kills it."""

import re
import time
from collections.abc import Mapping
from typing import Final

from graphmill.runtime.deadline import ASK_TIMEOUT_S, Deadline
from graphmill.runtime.job_environment import END_TIME, JobEnvironment
from graphmill.slurm.commands import SlurmError, scontrol, squeue

KILL_WAIT_S: Final = 30.0  # the default of slurm.conf


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
