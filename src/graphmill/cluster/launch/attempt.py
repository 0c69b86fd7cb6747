"""What follows an attempt inside a job: the state machine of a run that is longer than its time limit. Pure.

    waiting ──starts──▶ training ──all steps done────────────────▶ done           job: exit 0
                          │
                          ├─time is nearly up (USR2), or reached──▶ out_of_time    requeue, or a new job
                          ├─the scheduler takes the hosts─────────▶ preempted      the same
                          ├─a rank or host became unresponsive────▶ lost           the same, from the last checkpoint
                          ├─a file of the run cannot be read now──▶ io_error       the same
                          ├─the port was taken before step 1──────▶ port_busy      the ranks start again, other port
                          ├─a signal ended a rank, or srun────────▶ failed         the same, `slurm.retries` times
                          └─SIGTERM, an error ────────────────────▶ stopped …      give up

Which endings are retried: `Ending.retried`. A failure is only where a rank had no word of its own: an exception of
Python's would be raised again, what the kernel or a fault of the host ended need not be. A retried attempt gives up
instead if it was the last one allowed, or got no further than the one before: the next would get no further, either.
A rank may be lost, and a disk fail, at any moment, so there it takes two; that others take the hosts says nothing about
the run, and neither does the rest of a job that another run has used. A host that dies takes the driver with it, or its
job is ended by Slurm: then this code does not run. Slurm itself requeues the job (`#SBATCH --requeue`), or the
successor that waits for its end judges (`jobs/next_job.py`).
"""

from dataclasses import dataclass
from typing import Literal

from graphmill.base import exits
from graphmill.record.endings import DONE, Ending
from graphmill.spec.job.options import OnTimeLimit

Follow = OnTimeLimit | Literal["next_job"]
"""How a job is followed by another; `next_job`: by the one that waits in a pipeline's chain already."""
_BY_CHANCE = ("lost", "io_error")  # may happen before anything is saved, and need not happen again


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended, and what it achieved."""

    ending: Ending
    number: int  # from 1
    steps_before: int | None  # of each rank, by the checkpoint it began with; None: unknown, which decides nothing
    steps_saved: int | None  # of each rank, by the latest checkpoint now
    after_idle: bool = False  # the attempt before it had saved nothing new either, or could not read it either
    is_second_in_job: bool = False  # it had only the rest of a job's time
    retries_left: int = 0  # after a failure that another try may mend; 0 after any other
    tries_left: int = 0  # other ports that may still be tried for the rendezvous


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows an attempt, and why."""

    step: Literal["finish", "retry", "other_port", "give_up"]
    reason: str
    exit_code: int  # of the job


def decide(end: AttemptEnd, *, on_time_limit: Follow, max_attempts: int) -> Decision:
    """What follows. One arrow of the state machine each."""
    ending = end.ending
    if ending is DONE:
        return Decision("finish", "the run is done", exits.DONE)
    if ending.name == "port_busy":
        if end.tries_left == 0:
            why = "every port that was tried was taken by another process: `ss -ltnp` on that host shows who has it"
            return Decision("give_up", f"{why}; without slurm.port a free one is taken", exits.ANSWER_IS_NO)
        return Decision("other_port", "the port was taken by another process", exits.PORT_BUSY)
    if not ending.retried and not end.retries_left:
        return Decision("give_up", f"not retried: {ending.text}", ending.exit_status)
    return _retry(end, on_time_limit, max_attempts)


def _retry(end: AttemptEnd, on_time_limit: Follow, max_attempts: int) -> Decision:
    code = end.ending.exit_status
    if on_time_limit == "stop":
        return Decision("give_up", "no other attempt was asked for (slurm.on_time_limit: stop)", code)
    if end.number >= max_attempts:
        return Decision("give_up", f"this was attempt {end.number} of {max_attempts} (slurm.max_attempts)", code)
    if not end.ending.retried:
        many = "the last retry" if end.retries_left == 1 else f"{end.retries_left} retries are left"
        return Decision("retry", f"{end.ending.text}, and {many} (slurm.retries); by {on_time_limit}", code)
    if end.steps_before is None or end.steps_saved is None:
        return _of_unknown_progress(end, on_time_limit)
    return _by_progress(end, end.steps_before, end.steps_saved, on_time_limit)


def _of_unknown_progress(end: AttemptEnd, on_time_limit: Follow) -> Decision:
    code = end.ending.exit_status
    unread = "the checkpoints could not be read, so its progress is not known"
    if end.ending.name == "io_error" and end.after_idle:
        return Decision("give_up", f"{unread}, nor is that of the attempt before it", code)
    return Decision("retry", f"{unread}; by {on_time_limit}", code)


def _by_progress(end: AttemptEnd, before: int, saved: int, on_time_limit: Follow) -> Decision:
    code, name = end.ending.exit_status, end.ending.name
    if saved > before:
        return Decision("retry", f"{saved - before} steps further, by {on_time_limit}", code)
    stayed = f"it began after step {before} and saved nothing later"
    if name == "out_of_time" and end.is_second_in_job:
        return Decision("retry", f"{stayed}, in what was left of the job's time; by {on_time_limit}", code)
    if name == "preempted" or (name in _BY_CHANCE and not end.after_idle):
        return Decision("retry", f"{stayed}, which need not happen again; by {on_time_limit}", code)
    if name in _BY_CHANCE:
        why = f"two attempts in a row made no progress past step {before}"
        return Decision("give_up", f"{why}; exclude the hosts that fail (--sbatch-arg --exclude=…)", code)
    advice = "set a longer slurm.time, or save smaller checkpoints or rounds"
    return Decision("give_up", f"the attempt made no progress: {stayed}; {advice}", code)
