"""What each rank recorded in its own file: the evidence that metrics.csv and the other files are compared with.

A rank that resumes repeats some steps. What it recorded of them before is replaced by what it records now, so that what
is left is the history of the weights that the run ended with.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.retries import retried
from graphmill.record.evaluations import AT_THE_END
from graphmill.record.events import Epoch, Evaluation, Event, Extended, Finish, Start, Sync, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.spec.world import World
from graphmill.verify.check import in_a_line

_FILE = re.compile(r"rank_(0|[1-9][0-9]{0,8})\.jsonl")


@dataclass(slots=True)
class EventLog:
    """What one rank recorded."""

    rank: int
    problem: str = ""  # why nothing, or not all of it, can be read
    events: list[Event] = field(default_factory=list)  # all of them, in the file's order
    starts: list[Start] = field(default_factory=list)
    worlds: list[tuple[int, int]] = field(default_factory=list)  # (steps done, ranks) at every start, of other runs too
    extended: Extended | None = None  # what stands before it is of the run that this one continues
    syncs: dict[int, Sync] = field(default_factory=dict)  # by steps done
    epochs: dict[int, Epoch] = field(default_factory=dict)
    val: dict[int, Evaluation] = field(default_factory=dict)  # by epoch
    test: Evaluation | None = None
    evaluations: dict[tuple[int, str], Evaluation] = field(default_factory=dict)  # all of them, by epoch and set
    finish: Finish | None = None  # of the last attempt
    before_finish: bytes = b""  # the file before that event

    @property
    def last_kind(self) -> str:
        """Kind of the last event."""
        return self.events[-1].kind if self.events else "nothing"


def ranks_heard_from(folder: RunFolder) -> list[int]:
    """Ranks that have a file of events, ascending."""
    names = (_FILE.fullmatch(path.name) for path in folder.events_dir.glob("*"))
    return sorted(int(match[1]) for match in names if match)


def read_event_log(folder: RunFolder, rank: int) -> EventLog:
    """What a rank recorded; `problem` says what is wrong with its file, and nothing is raised."""
    return _read(EventLog(rank), folder.events_path(rank))


def read_sampler_logs(folder: RunFolder, world: World) -> list[EventLog | None]:
    """What each process that samples recorded; None: it left nothing."""
    role_ranks = [
        role_rank for role_rank in map(world.role_rank, range(world.processes)) if role_rank.role == "sampler"
    ]
    paths = [folder.events_path_of(role_rank) for role_rank in role_ranks]
    return [
        _read(EventLog(role_rank.rank), path) if path.exists() else None
        for role_rank, path in zip(role_ranks, paths, strict=True)
    ]


def _read(log: EventLog, path: Path) -> EventLog:
    try:
        for event in events_in(path):
            _add(log, event)
        log.before_finish = _before_last_line(path)
    except (UserError, UnreadableError, OSError) as error:
        log.problem = in_a_line(error)
    return log


def _add(log: EventLog, event: Event) -> None:
    log.events.append(event)
    log.finish = None
    match event:
        case Start():
            log.starts.append(event)
            log.worlds.append((event.steps_done, event.world_size))
            _clear_after(log, event.steps_done)
        case Extended():  # starts of another run, under another plan
            log.starts.clear()
            log.extended = event
        case Sync():
            log.syncs[event.steps_done] = event
        case Epoch():
            log.epochs[event.epoch] = event
        case Evaluation():
            _add_evaluation(log, event)
        case Finish():
            log.finish = event


def _add_evaluation(log: EventLog, event: Evaluation) -> None:
    log.evaluations[event.epoch, event.set] = event
    if event.set == "val":
        log.val[event.epoch] = event
    elif event.set == AT_THE_END:
        log.test = event


def _clear_after(log: EventLog, steps_done: int) -> None:
    """Drop what was recorded of steps that are repeated."""
    log.syncs = {steps: sync for steps, sync in log.syncs.items() if steps <= steps_done}
    log.epochs = {number: epoch for number, epoch in log.epochs.items() if epoch.steps_done <= steps_done}
    log.val = {number: evaluation for number, evaluation in log.val.items() if number in log.epochs}
    log.evaluations = {
        (number, name): evaluation
        for (number, name), evaluation in log.evaluations.items()
        if name != AT_THE_END and (number in log.epochs or (number == 0 and steps_done))
    }
    log.test = None


def _before_last_line(path: Path) -> bytes:
    content = retried(path, Path.read_bytes)
    if content and not content.endswith(b"\n"):
        raise UserError(f"{path.name} ends in the middle of a line", fix="restore the file from where it was copied")
    return content[: content.rfind(b"\n", 0, len(content) - 1) + 1]
