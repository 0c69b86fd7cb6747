"""How a run, an attempt, a rank or a job ends: the one vocabulary, with exit statuses and whether it is retried.

`outcome.json`, exit statuses, `watch`, `list`, the tables of studies and the decision what follows an attempt all use
these names. Nothing else translates between them.
"""

from dataclasses import dataclass
from typing import Final, Literal

from graphmill.base import exits

EndingName = Literal[
    "done",
    "out_of_time",
    "preempted",
    "stopped",
    "interrupted",
    "lost",
    "io_error",
    "port_busy",
    "bad_request",
    "failed",
]
Phase = Literal[
    "new",  # no run folder yet
    "planned",  # has a plan, was never started
    "waiting",  # its job is in the queue
    "starting",
    "running",
    "closing",  # the ranks have left, the job has not
    "unfinished",  # was started and has no outcome; not checked whether it runs
    "unresponsive",  # no heartbeat and no outcome
    "damaged",  # its plan is not one
    "unreadable",  # not known now: an I/O error
]
"""What a run that has not ended is doing."""
State = EndingName | Phase


@dataclass(frozen=True, slots=True)
class Ending:
    """One way to end."""

    name: EndingName
    exit_status: int  # of the rank, of its launcher and of the job
    resumable: bool  # `--resume` continues from the last checkpoint, and nothing has to be changed first
    retried: bool  # a job starts another attempt without being asked
    text: str
    fails_stage: bool = False  # of a pipeline: the jobs that wait already do not try it again


ENDINGS: Final[dict[str, Ending]] = {
    ending.name: ending
    for ending in (
        Ending("done", exits.DONE, False, False, "all steps are done and the test split was evaluated"),
        Ending("out_of_time", exits.OUT_OF_TIME, True, True, "the job's time limit came near, or was reached"),
        Ending("preempted", exits.OUT_OF_TIME, True, True, "the scheduler took the hosts for another job"),
        Ending("stopped", exits.OUT_OF_TIME, True, False, "stopped on request (Ctrl-C, SIGTERM, `graphmill stop`)"),
        Ending("interrupted", exits.INTERRUPTED, True, False, "stopped at once on a second Ctrl-C"),
        Ending("lost", exits.LOST_A_RANK, True, True, "a rank or a host became unresponsive"),
        Ending("io_error", exits.IO_ERROR, True, True, "a file of the run could not be read or written: an I/O error"),
        Ending("port_busy", exits.PORT_BUSY, True, True, "the rendezvous port was taken by another process", True),
        Ending("bad_request", exits.BAD_REQUEST, False, False, "the plan, the data or the hosts do not fit", True),
        Ending("failed", exits.ANSWER_IS_NO, False, False, "a rank failed", True),
    )
}
DONE: Final = ENDINGS["done"]
FAILED: Final = ENDINGS["failed"]
SAVED: Final = (exits.DONE, exits.OUT_OF_TIME)
"""Exit statuses of a rank whose steps are all in a checkpoint."""


def ending_of(exit_status: int, word: str | None = None) -> Ending:
    """The ending that an exit status means; `word` distinguishes those that share one.

    >>> ending_of(75).name, ending_of(75, "stopped").name, ending_of(137).name
    ('out_of_time', 'stopped', 'failed')
    """
    fitting = [ending for ending in ENDINGS.values() if ending.exit_status == exit_status]
    return next((ending for ending in fitting if ending.name == word), fitting[0] if fitting else FAILED)
