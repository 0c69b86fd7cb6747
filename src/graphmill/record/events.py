"""Events: what a rank did, appended as it happens, one JSON object per line. No pickled state, no lost history."""

import json
import math
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from graphmill.base.errors import UserError

Kind = Literal["start", "sync", "epoch", "evaluate", "checkpoint", "stop", "finish", "error"]
_TAIL_BYTES: Final = 1 << 16


class EventWriter:
    """Appends to one rank's file; every line is handed to the system before `write` returns.

    A line that a crash left half-written is cut off when the file is opened again: it only ever holds whole lines.
    """

    def __init__(self, path: Path, *, rank: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._rank = rank
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._fd, _end_of_whole_lines(self._fd))

    def write(self, kind: Kind, **fields: Any) -> None:  # noqa: ANN401  # whatever JSON can carry
        """Append one event. A float that JSON cannot carry is written as text: "nan", "inf"."""
        event = {"time": time.time(), "rank": self._rank, "kind": kind, **fields}
        line = json.dumps(_plain(event), ensure_ascii=False, allow_nan=False) + "\n"
        rest = memoryview(line.encode())
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def close(self) -> None:
        """Let go of the file. Closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> "EventWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_events(path: Path) -> list[dict[str, Any]]:
    """All events in the file, in order. A torn last line is not counted; any other damage is refused."""
    return [_parsed(path, number, line) for number, line in enumerate(complete_lines(path), start=1)]


def append_line(path: Path, line: str) -> None:
    """Append one line in a single write, after whole lines only; durable when this returns."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(fd, _end_of_whole_lines(fd))
        os.write(fd, f"{line}\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def complete_lines(path: Path) -> list[str]:
    """The lines of a file that end in a newline: the rest is still being written, or never will be."""
    text = path.read_bytes()
    return text[: text.rfind(b"\n") + 1].decode("utf-8", errors="replace").split("\n")[:-1]


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except json.JSONDecodeError:
        event = None
    if not isinstance(event, dict):
        raise UserError(f"{path}:{number}: not an event", fix="restore the file, or remove the damaged line")
    return event


def _end_of_whole_lines(fd: int) -> int:
    """Offset just after the last newline of the file."""
    end = os.fstat(fd).st_size
    while end > 0:
        begin = max(0, end - _TAIL_BYTES)
        newline = os.pread(fd, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


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
