"""The launcher of a local run, found again: only a process that we recorded, and that is still the same one."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from graphmill.record.run_folder import RunFolder

if TYPE_CHECKING:
    import psutil

_CLOCK_SLACK_S = (
    2.0  # the start of a process is known to a hundredth, relative to a boot time that is known to a second
)


def launcher_of(folder: RunFolder) -> "psutil.Process | None":
    """The living process that trains this run on this host, or None.

    It holds the run's lock, it is the one that noted the last attempt, and it began before that attempt did: a process
    that got the same number later began after it.
    """
    attempts = folder.attempts()
    if not attempts or attempts[-1].hostname != socket.gethostname():
        return None
    import psutil

    last = attempts[-1]
    try:
        process: psutil.Process = psutil.Process(last.pid)  # type: ignore[no-untyped-call]  # psutil ships no types
        began = process.create_time()  # type: ignore[no-untyped-call]
        return process if began <= last.time + _CLOCK_SLACK_S and _holds_lock(last.pid, folder) else None
    except psutil.Error:
        return None


def _holds_lock(pid: int, folder: RunFolder) -> bool:
    """Whether the process holds the run's lock; looked up, for trying the lock would take it from a launcher."""
    try:
        inode = (folder.path / ".lock").stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    held = [line.split() for line in locks if "->" not in line]  # those with an arrow wait for a lock
    return any(len(lock) > 5 and lock[4] == str(pid) and lock[5].endswith(f":{inode}") for lock in held)
