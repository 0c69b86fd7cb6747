"""Waiting for what will happen: no test fails because the machine is slow.

`HANG_S` bounds nothing that is tested. It turns what would hang into a sentence, a little before pytest's own timeout
(pyproject.toml) ends the session without one.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

HANG_S: Final = 240.0


def wait_until(holds: Callable[[], object], what: object, *, look_every_s: float = 0.02) -> None:
    """Return as soon as `holds()` is true."""
    give_up = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < give_up, f"waited {HANG_S:.0f} s for {what() if callable(what) else what}"
        time.sleep(look_every_s)


def is_alive(pid: int) -> bool:
    """Whether a process is there, and not its exit status alone."""
    return state_of(pid) not in ("", "Z")  # an orphan's body may lie a while before the system's first process takes it


def state_of(pid: int) -> str:
    """The kernel's letter for what a process does: R, S, T (stopped), Z; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may go between open and read
        return ""
