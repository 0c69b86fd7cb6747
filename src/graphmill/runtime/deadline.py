"""How long have I got? When the scheduler will end this job, and how much of that time must be kept back."""

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from graphmill.base.amounts import span_of
from graphmill.runtime.job_environment import END_TIME, JobEnvironment

ASK_TIMEOUT_S: Final = 20.0
_MARGIN: Final = 1.5  # a round or a save may take longer than the longest one so far
_FLOOR_S: Final = 2.0  # for what is not measured: the vote, the outcome, the requeue


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment at which the scheduler ends the job."""

    end_time: float | None  # Unix time, s; None: there is no limit
    source: str  # where it is from, in words

    def remaining_s(self) -> float:
        """Seconds left; infinity if there is no limit."""
        return float("inf") if self.end_time is None else self.end_time - time.time()


def job_deadline(environ: Mapping[str, str], *, moved: bool = False, within_s: float = ASK_TIMEOUT_S) -> Deadline:
    """The end of the Slurm job this process runs in: SLURM_JOB_END_TIME, else by squeue, if it answers `within_s`.

    `moved`: the end may have changed since the job began, so the variable is ignored.
    """
    job = JobEnvironment(environ)
    if not job.job_id:
        return Deadline(None, "no job of a scheduler")
    if job.end_time is not None and not moved:
        return Deadline(job.end_time, END_TIME)
    command = ["squeue", "--noheader", "--jobs", job.queue_id, "--format", "%L|%e"]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=True,
            env={**os.environ, "SLURM_TIME_FORMAT": "standard"},
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Deadline(None, f"unknown: neither {END_TIME} nor squeue says it ({type(error).__name__})")
    left, _, end = answer.stdout.strip().partition("|")
    left_s, end_time = span_of(left), slurm_time(end)
    if left_s is None:
        return Deadline(None, f"no limit: squeue says {left or 'nothing'}")
    by_limit = time.time() + left_s
    # A moved end, or a preemption's grace period, shows in %e (end) only: %L (time left) is of the limit, in minutes.
    return Deadline(by_limit if end_time is None else min(by_limit, end_time), "squeue")


def slurm_time(text: str) -> float | None:
    """Unix time (s) of one of Slurm's times of day, which are local; None for N/A, NONE …"""
    try:
        return time.mktime(time.strptime(text.strip(), "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


@dataclass(slots=True)
class Reserve:
    """What must be left of the time to end in good order, as it was measured here: one round, one save, and the end.

    After the save the ranks leave, and the job's script starts an interpreter that decides what follows: that takes
    about as long as starting this rank's interpreter took, on a busy machine as on an idle one.
    """

    start_s: float = 0.0

    longest_round_s: float = 0.0
    longest_save_s: float = 0.0

    def saw_round(self, seconds: float) -> None:
        """Record how long a round took, from one sync to the next, the evaluation between them included."""
        self.longest_round_s = max(self.longest_round_s, seconds)

    def saw_save(self, seconds: float) -> None:
        """Record how long a checkpoint took."""
        self.longest_save_s = max(self.longest_save_s, seconds)

    @property
    def needed_s(self) -> float:
        """Seconds to keep back."""
        return _FLOOR_S + _MARGIN * (self.longest_round_s + self.longest_save_s + self.start_s)
