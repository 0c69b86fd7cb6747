"""Which processes of this host belong to which rank of a run: a rank is what holds its file of events open to write."""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_OF_COMMAND: Final = "rank_0"


@dataclass(frozen=True, slots=True)
class _KnownRank:
    """What was found out about a process; it holds while the process is the same one."""

    began: bytes  # start of the process in clock ticks
    subject: str
    gpus: str | None  # its CUDA_VISIBLE_DEVICES


@dataclass(slots=True)
class RanksHere:
    """Finds the ranks of the run in `run`, and all that they started, among this user's processes."""

    run: Path
    command: int | None = None  # process id of what a job runs in place of ranks; it counts as rank 0
    gpus: set[str] = field(default_factory=set)  # every CUDA_VISIBLE_DEVICES seen in a rank
    _known: dict[int, _KnownRank] = field(default_factory=dict)

    def find(self) -> dict[int, str]:
        """Process id → name of its rank, such as rank_3. This process is none, though a rank has started it."""
        parents: dict[int, int] = {}
        known: dict[int, _KnownRank] = {}
        for pid in _own_pids():
            _, _, tail = _read(f"/proc/{pid}/stat").rpartition(b") ")
            stat_fields = tail.split(None, 20)
            if len(stat_fields) > 19:
                parents[pid] = int(stat_fields[1])
                if rank := self._look_at(pid, stat_fields[19]):
                    known[pid] = rank
        self._known = known
        self.gpus.update(each.gpus for each in known.values() if each.gpus is not None)
        ranks = {pid: self._rank_of(pid, parents) for pid in parents if pid != os.getpid()}
        return {pid: rank for pid, rank in ranks.items() if rank is not None}

    def _look_at(self, pid: int, began: bytes) -> _KnownRank | None:
        before = self._known.get(pid)
        if before is not None and before.began == began:
            return before
        of_command = _OF_COMMAND if pid == self.command else None
        subject = _subject_of(self.run, pid) if self.command is None else of_command
        return None if subject is None else _KnownRank(began, subject, _visible_gpus(pid))

    def _rank_of(self, pid: int, parents: dict[int, int]) -> str | None:
        """The rank of the process, or that of the nearest ancestor which is one."""
        while pid in parents and pid != os.getpid():
            if pid in self._known:
                return self._known[pid].subject
            pid = parents[pid]
        return None


def rank_processes(run: Path) -> dict[int, str]:
    """Process id → name of its rank, of those ranks of a run that this user may look at, without what they started."""
    found = {pid: _subject_of(run.resolve(), pid) for pid in _own_pids()}
    return {pid: rank for pid, rank in found.items() if rank is not None}


def _subject_of(run: Path, pid: int) -> str | None:
    """The stem of the file of events of this run that the process can write to."""
    events = f"{run}/events/"
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                name = os.readlink(entry.path)  # noqa: PTH115  # twice as quick as Path, for each process
                is_open_to_write = bool(entry.stat(follow_symlinks=False).st_mode & stat.S_IWUSR)
                if name.startswith(events) and is_open_to_write:
                    return name[len(events) :].partition(".")[0]
    except OSError:  # it has ended, or closed a file
        return None
    return None


def _visible_gpus(pid: int) -> str | None:
    """CUDA_VISIBLE_DEVICES of the process, which a forked rank shares with what it was forked from."""
    for entry in _read(f"/proc/{pid}/environ").split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == b"CUDA_VISIBLE_DEVICES":
            return value.decode(errors="replace")
    return None


def _own_pids() -> list[int]:
    """Processes of this user."""
    own, found = os.getuid(), []
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                try:
                    if entry.stat().st_uid == own:
                        found.append(int(entry.name))
                except OSError:  # it has ended
                    continue
    return found


def _read(path: str) -> bytes:
    """Read a file; nothing if the process has ended or we may not read it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # several times quicker than a file object, for each process
    except OSError:
        return b""
    try:
        pieces = []
        while piece := os.read(fd, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(fd)
