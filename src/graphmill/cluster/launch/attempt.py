"""What follows an attempt: the state machine of a run that is longer than its time limit. Pure.

    waiting ──starts──▶ training ──all steps done────────────────▶ done           job: exit 0
                          │
                          ├─time is nearly up, USR2 or SIGTERM──▶ out_of_time     saved; goes on: requeue or follow-up
                          ├─the limit strikes within a round─────▶ out_of_time     goes on from the last checkpoint
                          ├─a rank or host fell silent───────────▶ lost           goes on from the last checkpoint
                          ├─the port was taken before step 1─────▶ port_busy      the ranks start again, other port
                          └─an error, a killed rank, no memory───▶ failed         gives up, with the first error

An attempt that would go on gives up instead where it was the last one allowed, or got no further than the one before:
the next would stand where this one did. A rank may be lost at any moment, on any host, so there it takes two. A host
that dies takes the batch script with it, or its job is ended by Slurm: then Slurm itself requeues the job (`#SBATCH
--requeue`) and nothing here is asked; the next attempt resumes.
"""

from dataclasses import dataclass
from typing import Literal

from graphmill.base import exits

Ending = Literal["done", "out_of_time", "lost", "port_busy", "failed", "bad_request", "interrupted"]
Way = Literal["requeue", "follow_up", "nothing"]

_ENDING_OF = {
    exits.DONE: "done",
    exits.OUT_OF_TIME: "out_of_time",
    exits.LOST_A_RANK: "lost",
    exits.PORT_BUSY: "port_busy",
    exits.BAD_REQUEST: "bad_request",
    130: "interrupted",
}


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended, and what it achieved."""

    ending: Ending
    number: int  # from 1
    steps_before: int  # of each rank, by the checkpoint it began with
    steps_saved: int  # of each rank, by the latest checkpoint now
    after_idle: bool = False  # the attempt before it had saved nothing new either
    tries_left: int = 0  # other ports that the ranks may still try to meet at


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now."""

    step: Literal["finish", "go_on", "try_again", "give_up"]
    reason: str
    exit_code: int  # of the job


def ending_of(exit_code: int) -> Ending:
    """The ending that a rank's exit status stands for."""
    return _ENDING_OF.get(exit_code, "failed")  # type: ignore[return-value]  # its values are endings


def decide(end: AttemptEnd, *, goes_on_by: Way, max_attempts: int) -> Decision:
    """What follows. One arrow of the state machine each."""
    match end.ending:
        case "done":
            return Decision("finish", "the run is done", exits.DONE)
        case "port_busy":
            if end.tries_left == 0:
                return Decision("give_up", "every port that was tried was taken meanwhile", exits.ANSWER_IS_NO)
            return Decision("try_again", "the port was taken meanwhile", exits.PORT_BUSY)
        case "failed" | "bad_request" | "interrupted":
            code = {"failed": exits.ANSWER_IS_NO, "bad_request": exits.BAD_REQUEST, "interrupted": 130}[end.ending]
            return Decision("give_up", "an error is not mended by another attempt", code)
        case "out_of_time" | "lost":
            return _goes_on(end, goes_on_by=goes_on_by, max_attempts=max_attempts)


def _goes_on(end: AttemptEnd, *, goes_on_by: Way, max_attempts: int) -> Decision:
    code = exits.OUT_OF_TIME if end.ending == "out_of_time" else exits.LOST_A_RANK
    if goes_on_by == "nothing":
        return Decision("give_up", "the plan says that nothing follows (slurm.goes_on_by: nothing)", code)
    if end.number >= max_attempts:
        return Decision("give_up", f"this was attempt {end.number} of {max_attempts} (slurm.max_attempts)", code)
    if end.steps_saved <= end.steps_before:
        return _without_progress(end, goes_on_by, code)
    return Decision("go_on", f"{end.steps_saved - end.steps_before} steps further, by {goes_on_by}", code)


def _without_progress(end: AttemptEnd, way: Way, code: int) -> Decision:
    began = f"it began after step {end.steps_before} and saved nothing later"
    if end.ending == "out_of_time":
        why = f"the attempt made no progress: {began}, so another would end there too; give it more time, or a smaller"
        return Decision("give_up", f"{why} checkpoint or round", code)
    if end.after_idle:
        why = f"no progress twice running: {began}, as the attempt before it; leave out the hosts that fail"
        return Decision("give_up", f"{why} (--sbatch-arg --exclude=…), or save more often", code)
    return Decision("go_on", f"no step was saved yet, but that need not be so again; by {way}", code)
