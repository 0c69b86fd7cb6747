"""Cores that other processes use while a benchmark runs: all that was busy, less what is the benchmark's own.

Own is every process that carries the benchmark's mark in its environment, and every descendant of one: ranks that
Slurm's daemons start in sessions and control groups of their own are among them, because the dev cluster is a
descendant and `sbatch` hands the environment on. A thread looks once a second, so that the time of a process that has
ended is known, where none of its own kind waited for it.
"""

import os
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "GRAPHMILL_BENCHMARK_MARK"
os.environ.setdefault(MARK, uuid.uuid4().hex)  # for what is started from here on; this process is known by its pid
_TICKS = os.sysconf("SC_CLK_TCK")
LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A process at one look. CPU seconds: its own, and those of children that it waited for."""

    pid: int
    parent: int
    started: int  # ticks since boot: with the pid, a name that is used once
    own_s: float
    waited_s: float


class ForeignLoad:
    """Cores in use by other processes since this was made."""

    def __init__(self) -> None:
        self._own = OwnTime()
        self._since, self._busy, self._own_s = time.perf_counter(), _busy_s(), self._own.look()
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def seconds(self) -> tuple[float, float]:
        """CPU seconds of others, and seconds that passed; this ends the watch."""
        self._over.set()
        elapsed, busy, own = time.perf_counter() - self._since, _busy_s(), self._own.look()
        return max(0.0, busy - self._busy - (own - self._own_s)), elapsed

    def cores(self) -> float:
        """On average; this ends the watch."""
        foreign, elapsed = self.seconds()
        return foreign / elapsed

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self._own.look()


class OwnTime:
    """CPU time of all marked processes and their descendants, also of those that have ended."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], Seen] = {}
        self._lost_s = 0.0  # of ended ones that no own process waited for
        self._mark = f"{MARK}={os.environ[MARK]}".encode()
        self._lock = threading.Lock()

    def look(self) -> float:
        """CPU seconds so far."""
        with self._lock:
            processes = _processes()
            own = self._own_among(processes)
            self._lost_s += self._lost_since(own)
            self._seen = own
            return self._lost_s + sum(seen.own_s + seen.waited_s for seen in own.values())

    def _lost_since(self, own: dict[tuple[int, int], Seen]) -> float:
        """CPU seconds of processes that ended since the last look, as far as no living one has them in its `waited_s`.

        A parent that waits takes over what its child used and waited for, and so up the tree; but a PID namespace that
        is torn down takes nothing over, nor does a stranger who waits for an orphan.
        """
        before, living = {seen.pid: seen for seen in self._seen.values()}, {seen.pid: seen for seen in own.values()}
        ended: dict[int, float] = {}  # by the nearest ancestor that lives; 0 for none
        for key, seen in self._seen.items():
            if key not in own:
                parent = seen.parent
                while parent not in living and parent in before:
                    parent = before[parent].parent
                heir = parent if parent in living and parent in before else 0
                ended[heir] = ended.get(heir, 0.0) + seen.own_s + seen.waited_s
        taken = {heir: living[heir].waited_s - before[heir].waited_s for heir in ended if heir}
        return sum(max(0.0, seconds - taken.get(heir, 0.0)) for heir, seconds in ended.items())

    def _own_among(self, processes: dict[int, Seen]) -> dict[tuple[int, int], Seen]:
        verdicts: dict[int, bool] = {0: False, 1: False, os.getpid(): True}

        def is_own(pid: int) -> bool:
            if pid not in verdicts:
                seen = processes.get(pid)
                verdicts[pid] = False  # a loop of parents cannot be, but pids are read one after the other
                if seen is not None:
                    known = (pid, seen.started) in self._seen  # once own, always: an exec may drop the mark
                    verdicts[pid] = known or self._mark in _environ(pid) or is_own(seen.parent)
            return verdicts[pid]

        return {(pid, seen.started): seen for pid, seen in processes.items() if is_own(pid)}


def _processes() -> dict[int, Seen]:
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # a hundred of them a second: no Path for each
        if name.isdigit() and (seen := _seen(int(name))):
            found[seen.pid] = seen
    return found


def _seen(pid: int) -> Seen | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:  # it has ended
        return None
    fields = text.rpartition(")")[2].split()  # from field 3 of proc(5) on: the name before them may hold anything
    user, system, waited_user, waited_system = (int(field) / _TICKS for field in fields[11:15])
    return Seen(pid, int(fields[1]), int(fields[19]), user + system, waited_user + waited_system)


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is somebody else's
        return []


def _busy_s() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait - getattr(times, "guest", 0) - getattr(times, "guest_nice", 0)
