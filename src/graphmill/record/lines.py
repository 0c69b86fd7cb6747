"""Files of lines that processes append to: a reader sees whole lines only, whatever happened to the writer."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from graphmill.base.reads import retried

_TAIL_BYTES: Final = 1 << 16


def append_line(path: Path, line: str) -> None:
    """Append one line in a single write, after whole lines only; durable when this returns."""
    append_lines(path, [line])


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append lines in a single write, after whole lines only; durable when this returns."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(fd, end_of_whole_lines(fd))
        os.write(fd, "".join(f"{line}\n" for line in lines).encode())
        os.fsync(fd)
    finally:
        os.close(fd)


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
