"""How an attempt ended: which rank failed first, what that makes of the run, and how it is written down and reported.

The one judge, for every launcher. A launcher brings what it saw (`AttemptEvidence`): exits of ranks with their times
(local, SSH), lines of srun (Slurm), hosts that were lost (SSH), why the ranks were asked to stop. The rest is read from
the run folder: what each rank wrote as its last event, and rank 0's outcome. So the same death has the same outcome
record wherever it happens.
"""

import re
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base import exits
from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.foreign import quoted
from graphmill.base.retries import is_there
from graphmill.cluster.launch.rank_process import RankExit
from graphmill.record import events as recorded
from graphmill.record.documents import Outcome
from graphmill.record.endings import DONE, ENDINGS, FAILED, SAVED, Ending, EndingName, ending_of
from graphmill.record.events import Event, Finish, Start, Stop, events_in
from graphmill.record.manifest import saved_steps
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder, best_effort_write
from graphmill.spec.roles import RoleRank

Events = list[Event]

NOT_READY: Final = "stopped before the ranks were ready"
STOPPED_AT_ONCE: Final = "stopped at once on a second interrupt"
TAIL_LINES: Final = 30
LOST_A_PEER: Final = re.compile(
    r"by peer|[Bb]roken pipe|remote (process|worker|rank)|ncclRemoteError|[Ss]ocket (closed|Timeout)|timed out|gloo"
)
"""An error of a rank in training that only says that another is gone. Those of meeting: `train/rendezvous.py`."""
_NEVER: Final = float("inf")
_SHELL_SIGNAL: Final = 128  # a shell's exit status of a program that a signal ended is this and the signal's number
_KILLED: Final = tuple(
    code for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL) for code in (-number, 128 + number)
)
_ASKED: Final = tuple(code for number in (signal.SIGTERM, signal.SIGINT) for code in (-number, 128 + number))
"""Of a rank that had no handler yet: it came to an end as it was asked to, and had nothing to save."""
_OWN_STATUS: Final = (exits.BAD_REQUEST, exits.PORT_BUSY, exits.LOST_A_RANK, exits.IO_ERROR, exits.INTERRUPTED)
"""Exit statuses of the first failing rank that become the run's, too. With any other, the run has failed."""


@dataclass(frozen=True, slots=True)
class LostHost:
    """A host that is gone while ranks of ours ran on it."""

    name: str
    reason: str
    last_heartbeat: float  # Unix time, s
    words: tuple[str, ...] = ()  # what its agent printed last


@dataclass(frozen=True, slots=True)
class AttemptEvidence:
    """What a launcher saw of one attempt. Times are Unix times in seconds."""

    started: float
    exits: Sequence[RankExit] = ()  # in the order in which they were seen; not all need be known
    killed: float = _NEVER  # when the launcher ended the ranks that were left: exits from then on carry no information
    ahead_s: Mapping[int, float] | None = None  # by process: how far the clock of its events is ahead of ours
    requested: EndingName | None = None  # to end as: stopped, interrupted, out_of_time or preempted
    lost: Sequence[LostHost] = ()
    status: int | None = None  # of srun or torchrun, which holds for all ranks if it is 0 or 75
    problem: str = ""  # the message if no rank reported one
    message: str = ""  # by whoever started the ranks, of why one could not begin: a program that is not there


@dataclass(frozen=True, slots=True)
class ProcessFailure:
    """How one process, or one host, failed."""

    process: int | None  # its number; None: a whole host
    who: str  # "rank 1 of 4", for a message
    host: str  # "" if the run has one host, or if unknown
    code: int | None
    what: str
    time: float  # infinity if unknown
    is_echo: bool  # it only lost another one

    @property
    def is_by_signal(self) -> bool:
        """Whether a signal ended it, or it vanished under torchrun, and so it had no word of its own."""
        return self.process is not None and (self.code is None or _is_by_signal(self.code))

    def describe(self) -> str:
        """Describe the failure for a message."""
        if self.process is None or self.code in _OWN_STATUS:  # of the whole run, whichever rank says so first
            return self.what
        on_host = f" on {self.host}" if self.host else ""
        return f"{self.who} failed first{on_host}: {self.what}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """How an attempt ended, and the failure that came first, if one did."""

    ending: Ending
    first: ProcessFailure | None
    problem: str = ""
    lost_hosts: tuple[str, ...] = ()  # of ranks that left no word, where ranks were lost
    may_pass: bool = False  # a failure that another try may mend

    @property
    def is_saved(self) -> bool:
        """Whether it is not a failure: done, or left after a checkpoint."""
        return self.ending.exit_status in SAVED

    def report(self, last_lines: Sequence[str], *, log: str | None, resume: str | None) -> str:
        """The message about the first failure. `last_lines`: of its log; `log`: where all of them are."""
        what = self.first.describe() if self.first else self.problem or "the ranks failed and left no error"
        read = f"read {log}, fix it, then " if log else ""
        lines = [f"error: {what}", *(f"  | {quoted(line)}" for line in last_lines)]
        return "\n".join([*lines, *([f"  → {read}continue with `{resume}`"] if resume else []), ""])


def judge(folder: RunFolder, evidence: AttemptEvidence) -> Judgement:
    """How the attempt that began at `evidence.started` ended. Reads the run folder, writes nothing."""
    world = folder.world()
    role_ranks = [world.role_rank(process) for process in range(world.processes)]
    by_process = [
        _events(folder.events_path_of(role_rank), process, evidence) for process, role_rank in enumerate(role_ranks)
    ]
    outcome = folder.read_outcome()
    first = _first(by_process, role_ranks, evidence, several_hosts=world.hosts > 1)
    ending = _ending(by_process, evidence, first, None if outcome is None else outcome.status)
    silent = [events for events, code in zip(by_process, _codes(by_process, evidence), strict=True) if code is None]
    lost_hosts = sorted({_host(events) for events in silent if _host(events)}) if ending.name == "lost" else []
    first = None if ending.exit_status in SAVED else first
    may_pass = ending is FAILED and (first.is_by_signal if first else _is_by_signal(evidence.status))
    return Judgement(ending, first, evidence.problem, tuple(lost_hosts), may_pass)


def note_outcome(folder: RunFolder, judgement: Judgement, started: float, *, message: str = "") -> None:
    """Write how the run ended if rank 0 could not, or did not know how the others ended. Call it after the report.

    `message`: why, if the judgement does not know it.

    A folder that cannot be written may be what ended the run: that is reported, and hides no other error.
    """
    known, ending, first = folder.read_outcome(), judgement.ending, judgement.first
    is_unjudged = ending.name == "io_error" and first is None  # the launcher could not read what the ranks left
    says_so = known is not None and (known.status == ending.name or is_unjudged)
    is_noted = ending is DONE and not folder.is_command()  # by rank 0, which a command does not have
    if is_noted or (says_so and (first is None or first.process == 0)):
        return
    epochs, steps = _progress(folder)
    outcome = Outcome(
        status=ending.name,
        exit_code=ending.exit_status,
        epochs=epochs if known is None else known.epochs,
        steps_per_rank=steps if known is None else known.steps_per_rank,
        test=None if known is None else known.test,
        best=None if known is None else known.best,
        wall_s=time.time() - started,
        message=message or _reason(judgement),
        may_pass=judgement.may_pass,
    )
    with best_effort_write():
        folder.write_outcome(outcome)


def _events(path: Path, process: int, evidence: AttemptEvidence) -> Events:
    """What a process wrote since the attempt began. None of a damaged file; `UnreadableError`: who knows."""
    ahead = (evidence.ahead_s or {}).get(process, 0.0)
    try:
        events = events_in(path) if is_there(path) else []
    except (OSError, UserError):
        return []
    return [event for event in events if event.time - ahead >= evidence.started]


def _first(
    by_process: Sequence[Events], role_ranks: Sequence[RoleRank], evidence: AttemptEvidence, *, several_hosts: bool
) -> ProcessFailure | None:
    """The failure that came first: by the rank's own event if it left one, else by its exit.

    A rank that only lost another one was not first, though it may report so before the other has exited. An exit
    without a time (srun reports none) comes after all errors that ranks recorded themselves.
    """
    found = [
        ProcessFailure(None, "", host.name, exits.LOST_A_RANK, f"{host.name} was lost: {quoted(host.reason)}",
                host.last_heartbeat, is_echo=False)
        for host in evidence.lost
    ]  # fmt: skip
    missed = any(_code(events) == exits.LOST_A_RANK for events in by_process)
    exit_of = {seen.rank: seen for seen in reversed(evidence.exits)}  # the first exit of each
    order = [seen.rank for seen in evidence.exits]
    for process in sorted(
        range(len(role_ranks)), key=lambda number: order.index(number) if number in order else len(order)
    ):
        failure = _failure(process, by_process, exit_of.get(process), evidence, missed=missed)
        if failure is not None:
            host = _host(by_process[process]) if several_hosts else ""
            who = f"{role_ranks[process].name} of {role_ranks[process].num_ranks}"
            found.append(ProcessFailure(process, who, host, *failure))
    return min(found, key=lambda failure: (failure.is_echo, failure.time), default=None)


def _failure(
    process: int, by_process: Sequence[Events], seen: RankExit | None, evidence: AttemptEvidence, *, missed: bool
) -> tuple[int | None, str, float, bool] | None:
    """Code, words, time and whether it is an echo; None if the rank did not fail on its own.

    `missed`: another rank found one unresponsive, whereupon srun kills all, in an arbitrary order.
    """
    events = by_process[process]
    error = next((event for event in events if isinstance(event, recorded.Failure)), None)
    is_killed_by_us = seen is not None and (
        seen.time >= evidence.killed if seen.time is not None else missed or _is_killed_by_srun(seen, evidence.exits)
    )
    moment = _NEVER if seen is None or seen.time is None else seen.time
    if error is not None:
        message = quoted((error.message.splitlines() or [""])[0])
        is_echo = error.exit_code == exits.LOST_A_RANK or (
            error.exit_code != exits.IO_ERROR and LOST_A_PEER.search(error.message) is not None
        )
        own = error.time - (evidence.ahead_s or {}).get(process, 0.0)
        return error.exit_code, message, min(own, _NEVER if is_killed_by_us else moment), is_echo
    if _code(events) in SAVED or (seen is not None and (is_killed_by_us or not seen.failed)):
        return None
    if seen is not None:
        never_began = f": {evidence.message}" if evidence.message and not events else ""
        return seen.code, f"{seen.describe()}{never_began}", moment, seen.code == exits.LOST_A_RANK
    others = any(_code(other) not in (None, *SAVED) for other in by_process)
    is_gone = others and not missed and evidence.requested is None and not evidence.exits
    return (None, "ended without an error", _NEVER, False) if is_gone else None


def _is_by_signal(code: int | None) -> bool:
    return code is not None and (code < 0 or code > _SHELL_SIGNAL)


def _is_killed_by_srun(seen: RankExit, in_order: Sequence[RankExit]) -> bool:
    """srun sends SIGTERM to the ranks that are left, once one has failed."""
    before = in_order[: in_order.index(seen)]
    return seen.code in _ASKED and any(each.code not in _ASKED for each in before)


def _ending(
    by_process: Sequence[Events], evidence: AttemptEvidence, first: ProcessFailure | None, word: str | None
) -> Ending:
    codes = _codes(by_process, evidence)
    if None not in codes and set(codes) <= set(SAVED):
        status = max(code for code in codes if code is not None)
        if status == exits.DONE:
            return DONE
        requested = evidence.requested if evidence.requested != "interrupted" else "stopped"  # it came too late
        return ENDINGS[requested or ending_of(status, word).name]
    if exits.PORT_BUSY in codes and not any(isinstance(event, Start) for events in by_process for event in events):
        return ENDINGS["port_busy"]
    has_no_word = not any(by_process) and first is not None and first.code not in _OWN_STATUS
    if evidence.requested and (first is None or first.is_echo or first.code in _KILLED or has_no_word):
        return ENDINGS[evidence.requested]
    if first is not None and first.code in _ASKED and first.code != exits.INTERRUPTED:
        return ENDINGS["stopped"]
    code = evidence.status if first is None else first.code
    if first is not None and first.is_echo and len(by_process) > 1:  # the other left no word: its host is gone
        code = exits.LOST_A_RANK
    return ending_of(code) if code in _OWN_STATUS and code is not None else FAILED


def _codes(by_process: Sequence[Events], evidence: AttemptEvidence) -> list[int | None]:
    """Exit status of each process, by its last event, else as the launcher saw it. None: unknown."""
    seen = {rank.rank: rank.code for rank in evidence.exits}
    of_all = evidence.status if evidence.status in SAVED else None
    found: list[int | None] = []
    for process, events in enumerate(by_process):
        own = _code(events)
        found.append(own if own is not None else seen.get(process, of_all))
    return found


def _code(events: Events) -> int | None:
    """The exit status that a rank's last event implies."""
    match events[-1] if events else None:
        case Finish():
            return exits.DONE
        case Stop():
            return exits.OUT_OF_TIME
        case recorded.Failure(exit_code=code):
            return code
    return None


def _host(events: Events) -> str:
    return next((str(event.hostname) for event in events if hasattr(event, "hostname")), "")


def _reason(judgement: Judgement) -> str:
    match judgement.ending.name:
        case "done":
            return ""
        case "out_of_time" | "preempted":
            return f"{judgement.ending.text}; the ranks could not save within their round"
        case "stopped":
            return NOT_READY
        case "interrupted":
            return STOPPED_AT_ONCE
    if judgement.first is not None:
        return judgement.first.describe()
    return judgement.problem or "the ranks ended and left no error"


def _progress(folder: RunFolder) -> tuple[int, int]:
    """Epochs and steps of each rank, by the metrics and the checkpoints."""
    epochs, steps = 0, 0
    with suppress(UnreadableError):
        steps = saved_steps(folder.checkpoints_dir)
    try:
        rows = read_metrics(folder.metrics_path, is_growing=True) if is_there(folder.metrics_path) else []
        epochs, steps = len(rows), max(steps, int(rows[-1]["steps_done"]) if rows else 0)
    except (OSError, UserError, UnreadableError, KeyError, ValueError):  # `graphmill verify` says what is wrong with it
        pass
    return epochs, steps
