"""Who owns a run, or a search: one process at a time may begin attempts in a run folder. Others learn which one.

`flock` on `.lock`, if the file system has it: the kernel releases it when the process ends, however it ends. If not
(Lustre mounted without `-o flock`), a file `.lock.owner` that only one can create (O_EXCL), with a heartbeat: it is
taken over if its owner is known to be dead, or has had no heartbeat for `STALE_S`. Either way the owner is recorded:
host, process, job, since when, and which kind of lock it is.
"""

import errno
import fcntl
import logging
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, ValidationError

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.retries import insist, retried
from graphmill.record.lines import write_all

_log = logging.getLogger(__name__)

BEAT_S: Final = 5.0
STALE_S: Final = 60.0  # without a heartbeat, of an owner on another host
_LOOK_EVERY_S: Final = 0.5
_SAY_AFTER_S: Final = 1.0  # what is held for a moment only needs no word
_NO_FLOCK: Final = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
LOCK: Final = ".lock"
OWNER: Final = ".lock.owner"
_TAKEOVER: Final = ".lock.takeover"


class Owner(BaseModel):
    """The process that holds a folder."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    hostname: str
    pid: int
    process_start: int  # clock ticks since boot: distinguishes a process from a later one with the same pid
    boot_id: str
    pid_namespace: str  # pids of another container mean nothing here
    since: float  # Unix time, s
    job_id: str = ""
    kind: Literal["flock", "lock file"]

    def describe(self) -> str:
        """Describe the owner for a message."""
        job = f", job {self.job_id}" if self.job_id else ""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.hostname}{job}, since {since} ({self.kind})"

    def is_here(self) -> bool:
        """Whether this process could see the owner."""
        return (self.hostname, self.pid_namespace) == (socket.gethostname(), _pid_namespace())

    def is_dead(self) -> bool:
        """Whether the owner is known to be gone; False if that is unknown."""
        if not self.is_here():
            return False
        return self.boot_id != _boot_id() or _process_start(self.pid) != self.process_start


class OwnedError(UserError):
    """Another process owns the folder, of a run or of anything else. Nothing in it was changed."""

    def __init__(self, folder: Path, owner: Owner | None) -> None:
        super().__init__(
            f"{folder} is in use by {owner.describe() if owner else 'another process'}",
            fix="wait for that process or stop it; a new run can have another --run-id",
        )
        self.owner = owner


@contextmanager
def hold(folder: Path, *, job_id: str = "", wait_s: float = 0.0) -> Iterator[Owner]:
    """Own the run in `folder` while the block lasts.

    `wait_s`: how long to wait for an owner that may be about to leave. Raises `OwnedError`, and a `UserError` where a
    link leads out of the folder: who writes here, from now on, would write there.
    """
    refuse_links_out(folder)
    began = time.monotonic()
    give_up = began + wait_s
    has_said = False
    while True:
        lock = insist(lambda: _try(folder, job_id))
        if not isinstance(lock, OwnedError):
            break
        if time.monotonic() >= give_up:
            raise lock
        if not has_said and time.monotonic() - began > _SAY_AFTER_S:
            _log.info(f"waiting up to {wait_s:.0f} s: {lock.message}")
            has_said = True
        time.sleep(_LOOK_EVERY_S)
    with lock as owner:
        yield owner


def refuse_links_out(folder: Path) -> None:
    """`UserError` if something in `folder` is a link to what is not in it. A copied folder may hold any."""
    inside = folder.resolve()
    for above, folders, files in os.walk(folder):
        for path in (Path(above, name) for name in (*folders, *files)):
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                raise UserError(
                    f"{path} is a link that leads out of {folder}, to {path.resolve()}: nothing is written through it",
                    fix=f"put what it leads to in its place, or remove it: rm {shlex.quote(str(path))}",
                )


def owner_of(folder: Path) -> Owner | None:
    """The last owner of the run, if it has not released it; it may be dead (`is_dead`). Raises `UnreadableError`."""
    return retried(folder / OWNER, _read) or retried(folder / LOCK, _read)


class _Flock:
    def __init__(self, fd: int, owner: Owner) -> None:
        self._fd, self._owner = fd, owner

    def __enter__(self) -> Owner:
        try:
            insist(self._note_owner)
        except OSError:
            self._leave()
            raise
        return self._owner

    def __exit__(self, *error: object) -> None:
        self._leave()

    def _note_owner(self) -> None:
        os.ftruncate(self._fd, 0)
        write_all(self._fd, (self._owner.model_dump_json() + "\n").encode())

    def _leave(self) -> None:
        """The lock is given back by closing, whatever the disk answers."""
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
        with suppress(OSError):
            os.close(self._fd)


class _LockFile:
    """A heartbeat while it is held; a process whose lock was taken over ends at once, before it writes anything."""

    def __init__(self, path: Path, owner: Owner) -> None:
        self._path, self._owner = path, owner
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Owner:
        self._thread.start()
        return self._owner

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()
        try:
            insist(self._remove)
        except OSError as error:  # it is stale without a heartbeat, and taken over
            _log.warning(f"{error}; the next owner has to wait for {STALE_S:.0f} s")

    def _remove(self) -> None:
        if _read(self._path) == self._owner:
            self._path.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            try:
                if _read(self._path) != self._owner and not self._over.is_set():
                    _leave(self._path)
                os.utime(self._path)
            except FileNotFoundError:
                _leave(self._path)
            except OSError:  # the disk does not answer: the next beat tries again
                continue


def _leave(path: Path) -> NoReturn:
    sys.stderr.write(f"error: {path} was taken over: this process had no heartbeat for too long, and ends\n")
    sys.stderr.flush()
    os._exit(exits.LOST_A_RANK)


def _try(folder: Path, job_id: str) -> "_Flock | _LockFile | OwnedError":
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return OwnedError(folder, _read(folder / LOCK))
    except OSError as error:
        os.close(fd)
        if error.errno not in _NO_FLOCK:
            raise
        return _try_file(folder, job_id)
    return _Flock(fd, _myself(job_id, "flock"))


def _try_file(folder: Path, job_id: str) -> "_LockFile | OwnedError":
    path, owner = folder / OWNER, _myself(job_id, "lock file")
    if not _create(path, owner) and not (_is_stale(path) and _take_over(folder, owner)):
        return OwnedError(folder, _read(path))
    _warn_of_no_flock(folder)
    return _LockFile(path, owner)


@cache
def _warn_of_no_flock(folder: Path) -> None:
    """Warn once: a search takes the lock of its folder again and again."""
    _log.warning(f"{folder} is on a file system without flock: {OWNER} with a heartbeat is used")


def _create(path: Path, owner: Owner) -> bool:
    """Create the file; False if it exists."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(fd, (owner.model_dump_json() + "\n").encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    return True


def _is_stale(path: Path) -> bool:
    """Whether the owner is gone: known to be dead, or long without a heartbeat, also while we look."""
    owner = _read(path)
    if owner is not None and owner.is_here():
        return owner.is_dead()
    try:
        beat = path.stat().st_mtime
        if time.time() - beat < STALE_S:
            return False
        time.sleep(2 * BEAT_S)  # the clocks of two hosts may differ by more than that
        return path.stat().st_mtime == beat
    except FileNotFoundError:
        return True


def _take_over(folder: Path, owner: Owner) -> bool:
    """Replace a stale owner. One at a time: `.lock.takeover` is held briefly, and staleness checked again under it."""
    guard = folder / _TAKEOVER
    if not _create(guard, owner):
        with suppress(FileNotFoundError):
            if time.time() - guard.stat().st_mtime > STALE_S:  # its creator died meanwhile
                guard.unlink(missing_ok=True)
        return False
    try:
        if not _is_stale(folder / OWNER):
            return False
        (folder / OWNER).unlink(missing_ok=True)
        return _create(folder / OWNER, owner)
    finally:
        guard.unlink(missing_ok=True)


def _read(path: Path) -> Owner | None:
    try:
        return Owner.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _myself(job_id: str, kind: Literal["flock", "lock file"]) -> Owner:
    return Owner(
        hostname=socket.gethostname(),
        pid=os.getpid(),
        process_start=_process_start(os.getpid()),
        boot_id=_boot_id(),
        pid_namespace=_pid_namespace(),
        since=time.time(),
        job_id=job_id,
        kind=kind,
    )


def _process_start(pid: int) -> int:
    """Clock ticks since boot at which the process began; -1: there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return -1


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
