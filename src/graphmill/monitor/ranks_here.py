"""Which processes of this host belong to which rank of a run: found in /proc, by command line and environment."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from graphmill.runtime.job_environment import TASK_NUMBER
from graphmill.runtime.rank import LAUNCHER

_LOOKS: Final = 3  # at a process, before it is taken not to be a rank
WORKER_MODULE: Final = "graphmill.train.worker"
_WITH_VALUE: Final = ("-X", "-W")  # options of python that take the next word along


@dataclass(slots=True)
class _KnownProcess:
    """What was found out about a process; it holds while the process is the same one, and runs the same program."""

    identity: tuple[bytes, bytes]  # name of the program; start of the process in clock ticks
    rank: int | None
    gpus: str | None  # its CUDA_VISIBLE_DEVICES
    num_looks: int


@dataclass(slots=True)
class RanksHere:
    """Finds the ranks of the run in `run`, and all that they started, among this user's processes."""

    run: Path
    command: int | None = None  # process id of what a job runs in place of ranks; it counts as rank 0
    gpus: set[str] = field(default_factory=set)  # every CUDA_VISIBLE_DEVICES seen in a rank
    _known: dict[int, _KnownProcess] = field(default_factory=dict)

    def find(self) -> dict[int, int]:
        """Process id → rank. This process is none of them, though a rank has started it."""
        parents: dict[int, int] = {}
        known: dict[int, _KnownProcess] = {}
        for pid in _own_pids():
            head, _, tail = _read(f"/proc/{pid}/stat").rpartition(b") ")
            stat = tail.split(None, 20)
            if len(stat) > 19:
                parents[pid] = int(stat[1])
                known[pid] = self._look_at(pid, (head, stat[19]))
        self._known = known
        self.gpus.update(each.gpus for each in known.values() if each.rank is not None and each.gpus is not None)
        ranks = {pid: self._rank_of(pid, parents) for pid in parents if pid != os.getpid()}
        return {pid: rank for pid, rank in ranks.items() if rank is not None}

    def _look_at(self, pid: int, identity: tuple[bytes, bytes]) -> _KnownProcess:
        before = self._known.get(pid)
        # A shell that becomes a rank takes another name; a child of the launcher does not, so one look is not enough.
        same = before if before is not None and before.identity == identity else None
        num_looks = same.num_looks + 1 if same else 1
        if same and (same.rank is not None or num_looks > _LOOKS):
            return same
        words = [word.decode(errors="replace") for word in _read(f"/proc/{pid}/cmdline").split(b"\0")]
        if self.command is not None and pid != self.command:
            return _KnownProcess(identity, None, None, num_looks)
        if self.command is None and not self._is_of_this_run(pid, words):
            return _KnownProcess(identity, None, None, num_looks)
        entries = (entry.partition(b"=") for entry in _read(f"/proc/{pid}/environ").split(b"\0"))
        environ = {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in entries}
        if self.command is not None:
            return _KnownProcess(identity, 0, environ.get("CUDA_VISIBLE_DEVICES"), num_looks)
        name = TASK_NUMBER if environ.get(LAUNCHER) == "srun" else "RANK"
        number = environ.get(name, "0" if _module(words) == WORKER_MODULE else "")
        rank = int(number) if number.isascii() and number.isdecimal() else None
        return _KnownProcess(identity, rank, environ.get("CUDA_VISIBLE_DEVICES"), num_looks)

    def _is_of_this_run(self, pid: int, words: list[str]) -> bool:
        """Whether this is a Python program that was given the run folder, and may be a rank."""
        is_python = os.path.basename(words[0]).startswith("python")  # noqa: PTH119  # not a path but a word
        if not is_python or _module(words) not in (None, WORKER_MODULE):
            return False
        named = [word for word in words[1:] if word.rstrip("/").endswith(self.run.name)]
        return any(self._means_run(pid, word) for word in named)

    def _means_run(self, pid: int, word: str) -> bool:
        try:
            return Path(os.readlink(f"/proc/{pid}/cwd"), word).resolve() == self.run  # noqa: PTH115
        except OSError:
            return False

    def _rank_of(self, pid: int, parents: dict[int, int]) -> int | None:
        """The rank of the process, or that of the nearest ancestor which is one."""
        while pid in parents and pid != os.getpid():
            rank = self._known[pid].rank
            if rank is not None:
                return rank
            pid = parents[pid]
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


def _module(words: list[str]) -> str | None:
    """The module that `python -m` runs; None for a file, or for `-c`."""
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return next(rest, None)
        if word in _WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-") or word == "-c":
            return None
    return None


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
