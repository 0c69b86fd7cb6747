"""What is being used right now: this host's cores, memory, network, disks; what processes and control groups use.

Counters only ever grow, as the kernel keeps them: a rate takes two readings. The host's come from psutil;
a process's from /proc, because psutil has no peak memory on Linux (VmHWM), and the files stay open between readings:
this runs while the training it measures runs.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_JOB: Final = re.compile(r"^job_\d+$")  # how Slurm names the control group of a job, in both versions
_NO_LIMIT: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class HostReading:
    """Counters of the whole host, whichever processes use it."""

    busy_s: float  # of all cores together, since boot
    total_s: float  # the same, idle included
    memory_total_bytes: int
    memory_used_bytes: int  # total − what the kernel could hand out without swapping
    received_bytes: int  # over the watched interfaces
    sent_bytes: int
    read_bytes: int  # from all whole disks
    written_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """One process. Memory is resident; `read_bytes` is what it read from storage, page cache hits excluded."""

    cpu_s: float
    resident_bytes: int  # shared pages counted in full: of a memory-mapped data set, in every process
    private_bytes: int  # anonymous: what no other process shares
    peak_bytes: int  # of resident_bytes, kept by the kernel: no peak between two readings is missed
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class GroupReading:
    """The control group that Slurm made for the job on this host."""

    cpu_s: float
    memory_bytes: int  # page cache included
    private_bytes: int
    peak_bytes: int
    limit_bytes: int | None


class HostUsage:
    """Reads the host's counters. `interfaces`: those whose traffic counts; none named: all but the loop-back."""

    def __init__(self, interfaces: Sequence[str] = ()) -> None:
        self._interfaces = frozenset(interfaces)
        self._disks = _whole_disks()

    def read(self) -> HostReading:
        """Read all counters now."""
        import psutil  # it ships no types

        cpu = psutil.cpu_times()  # type: ignore[no-untyped-call]
        total_s = sum(cpu) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0)  # in user already
        memory = psutil.virtual_memory()  # type: ignore[no-untyped-call]
        traffic = psutil.net_io_counters(pernic=True)  # type: ignore[no-untyped-call]
        links = [link for name, link in traffic.items() if self._counts(name)]
        transfers = psutil.disk_io_counters(perdisk=True)  # type: ignore[no-untyped-call]
        disks = [disk for name, disk in transfers.items() if name in self._disks]
        return HostReading(
            busy_s=total_s - cpu.idle - getattr(cpu, "iowait", 0.0),
            total_s=total_s,
            memory_total_bytes=memory.total,
            memory_used_bytes=memory.total - memory.available,
            received_bytes=sum(link.bytes_recv for link in links),
            sent_bytes=sum(link.bytes_sent for link in links),
            read_bytes=sum(disk.read_bytes for disk in disks),
            written_bytes=sum(disk.write_bytes for disk in disks),
        )

    def _counts(self, interface: str) -> bool:
        return interface in self._interfaces if self._interfaces else interface != "lo"


class ProcessUsage:
    """Reads the counters of one process of this user."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._stat, self._status, self._io = (_opened(f"/proc/{pid}/{name}") for name in ("stat", "status", "io"))

    def read(self) -> ProcessReading | None:
        """Read all counters now; None if the process has ended."""
        try:
            after_name = _content(self._stat).rpartition(b") ")[2].split()
            status = _content(self._status)
            transfers = dict(line.split(b": ") for line in _content(self._io).splitlines())
        except OSError:
            return None
        if not after_name or after_name[0] in (b"Z", b"X"):
            return None
        return ProcessReading(
            cpu_s=(int(after_name[11]) + int(after_name[12])) / TICKS_PER_S,
            resident_bytes=_kib(status, b"VmRSS:"),
            private_bytes=_kib(status, b"RssAnon:"),
            peak_bytes=_kib(status, b"VmHWM:"),
            read_bytes=int(transfers.get(b"read_bytes", 0)),
            written_bytes=int(transfers.get(b"write_bytes", 0)),
        )

    def proportional_bytes(self) -> int | None:
        """Resident memory with each shared page divided among its users; None if the kernel does not report it.

        The kernel walks all page tables for this: some 10 ms for each 10 GiB. Not for every second.
        """
        try:
            return _kib(Path(f"/proc/{self.pid}/smaps_rollup").read_bytes(), b"\nPss:")
        except OSError:
            return None

    def close(self) -> None:
        """Close the files."""
        for fd in (self._stat, self._status, self._io):
            if fd >= 0:
                os.close(fd)
        self._stat = self._status = self._io = -1


class GroupUsage:
    """Reads the control group of the Slurm job that a process belongs to."""

    def __init__(self, memory: Path, cpu: Path, *, is_version_2: bool) -> None:
        self._memory, self._cpu, self._is_version_2 = memory, cpu, is_version_2

    @classmethod
    def of(cls, group_paths: Mapping[str, str], root: Path) -> "GroupUsage | None":
        """The job's group among those that a process is in (controller → path); None if Slurm made none."""
        for memory, cpu, is_version_2 in (("memory", "cpuacct", False), ("", "", True)):
            groups = _job_group(group_paths.get(memory)), _job_group(group_paths.get(cpu))
            if groups[0] is not None:
                folder = root / memory / groups[0]
                cpu_folder = root / cpu / (groups[1] or groups[0])
                if (folder / ("memory.current" if is_version_2 else "memory.usage_in_bytes")).is_file():
                    return cls(folder, cpu_folder, is_version_2=is_version_2)
        return None

    def read(self) -> GroupReading | None:
        """Read all counters now; None once the group is gone."""
        names = ("memory.current", "memory.peak", "memory.max", "anon")
        if not self._is_version_2:
            names = ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes", "total_rss")
        usage, peak, limit = (_text(self._memory / name) for name in names[:3])
        if usage is None:
            return None
        anonymous = _field(_text(self._memory / "memory.stat"), names[3])
        capped = limit is not None and limit.isdecimal() and int(limit) < _NO_LIMIT
        return GroupReading(
            cpu_s=self._cpu_s(),
            memory_bytes=int(usage),
            private_bytes=anonymous,
            peak_bytes=int(peak or usage),
            limit_bytes=int(limit or 0) if capped else None,
        )

    def _cpu_s(self) -> float:
        if self._is_version_2:
            return _field(_text(self._cpu / "cpu.stat"), "usage_usec") / 1e6
        return int(_text(self._cpu / "cpuacct.usage") or 0) / 1e9


def groups_of(pid: int) -> dict[str, str]:
    """Controller → path of the control groups of a process; the name is empty for version 2."""
    lines = (_text(Path(f"/proc/{pid}/cgroup")) or "").splitlines()
    entries = (line.split(":", 2) for line in lines)
    return {name: path for _, names, path in entries for name in names.split(",")}


def _job_group(path: str | None) -> str | None:
    """`slurm/uid_1/job_7` of `/slurm/uid_1/job_7/step_0`."""
    parts = [part for part in (path or "").split("/") if part]
    depth = next((number for number, part in enumerate(parts, start=1) if _JOB.match(part)), None)
    return None if depth is None else "/".join(parts[:depth])


def _whole_disks() -> frozenset[str]:
    """Disks that are neither partitions of others, nor stacked on them: their bytes would count twice."""
    try:
        names = os.listdir("/sys/block")  # noqa: PTH208  # names are what is wanted
    except OSError:
        return frozenset()
    return frozenset(name for name in names if not name.startswith(("loop", "ram", "zram", "dm-", "md")))


def _kib(text: bytes, key: bytes) -> int:
    """Bytes in a line such as `VmRSS:     1234 kB`; 0 if it is absent, as in a process without memory."""
    begin = text.find(key)
    if begin < 0:
        return 0
    begin += len(key)
    return int(text[begin : text.index(b"kB", begin)]) * 1024


def _field(text: str | None, key: str) -> int:
    """Return the number after a word at the beginning of a line; 0: there is none."""
    for line in (text or "").splitlines():
        name, _, number = line.partition(" ")
        if name == key:
            return int(number)
    return 0


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return None


def _opened(path: str) -> int:
    """A file descriptor, or −1 if there is no such file: it then reads as empty."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _content(fd: int) -> bytes:
    if fd < 0:
        return b""
    pieces, offset = [], 0
    while piece := os.pread(fd, 1 << 16, offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)
