"""Reading from a file system that may fail: an I/O error is retried; it says nothing about what is in the file."""

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from graphmill.base.errors import UnreadableError

T = TypeVar("T")

_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""There is no such file; any other error leaves that unknown."""
_RETRY_AFTER_S: Final = (0.2, 1.0, 3.0)


def retried(path: Path, read: Callable[[Path], T]) -> T:
    """`read(path)`; an I/O error is retried a few times: a server may be busy or just starting.

    Raises OSError if there is no such file, and `UnreadableError` if that is unknown.
    """
    for wait_s in (*_RETRY_AFTER_S, None):
        try:
            return read(path)
        except OSError as error:
            if error.errno in _ABSENT:
                raise
            if wait_s is None:
                raise UnreadableError(path, error) from None
            time.sleep(wait_s)
    raise AssertionError("the last try returns or raises")


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder. Raises `UnreadableError` if that is unknown."""
    return retried(path, Path.exists)
