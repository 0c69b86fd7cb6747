"""Find the launcher of a local run: the process that owns the run, if it is on this host and alive."""

from typing import TYPE_CHECKING

from graphmill.record.lock import owner_of
from graphmill.record.run_folder import RunFolder

if TYPE_CHECKING:
    import psutil


def launcher_of(folder: RunFolder) -> "psutil.Process | None":
    """The live process that trains this run on this host, or None.

    It owns the run, and it recorded the last attempt: a process that only submits a job holds the lock as well.
    """
    owner, attempts = owner_of(folder.path), folder.attempts()
    if owner is None or not attempts or not owner.is_here() or owner.is_dead():
        return None
    if (attempts[-1].hostname, attempts[-1].pid) != (owner.hostname, owner.pid):
        return None
    import psutil

    try:
        return psutil.Process(owner.pid)  # type: ignore[no-untyped-call]  # psutil ships no types
    except psutil.Error:
        return None
