"""Reading and writing on a file system that may fail: a server that is away for a moment ends no run.

An I/O error says nothing about what is in the file, so the operation is tried again for a bounded time. Reads that
fail to the end are an `UnreadableError`; writes stay the OSError that they are. `is_io_error` knows both, wherever they
were raised. A full disk, or a quota, is not such an error: waiting does not help.
"""

import errno
import logging
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from graphmill.base.errors import UnreadableError, UserError

T = TypeVar("T")

_log = logging.getLogger(__name__)

TRANSIENT: Final = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EREMOTEIO)
"""A disk or a file server that did not answer as it should. It may do so the next time."""
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""Errors that say there is no such file; any other error leaves that unknown."""
_READ_AGAIN_AFTER_S: Final = (0.2, 1.0, 3.0)
_WRITE_AGAIN_AFTER_S: Final = (0.2, 1.0, 3.0, 6.0, 10.0)  # together less than Slurm's KillWait


@dataclass(slots=True)
class _Patience:
    """Where nothing answers, one operation waits for it, and the others, which would wait in vain, do not."""

    is_over: bool = False

    def of(self, waits_s: tuple[float, ...]) -> tuple[float, ...]:
        return () if self.is_over else waits_s


_patience: Final = _Patience()


def retried(path: Path, read: Callable[[Path], T]) -> T:
    """`read(path)`; an I/O error is retried a few times: a server may be busy or just starting.

    Raises OSError if there is no such file, and `UnreadableError` if that is unknown.
    """
    refuse_endless(path)
    for wait_s in (*_patience.of(_READ_AGAIN_AFTER_S), None):
        try:
            found = read(path)
        except OSError as error:
            if error.errno in _ABSENT:
                raise
            if wait_s is None:
                _patience.is_over = True
                raise UnreadableError(path, error) from None
            time.sleep(wait_s)
        else:
            _patience.is_over = False
            return found
    raise AssertionError("the last try returns or raises")


def refuse_endless(path: Path) -> None:
    """`UserError` for a pipe, a socket or a device: reading it may have no end. A copied folder may hold any."""
    try:
        kind = path.stat().st_mode
    except (OSError, ValueError):  # whoever reads it is told
        return
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise UserError(f"{path} is a pipe or a device, not a file", fix="put the file in its place, or remove it")


def insist(act: Callable[[], T]) -> T:
    """`act()`, once more from its start after an I/O error, for some 20 s. It must be one that may be done twice."""
    for wait_s in (*_patience.of(_WRITE_AGAIN_AFTER_S), None):
        try:
            done = act()
        except OSError as error:
            if error.errno not in TRANSIENT:
                raise
            if wait_s is None:
                _patience.is_over = True
                raise
            _log.warning(f"{error}; tried again in {wait_s:g} s")
            time.sleep(wait_s)
        else:
            _patience.is_over = False
            return done
    raise AssertionError("the last try returns or raises")


def is_io_error(error: BaseException) -> bool:
    """Whether a disk or a file server did not answer as it should: nothing is wrong with what was asked of it."""
    return isinstance(error, UnreadableError) or (isinstance(error, OSError) and error.errno in TRANSIENT)


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder. Raises `UnreadableError` if that is unknown."""
    return retried(path, Path.exists)


def remove_file(path: Path) -> None:
    """Delete a file, if it is there."""
    insist(lambda: path.unlink(missing_ok=True))


def remove_folder(path: Path) -> None:
    """Delete a folder with all that is in it, if it is there."""

    def remove() -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    insist(remove)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, if it is not there."""
    insist(lambda: path.mkdir(parents=True, exist_ok=True))
