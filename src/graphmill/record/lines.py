"""Files of lines that processes append to: a reader sees whole lines only, whatever happened to the writer."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.retries import insist, refuse_endless, retried

_TAIL_BYTES: Final = 1 << 16


def append_line(path: Path, line: str) -> None:
    """Append one line in a single write, after whole lines only; durable when this returns."""
    append_lines(path, [line])


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append lines, after whole lines only, and once, however often it had to be tried; durable when this returns."""
    addition = _Addition(path, "".join(f"{line}\n" for line in lines).encode())
    insist(addition.write)


class _Addition:
    """What is to be appended, and where it was begun: an error may come after all of it, or a part, was written."""

    def __init__(self, path: Path, text: bytes) -> None:
        self._path, self._text, self._begin = path, text, -1

    def write(self) -> None:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            if not self._is_written_before_others(fd):
                self._begin = end_of_whole_lines(fd) if self._begin < 0 else self._begin
                os.ftruncate(fd, self._begin)
                write_all(fd, self._text)
            os.fsync(fd)
        finally:
            os.close(fd)

    def _is_written_before_others(self, fd: int) -> bool:
        """Whether an earlier try wrote it, and another process has appended since; what is our own is written anew."""
        if self._begin < 0:
            return False
        written = os.pread(fd, os.fstat(fd).st_size, self._begin)
        if self._text.startswith(written) or written == b"":
            return False
        if self._text not in written:
            self._begin = -1  # others came first
        return self._text in written


def write_all(fd: int, text: bytes) -> None:
    """Write all of it, in one write if the system takes it so."""
    rest = memoryview(text)
    while rest:
        rest = rest[os.write(fd, rest) :]


def complete_lines(path: Path) -> list[str]:
    """The lines of a file that end in a newline: the rest is still being written, or never will be.

    Raises OSError if there is no such file, and `UnreadableError` if that is unknown.
    """
    text = retried(path, Path.read_bytes)
    return text[: text.rfind(b"\n") + 1].decode("utf-8", errors="replace").split("\n")[:-1]


def end_of_whole_lines(fd: int) -> int:
    """Offset just after the last newline of the file."""
    end = os.fstat(fd).st_size
    while end > 0:
        begin = max(0, end - _TAIL_BYTES)
        newline = os.pread(fd, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def last_lines(path: Path, num_lines: int, *, begin: int = 0) -> list[str]:
    """The last lines of a log that are not empty, of what stands behind byte `begin`; none if it cannot be read.

    A bar that redraws itself counts as its last state.
    """
    try:
        refuse_endless(path)
        with path.open("rb") as file:
            file.seek(max(begin, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except (OSError, UserError):
        return []
    lines = [line.rstrip().rsplit("\r", 1)[-1] for line in text.split("\n")]
    return [line for line in lines if line.strip()][-num_lines:]
