"""The monitor: what a host, its GPUs and the ranks on it use, once a second, into monitor/<hostname>.csv of the run.

`python -m graphmill.monitor.sampler RUN_FOLDER --parent PID` runs next to the ranks, once per host. It ends with the
process PID or on SIGTERM, ignores other signals, and never fails a run: if it cannot write, it keeps trying.
Neither torch nor numpy is loaded: it starts fast and stays small.
"""

import argparse
import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Final

from graphmill.base.python import python_m
from graphmill.monitor.columns import COLUMNS
from graphmill.monitor.ranks_here import RanksHere
from graphmill.monitor.usage import (
    GroupReading,
    GroupUsage,
    HostReading,
    HostUsage,
    ProcessReading,
    ProcessUsage,
    groups_of,
)
from graphmill.runtime.machine import CGROUP_ROOT, host_name
from graphmill.runtime.nvml import GpuUsage, select_visible

INTERVAL_S: Final = 1.0
_SEARCH_EVERY_S: Final = 10.0  # for processes that ranks have started; sooner at first, while ranks come up
_SHARE: Final = 1000  # a search, and a walk of page tables, may cost at most one part in this many of a core
_PROPORTIONAL_EVERY_S: Final = 10.0
_MAX_UNWRITTEN: Final = 1 << 20
_WAIT_FOR_LOCK_S: Final = 10.0  # the monitor of an attempt that just ended may still hold the file
_FOR_RANKS: Final = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
_MIB: Final = 1 << 20


def start_monitor(run: Path, *, of_command: bool = False) -> "subprocess.Popen[bytes]":
    """Start the monitor of this host; it ends with the calling process.

    `of_command`: what is measured is the calling process, whatever program it becomes, and all that it starts. The
    monitor holds none of our files open: a scheduler that waits for a rank's output to end does not wait for it.
    """
    command = python_m("graphmill.monitor.sampler", str(run), "--parent", str(os.getpid()))
    command += ["--of-command"] if of_command else []
    nowhere = subprocess.DEVNULL
    # Inherited, these stay blocked until the monitor can handle them: a signal to all ranks does not kill it early.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_FOR_RANKS, signal.SIGTERM))
    try:
        return subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, close_fds=True)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample until the parent ends."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.monitor.sampler", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN_FOLDER")
    parser.add_argument("--parent", type=int, required=True, metavar="PID", help="whose end is ours")
    parser.add_argument("--of-command", action="store_true", help="the parent is what is measured, as rank 0")
    parser.add_argument("--interval", type=float, default=INTERVAL_S, metavar="S", help="seconds between two samples")
    options = parser.parse_args(arguments)
    life = _Life(options.parent)
    path = options.run.resolve() / "monitor" / f"{host_name(os.environ)}.csv"
    with _only_one(path, life) as is_ours:
        if is_ours:
            command = options.parent if options.of_command else None
            sampler = Sampler(options.run.resolve(), command=command)
            _sample_until_the_end(sampler, path, life, options.interval)
    return 0


def _sample_until_the_end(sampler: "Sampler", path: Path, life: "_Life", interval_s: float) -> None:
    lines = CsvLines(path)
    due = time.monotonic() + interval_s
    while life.lasts_until(due):
        lines.append(sampler.sample())
        # A suspended host does not catch up on missed samples; two samples are never too close to compute a rate.
        due = max(due + interval_s, time.monotonic() + interval_s / 2)
    if due - time.monotonic() < interval_s / 2:  # what was used since the last sample, unless it is next to nothing
        lines.append(sampler.sample())
    lines.close()


class Sampler:
    """Takes one sample after another; each covers the time since the one before."""

    def __init__(self, run: Path, environ: Mapping[str, str] | None = None, *, command: int | None = None) -> None:
        self._host = HostUsage(_interfaces(os.environ if environ is None else environ))
        self._gpus = GpuUsage()
        self._ranks_here = RanksHere(run, command)
        self._processes: dict[int, _Process] = {}  # by process id
        self._ended_cpu_s: dict[str, float] = {}  # by rank: of processes that have ended
        self._group: GroupUsage | None = None
        self._group_before: GroupReading | None = None
        self._proportional: dict[str, int] = {}  # by rank, bytes
        self._born = time.monotonic()
        self._search_at = self._proportional_at = 0.0
        self._host_before = self._host.read()
        self._before = time.monotonic()
        self._search()

    def sample(self) -> list[str]:
        """The rows of one sample, as lines of the CSV."""
        now = time.monotonic()
        elapsed, self._before = max(now - self._before, 1e-3), now
        if now >= self._search_at:
            self._search()
        clock = f"{time.time():.3f}"
        rows = [self._host_row(elapsed)]
        rows += self._group_rows(elapsed)
        rows += self._rank_rows(elapsed)
        rows += self._gpu_rows()
        return [line(clock, subject, cells) for subject, cells in rows]

    def _search(self) -> None:
        """Look for the processes of the ranks. Not often: /proc is long on a big host."""
        began = time.thread_time()
        found = self._ranks_here.find()
        for pid, rank in found.items():
            if pid not in self._processes:
                self._processes[pid] = _Process(rank, ProcessUsage(pid))
        if self._group is None and found:
            self._group = GroupUsage.of(groups_of(next(iter(found))), CGROUP_ROOT)
        cost = time.thread_time() - began
        age = time.monotonic() - self._born
        self._search_at = time.monotonic() + min(age / 4, max(_SEARCH_EVERY_S, cost * _SHARE))

    def _host_row(self, elapsed: float) -> tuple[str, dict[str, object]]:
        now, before = self._host.read(), self._host_before
        self._host_before = now
        return "host", {
            "cores": f"{(now.busy_s - before.busy_s) / elapsed:.3f}",
            "busy_percent": f"{_percent_busy(now, before):.1f}",
            "memory_mib": _mib(now.memory_used_bytes),
            "memory_total_mib": _mib(now.memory_total_bytes),
            "received_bytes": now.received_bytes - before.received_bytes,
            "sent_bytes": now.sent_bytes - before.sent_bytes,
            "read_bytes": now.read_bytes - before.read_bytes,
            "written_bytes": now.written_bytes - before.written_bytes,
        }

    def _group_rows(self, elapsed: float) -> list[tuple[str, dict[str, object]]]:
        now = self._group.read() if self._group else None
        before, self._group_before = self._group_before, now
        if now is None:
            return []
        cells: dict[str, object] = {
            "cores": f"{(now.cpu_s - before.cpu_s) / elapsed:.3f}" if before else "",
            "memory_mib": _mib(now.memory_bytes),
            "memory_total_mib": "" if now.limit_bytes is None else _mib(now.limit_bytes),
            "peak_mib": _mib(now.peak_bytes),
            "private_mib": _mib(now.private_bytes),
        }
        return [("job", cells)]

    def _rank_rows(self, elapsed: float) -> list[tuple[str, dict[str, object]]]:
        sums: dict[str, _Sum] = {}
        for pid, process in list(self._processes.items()):
            before, now = process.before, process.usage.read()
            if now is None:
                process.usage.close()
                del self._processes[pid]
                self._ended_cpu_s[process.rank] = self._ended_cpu_s.get(process.rank, 0.0) + before.cpu_s
                continue
            process.before = now
            sums.setdefault(process.rank, _Sum()).add(now, before)
        self._measure_proportional(sums)
        ranks = sorted(sums, key=lambda rank: (len(rank), rank))
        return [(rank, self._rank_cells(rank, sums[rank], elapsed)) for rank in ranks]

    def _rank_cells(self, rank: str, uses: "_Sum", elapsed: float) -> dict[str, object]:
        return {
            "cores": f"{uses.cpu_s / elapsed:.3f}",
            "cpu_s": f"{uses.cpu_since_start_s + self._ended_cpu_s.get(rank, 0.0):.2f}",
            "memory_mib": _mib(uses.resident),
            "private_mib": _mib(uses.private),
            "peak_mib": _mib(uses.peak),
            "proportional_mib": _mib(self._proportional[rank]) if rank in self._proportional else "",
            "read_bytes": uses.read,
            "written_bytes": uses.written,
        }

    def _measure_proportional(self, ranks: Mapping[str, object]) -> None:
        """Fill in what is only measured now and then, because it takes the kernel a while."""
        self._proportional = {}
        if not ranks or time.monotonic() < self._proportional_at:
            return
        began = time.thread_time()
        for process in self._processes.values():
            num_bytes = process.usage.proportional_bytes() or 0
            self._proportional[process.rank] = self._proportional.get(process.rank, 0) + num_bytes
        wait = max(_PROPORTIONAL_EVERY_S, (time.thread_time() - began) * _SHARE)
        self._proportional_at = time.monotonic() + wait

    def _gpu_rows(self) -> list[tuple[str, dict[str, object]]]:
        if not self._gpus.gpus:
            return []
        allowed = {gpu.uuid for text in self._ranks_here.gpus for gpu in select_visible(self._gpus.gpus, text)}
        rows: list[tuple[str, dict[str, object]]] = []
        for number, reading in enumerate(self._gpus.read()):
            if allowed and reading.uuid not in allowed:
                continue
            numbers = {
                "busy_percent": reading.busy_percent,
                "memory_busy_percent": reading.memory_busy_percent,
                "memory_mib": reading.memory_used_mib,
                "memory_total_mib": reading.memory_total_mib,
                "power_w": reading.power_w,
                "temperature_c": reading.temperature_c,
            }
            rows.append((f"gpu_{number}", {k: "" if v is None else f"{v:.1f}" for k, v in numbers.items()}))
        return rows


class _Process:
    """A process of a rank, and its last reading: what it used before it was found is not of the second after."""

    def __init__(self, rank: str, usage: ProcessUsage) -> None:
        self.rank, self.usage = rank, usage
        self.before = usage.read() or ProcessReading(0.0, 0, 0, 0, 0, 0)


class _Sum:
    """Resources that the processes of one rank use together."""

    def __init__(self) -> None:
        self.cpu_s = self.cpu_since_start_s = 0.0
        self.resident = self.private = self.peak = self.read = self.written = 0

    def add(self, now: ProcessReading, before: ProcessReading) -> None:
        """Count one process in."""
        self.cpu_s += now.cpu_s - before.cpu_s
        self.cpu_since_start_s += now.cpu_s
        self.resident += now.resident_bytes
        self.private += now.private_bytes
        self.peak += now.peak_bytes
        self.read += now.read_bytes - before.read_bytes
        self.written += now.written_bytes - before.written_bytes


class CsvLines:
    """Appends whole lines to the CSV, its header once. What cannot be written now is written later, up to 1 MiB."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._rest = b""

    def append(self, lines: Sequence[str]) -> None:
        """Hand all lines to the system in one write."""
        self._rest += "".join(f"{text}\n" for text in lines).encode()
        try:
            self._open()
            while self._rest:
                self._rest = self._rest[os.write(self._fd, self._rest) :]
        except OSError:  # a full disk, a folder made read-only: the run must not suffer; the gap shows in the times
            if len(self._rest) > _MAX_UNWRITTEN:
                self._rest = self._rest[self._rest.index(b"\n", len(self._rest) // 2) + 1 :]

    def _open(self) -> None:
        if self._fd >= 0:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._fd).st_size
        if size == 0:
            self._rest = (",".join(COLUMNS) + "\n").encode() + self._rest
        elif os.pread(self._fd, 1, size - 1) != b"\n":  # an earlier monitor was killed within a line
            self._rest = b"\n" + self._rest

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def line(clock: str, subject: str, cells: Mapping[str, object]) -> str:
    """Format one row; a column without a cell is left empty."""
    return ",".join((clock, subject, *(str(cells.get(name, "")) for name in list(COLUMNS)[2:])))


class _Life:
    """Knows when to end: on SIGTERM, or when the parent does. Signals meant for the ranks are ignored."""

    def __init__(self, parent: int) -> None:
        self._stop_requested = False
        self._parent = parent
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._stop)
        for number in _FOR_RANKS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*_FOR_RANKS, signal.SIGTERM))
        self._poll = select.poll()
        self._poll.register(wake_read, select.POLLIN)
        self._parent_fd = _pidfd(parent)  # unlike PR_SET_PDEATHSIG, it does not depend on which thread started us
        if self._parent_fd >= 0:
            self._poll.register(self._parent_fd, select.POLLIN)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stop_requested = True

    def lasts_until(self, moment: float) -> bool:
        """Sleep until `moment` (monotonic, s). False at once when it is time to end."""
        while not self._stop_requested and self._parent_lives():
            left = moment - time.monotonic()
            if left <= 0:
                return True
            self._poll.poll(left * 1000)
        return False

    def _parent_lives(self) -> bool:
        if self._parent_fd >= 0:
            return not select.select([self._parent_fd], [], [], 0)[0]
        return Path(f"/proc/{self._parent}").exists()  # a kernel before 5.3: looked at once a sample


def _pidfd(pid: int) -> int:
    """A descriptor that becomes readable when the process ends; −1 if the kernel has none, or it has ended."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


@contextlib.contextmanager
def _only_one(path: Path, life: _Life) -> Iterator[bool]:
    """Whether this is the only monitor of the file. Two monitors would count everything twice."""
    give_up = time.monotonic() + _WAIT_FOR_LOCK_S
    lock: IO[bytes] | None = None
    try:
        while lock is None:
            try:
                lock = _locked(path)
            except BlockingIOError:
                if time.monotonic() > give_up or not life.lasts_until(time.monotonic() + 0.2):
                    break
            except OSError:  # no file locks (or no writing) here: then no other process can hold one
                yield True
                return
        yield lock is not None
    finally:
        if lock is not None:
            lock.close()


def _locked(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_name(f".{path.name}.lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def _interfaces(environ: Mapping[str, str]) -> list[str]:
    """The interfaces named for the collectives; all of them if only a prefix or an exclusion is given."""
    named = environ.get("GLOO_SOCKET_IFNAME") or environ.get("NCCL_SOCKET_IFNAME") or ""
    return [name.removeprefix("=") for name in named.split(",") if name and not name.startswith("^")]


def _percent_busy(now: HostReading, before: HostReading) -> float:
    total = now.total_s - before.total_s
    return 100 * (now.busy_s - before.busy_s) / total if total > 0 else 0.0


def _mib(num_bytes: float) -> str:
    return f"{num_bytes / _MIB:.1f}"


if __name__ == "__main__":
    sys.exit(main())
