"""What is being used right now: this host's cores, memory, network, disks; what processes use. Read from /proc.

Counters only ever grow, as the kernel keeps them: whoever wants a rate takes two readings. Files that are read again
and again stay open: that makes a reading several times cheaper, and this runs beside the training it measures.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_SECTOR_BYTES: Final = 512  # in /proc/diskstats, whatever the disk's own is
_IDLE, _IOWAIT = 3, 4  # fields of the line "cpu" in /proc/stat
_JOB: Final = re.compile(r"^job_\d+$")  # how Slurm names the control group of a job, in both versions
_NO_LIMIT: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class HostReading:
    """The whole host, whoever uses it."""

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
    """One process. Memory is resident; `read_bytes` is what it caused to be fetched from storage, page cache aside."""

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
        self._stat, self._memory, self._network, self._diskstats = (
            _opened(f"/proc/{name}") for name in ("stat", "meminfo", "net/dev", "diskstats")
        )

    def read(self) -> HostReading:
        """All counters, now."""
        # guest time, fields 8 and 9, is in user time already
        ticks = [int(word) for word in _content(self._stat).split(b"\n", 1)[0].split()[1:9]]
        idle = ticks[_IDLE] + ticks[_IOWAIT]
        total, used = _host_memory(_content(self._memory))
        received, sent = self._traffic(_content(self._network))
        read, written = self._disk_bytes(_content(self._diskstats))
        return HostReading(
            busy_s=(sum(ticks) - idle) / TICKS_PER_S,
            total_s=sum(ticks) / TICKS_PER_S,
            memory_total_bytes=total,
            memory_used_bytes=used,
            received_bytes=received,
            sent_bytes=sent,
            read_bytes=read,
            written_bytes=written,
        )

    def _traffic(self, text: bytes) -> tuple[int, int]:
        received = sent = 0
        for line in text.splitlines()[2:]:
            name, _, counters = line.partition(b":")
            interface = name.strip().decode()
            if interface in self._interfaces if self._interfaces else interface != "lo":
                words = counters.split()
                received, sent = received + int(words[0]), sent + int(words[8])
        return received, sent

    def _disk_bytes(self, text: bytes) -> tuple[int, int]:
        read = written = 0
        for line in text.splitlines():
            words = line.split()
            if words[2].decode() in self._disks:
                read, written = read + int(words[5]), written + int(words[9])
        return read * _SECTOR_BYTES, written * _SECTOR_BYTES


class ProcessUsage:
    """Reads the counters of one process of this user."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._stat, self._status, self._io = (_opened(f"/proc/{pid}/{name}") for name in ("stat", "status", "io"))

    def read(self) -> ProcessReading | None:
        """All counters, now; None where the process has ended."""
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
        """Resident memory with each shared page divided among its users; None where the kernel does not say.

        The kernel walks all page tables for this: some 10 ms for each 10 GiB. Not for every second.
        """
        try:
            return _kib(Path(f"/proc/{self.pid}/smaps_rollup").read_bytes(), b"\nPss:")
        except OSError:
            return None

    def close(self) -> None:
        """Let go of the files."""
        for fd in (self._stat, self._status, self._io):
            if fd >= 0:
                os.close(fd)
        self._stat = self._status = self._io = -1


class GroupUsage:
    """Reads the control group of the Slurm job that a process belongs to."""

    def __init__(self, memory: Path, cpu: Path, *, is_version_2: bool) -> None:
        self._memory, self._cpu, self._is_version_2 = memory, cpu, is_version_2

    @classmethod
    def of(cls, own: Mapping[str, str], root: Path) -> "GroupUsage | None":
        """The job's group among those that a process is in (controller → path); None where Slurm made none."""
        for memory, cpu, is_version_2 in (("memory", "cpuacct", False), ("", "", True)):
            groups = _job_group(own.get(memory)), _job_group(own.get(cpu))
            if groups[0] is not None:
                folder = root / memory / groups[0]
                cpu_folder = root / cpu / (groups[1] or groups[0])
                if (folder / ("memory.current" if is_version_2 else "memory.usage_in_bytes")).is_file():
                    return cls(folder, cpu_folder, is_version_2=is_version_2)
        return None

    def read(self) -> GroupReading | None:
        """All counters, now; None once the group is gone."""
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


def _host_memory(text: bytes) -> tuple[int, int]:
    total = _kib(text, b"MemTotal:")
    return total, total - _kib(text, b"MemAvailable:")


def _whole_disks() -> frozenset[str]:
    """Disks that are neither partitions of others, nor stacked on them: their bytes would count twice."""
    try:
        names = os.listdir("/sys/block")  # noqa: PTH208  # names are what is wanted
    except OSError:
        return frozenset()
    return frozenset(name for name in names if not name.startswith(("loop", "ram", "zram", "dm-", "md")))


def _kib(text: bytes, key: bytes) -> int:
    """Bytes in a line such as `VmRSS:     1234 kB`; 0 where it is not there, as in a process without memory."""
    begin = text.find(key)
    if begin < 0:
        return 0
    begin += len(key)
    return int(text[begin : text.index(b"kB", begin)]) * 1024


def _field(text: str | None, key: str) -> int:
    """The number after a word at the beginning of a line."""
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
    """A file descriptor, or −1 where there is no such file: it then reads as empty."""
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
