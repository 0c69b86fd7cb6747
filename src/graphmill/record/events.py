"""Events: what a rank did, appended as it happens, one JSON object per line. No pickled state, no lost history.

They are written and read as the same classes. A line is flat: time, rank, kind, and the fields of that kind.
"""

import json
import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar, overload

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.json_text import parse_json
from graphmill.base.retries import insist, retried
from graphmill.record.lines import complete_lines, end_of_whole_lines, write_all
from graphmill.spec.gpu_graph import DrawnBy


class Event(BaseModel):
    """Something that a rank did. `time` (Unix time, s) and `rank` are set when it is written."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    kind: ClassVar[str] = ""

    time: FiniteFloat = 0.0
    rank: int = 0


E = TypeVar("E", bound=Event)


class Start(Event):
    """An attempt begins: where this rank runs, and with which peers. `backend` is None if there are none."""

    kind = "start"

    resumed: bool
    steps_done: int
    parameters: int
    hostname: str
    pid: int = 0
    world_size: int
    backend: str | None
    plan_hash: str
    process_s: float  # from the start of the process until it began to work
    data: str  # the folder that the rank reads: the prepared dataset, or a staged copy
    own_code: str = ""  # SHA-256 of the copy that the user's code was imported from; "": it was none


class Initialised(Event):
    """The run begins with weights from elsewhere: names of tensors, `not_taken` theirs, `not_filled` the model's."""

    kind = "init"

    source: str
    checksum: str
    taken: tuple[str, ...]
    not_taken: tuple[str, ...]
    not_filled: tuple[str, ...]


class Extended(Event):
    """What stands before is of the run that this one continues with more epochs (`Plan.extends`)."""

    kind = "extend"

    run_id: str
    steps_done: int


class Drawn(Event):
    """Who draws the batches of this rank of a graph that lies for its GPU; seconds of a batch, if measured."""

    kind = "draws"

    by: DrawnBy
    asked: str  # train.gpu_draws
    device_s: float | None
    cpu_s: float | None


class Sync(Event):
    """The ranks exchanged gradients or parameters. Bytes and seconds are this rank's, since it started.

    `loss_sum`: of its steps in the epoch so far; over all ranks, what the epoch's loss is the mean of.
    """

    kind = "sync"

    epoch: int
    steps_done: int
    parameter_hash: str
    replicas_agree: bool
    payload_bytes: int = 0
    modelled_bytes: int = 0
    sync_s: float = 0.0
    loss_sum: float


class Epoch(Event):
    """An epoch is over. The clocks are this rank's own: metrics.csv holds those of rank 0 alone."""

    kind = "epoch"

    epoch: int
    steps_done: int
    loss: float
    num_seeds: int
    train_s: float
    clocks: dict[str, float]


class Served(Event):
    """A sampler has made the batches of `steps` steps of an epoch, or of what was left of it; clocks are its own.

    `bytes`: that it handed over, of all trainers that it serves, batches that were not used in the end included.
    """

    kind = "served"

    epoch: int
    steps: int
    bytes: int
    clocks: dict[str, float]


class Evaluation(Event):
    """A set was evaluated; `measures` by the names of the task, with `loss` and `num_seeds`."""

    kind = "evaluate"

    epoch: int
    set: str  # val, test, or the name of an evaluation set
    measures: dict[str, float]


class Checkpoint(Event):
    """A checkpoint is whole on disk."""

    kind = "checkpoint"

    epoch: int
    step: int
    steps_done: int


class DamagedCheckpoint(Event):
    """A checkpoint cannot be used; the one before it is."""

    kind = "damaged_checkpoint"

    checkpoint: str
    problem: str


class Stop(Event):
    """The ranks agreed to stop before the end of the plan; all steps are saved."""

    kind = "stop"

    steps_done: int
    status: str


class Finish(Event):
    """The rank is done. `seal`: checksums of what it wrote (record/checksums.py); `peak_rss_mib`: of its process."""

    kind = "finish"

    steps_done: int
    status: str
    seal: dict[str, str] = {}
    peak_rss_mib: float = 0.0


class Failure(Event):
    """The rank ends with an error."""

    kind = "error"

    message: str
    exit_code: int


class UnknownEvent(Event):
    """An event of a kind that this version does not know."""


_TAIL_BYTES: Final = 1 << 16  # more than the longest event
_FIX: Final = "restore the file from where it was copied, or remove the damaged line"
CLOCKS: Final = ("wait_s", "compute_s", "sync_s", "sample_s", "gather_s", "eval_s")
_KINDS: Final[dict[str, type[Event]]] = {
    event.kind: event
    for event in (
        Start,
        Initialised,
        Extended,
        Drawn,
        Sync,
        Epoch,
        Served,
        Evaluation,
        Checkpoint,
        DamagedCheckpoint,
        Stop,
        Finish,
        Failure,
    )
}


class EventWriter:
    """Appends to one rank's file; every line is handed to the system before `write` returns.

    A line that a crash left half-written is cut off when the file is opened again: it only ever holds whole lines.
    """

    def __init__(self, path: Path, *, rank: int) -> None:
        self._path = path
        self._rank = rank
        self._fd = -1
        self._end = -1  # of the lines that are whole
        insist(self._open)

    def write(self, event: Event) -> None:
        """Append one event. A float that JSON cannot carry is written as text: "nan", "inf"."""
        fields = {"time": time.time(), "rank": self._rank, "kind": event.kind}
        fields |= {name: getattr(event, name) for name in type(event).model_fields if name not in fields}
        line = (json.dumps(_plain(fields), ensure_ascii=False, allow_nan=False) + "\n").encode()
        insist(lambda: self._append(line))
        self._end += len(line)

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1  # closed, whatever the system answers
            os.close(fd)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        end = end_of_whole_lines(self._fd)
        os.ftruncate(self._fd, end)
        if self._end < 0:
            self._end = end

    def _append(self, line: bytes) -> None:
        try:
            if self._fd < 0:
                self._open()
                if os.pread(self._fd, len(line), self._end) == line:
                    return  # all of it had been written when the error came
            write_all(self._fd, line)
        except OSError:
            with suppress(OSError):  # a handle may be stale for good, where the path is well again
                self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@overload
def events_in(path: Path) -> list[Event]: ...


@overload
def events_in(path: Path, kind: type[E]) -> list[E]: ...


def events_in(path: Path, kind: type[Event] = Event) -> Sequence[Event]:
    """The events of a kind in the file, in order; of all kinds by default.

    A torn last line is not counted; any other damage is a `UserError` with its line.
    """
    events = [_typed(path, number, line) for number, line in enumerate(complete_lines(path), start=1)]
    return [event for event in events if isinstance(event, kind)]


def starts_in(path: Path) -> list[Start]:
    """The starts in the file, in order. Lines of other events are not read, and may be damaged."""
    lines = enumerate(complete_lines(path), start=1)
    events = (_typed(path, number, line) for number, line in lines if f'"{Start.kind}"' in line)
    return [event for event in events if isinstance(event, Start)]


def last_event(path: Path) -> Event | None:
    """The last whole event of a file, without reading what comes before; None if none can be read."""
    try:
        lines = retried(path, _last_lines)
        return _typed(path, len(lines), lines[-1].decode())
    except (OSError, ValueError, UserError, UnreadableError):
        return None


def _last_lines(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        return file.read().rpartition(b"\n")[0].split(b"\n")


def _typed(path: Path, number: int, line: str) -> Event:
    try:
        fields = parse_json(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise UserError(f"{path}:{number}: not an event", fix=_FIX)
    try:
        return _KINDS.get(str(fields.get("kind")), UnknownEvent).model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{path}:{number}: not an event: {where}: {first['msg']}", fix=_FIX) from None


def _plain(value: Any) -> Any:  # noqa: ANN401  # whatever JSON can carry, and numpy's scalars
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item") and not isinstance(value, str | bytes):  # a scalar of numpy or torch
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
