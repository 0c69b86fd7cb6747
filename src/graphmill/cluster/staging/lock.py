"""Jobs of one host that want the same copy: one makes it, the others wait and then find it.

The lock only saves work. What keeps copies whole is the rename at the end, so a job that waits for a stuck holder, or
for a file system without locks, goes ahead and copies as well.
"""

import errno
import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

_log = logging.getLogger(__name__)


SIGN_EVERY_S: Final = 2.0
STALE_S: Final = 60.0  # the lock is held, but its holder gave no sign for this long: stopped, or its host lost
_LOOK_EVERY_S: Final = 0.2
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def only_copier(target: Path, *, stale_s: float = STALE_S) -> Iterator[None]:
    """Wait until no other process makes `target`. The lock is released when its holder ends, however it ends."""
    path = target.with_name(f".{target.name}.lock")
    with open(path, "a+", encoding="utf-8", opener=_unless_link) as file:  # pathlib's has no opener
        if not _taken(file, stale_s):
            yield
            return
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        with _signs_of_life(file):
            yield


def _unless_link(path: str, flags: int) -> int:
    """Open a file, not through a link: others could make one in /tmp that leads to a file of ours."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _taken(file: IO[str], stale_s: float) -> bool:
    has_said, last_sign, since = False, 0, time.monotonic()
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            sign = os.fstat(file.fileno()).st_mtime_ns  # of the file system's clock: only its changes count
            if sign != last_sign:
                last_sign, since = sign, time.monotonic()
            if time.monotonic() - since > stale_s:
                _log.info(
                    f"{holder} copies the same dataset, but made no progress for {stale_s:.0f} s: copying as well"
                )
                return False
            if not has_said:
                _log.info(f"waiting: {holder} copies the same dataset")
                has_said = True
            time.sleep(_LOOK_EVERY_S)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            _log.info(
                f"this file system has no locks ({error.strerror}): another job may copy the same dataset as well"
            )
            return False
        else:
            return True


@contextmanager
def _signs_of_life(file: IO[str]) -> Iterator[None]:
    ended = threading.Event()

    def sign() -> None:
        while not ended.wait(SIGN_EVERY_S):
            with suppress(OSError):
                os.utime(file.fileno())

    thread = threading.Thread(target=sign, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
