"""Whether a job that was submitted in advance has anything to do, by what became of the job before it.

    what the run folder says    what Slurm says            the attempt before ended as    this job
    done                        anything                   done                           leaves
    out_of_time, preempted …    anything                   the same                       goes on
    failed, bad_request …       PREEMPTED, NODE_FAIL …     preempted, lost                goes on
    failed, bad_request …       anything else              the same                       leaves, or goes on
                                                                                          by slurm.retries
    stopped                     CANCELLED, or nothing      the same                       leaves
    stopped                     anything else              as if the run folder said      goes on
                                                           nothing: Slurm ended the ranks
    nothing                     PREEMPTED, NODE_FAIL …     preempted, lost                goes on
    nothing                     TIMEOUT                    out_of_time                    goes on
    nothing                     CANCELLED                  stopped: by a person           leaves
    nothing                     OUT_OF_MEMORY              failed                         leaves
    nothing                     FAILED, or nothing         lost: its driver is gone       goes on

A driver that has its say cancels its successor where nothing is to follow, or leaves word that a stop was requested.
What goes on is bounded as in any other job (`launch/attempt.py`): by `slurm.max_attempts` and by progress.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.job_end import attempt_end
from graphmill.cluster.jobs.next_job import predecessor
from graphmill.cluster.launch.attempt import decide
from graphmill.cluster.launch.judge import Judgement, note_outcome
from graphmill.record.documents import SubmittedJob
from graphmill.record.endings import ENDINGS, FAILED, Ending, EndingName
from graphmill.record.run_folder import RunFolder
from graphmill.slurm.queue import Queue

_TAKEN_AWAY: Final[Mapping[str, EndingName]] = {"PREEMPTED": "preempted", "NODE_FAIL": "lost", "BOOT_FAIL": "lost"}
_BY_SLURM: Final[Mapping[str, EndingName]] = {
    **_TAKEN_AWAY,
    "TIMEOUT": "out_of_time",
    "CANCELLED": "stopped",
    "DEADLINE": "stopped",
    "OUT_OF_MEMORY": "failed",
}
_ASK_FOR_S: Final = 60.0
_ASK_EVERY_S: Final = 3.0


def ending_before(told: EndingName | None, state: str) -> Ending:
    """How the attempt before ended, by the run folder and by Slurm's word for its job; "": Slurm does not know it.

    >>> ending_before(None, "CANCELLED").name, ending_before("stopped", "PREEMPTED").name, ending_before(None, "").name
    ('stopped', 'preempted', 'lost')
    """
    if told is None or (told == "stopped" and state):  # SIGTERM came to the ranks: it says not from whom
        return ENDINGS[_BY_SLURM.get(state, "lost")]
    if told == "done" or ENDINGS[told].retried:
        return ENDINGS[told]
    return ENDINGS[_TAKEN_AWAY.get(state, told)]


def why_leave(folder: RunFolder, environ: Mapping[str, str], *, max_attempts: int, retries: int) -> str:
    """Why this job has nothing to do; "" if it goes on, as one does that a person has submitted."""
    before, attempts = predecessor(folder.jobs(), environ), folder.attempts()
    if before is None or not attempts:
        return ""
    if folder.is_asked_to_stop():
        return "a stop was requested (graphmill stop)"
    told: EndingName | None = None
    may_pass = False
    with suppress(UserError):  # damaged: Slurm's word is left
        outcome = folder.read_outcome()
        told, may_pass = (None, False) if outcome is None else (outcome.status, outcome.may_pass)
    if told == "done":
        return "the run is done"
    state = "" if told is not None and ENDINGS[told].retried else _state(before)
    ending = ending_before(told, state)
    judgement = Judgement(ending, None, may_pass=may_pass and ending is FAILED)
    end = attempt_end(folder, judgement, tries_left=0, retries=retries)
    decision = decide(end, on_time_limit="resubmit", max_attempts=max_attempts)
    if decision.step == "retry":
        return ""
    why = f"job {before} ended{f' as {state}' if state else ''}; {decision.reason}"
    if told is None:
        note_outcome(folder, judgement, attempts[-1].time, message=why)
    return why


def _state(job: str) -> str:
    """Slurm's word for an ended job; "" if it does not know it, or does not answer for a minute."""
    queue, known = Queue(), SubmittedJob(job_id=job, time=0.0)
    until = time.monotonic() + _ASK_FOR_S
    while True:
        reading = queue.read([known]).get(job)
        if reading is not None or not queue.is_silent or time.monotonic() >= until:
            return "" if reading is None else reading.state
        time.sleep(_ASK_EVERY_S)
