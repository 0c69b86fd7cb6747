"""Read what the monitors wrote, and sum it up: averages and peaks by host, rank and GPU, over any span of time.

Averages are weighted by the time that each row covers. A malformed row (a monitor was killed within a line) is
left out.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from graphmill.base.retries import refuse_endless, retried
from graphmill.monitor.columns import COLUMNS

_NAMES: Final = tuple(COLUMNS)
_NEW_MONITOR_S: Final = 10.0  # after a longer gap than this, a row covers one interval, not the gap
_SUMMED: Final = ("received_bytes", "sent_bytes", "read_bytes", "written_bytes")


class MonitorRow(NamedTuple):
    """One row of a monitor's CSV. A cell that was empty is not in `cells`."""

    time: float  # Unix time, s
    subject: str
    cells: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Usage:
    """What one subject used over a span of time. None: it was not measured."""

    seconds: float  # of the span, as far as rows cover it
    cores_avg: float | None = None
    cores_p90: float | None = None  # nine tenths of the time, no more cores than this were busy
    cpu_s: float | None = None
    busy_percent_avg: float | None = None
    busy_percent_peak: float | None = None
    memory_avg_mib: float | None = None
    memory_peak_mib: float | None = None  # of the rows, and where the kernel keeps a peak, that
    private_peak_mib: float | None = None
    proportional_peak_mib: float | None = None
    memory_total_mib: float | None = None
    received_bytes: int | None = None
    sent_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    power_avg_w: float | None = None


@dataclass(frozen=True, slots=True)
class HostSummary:
    """One host, and what was measured on it separately."""

    hostname: str
    host: Usage
    job: Usage | None  # the control group of the Slurm job
    ranks: Mapping[int, Usage]
    samplers: Mapping[int, Usage]
    gpus: Mapping[int, Usage]
    ranks_cores_avg: float | None  # all ranks and samplers of the host together
    ranks_cores_p90: float | None
    ranks_peak_mib: float | None  # all ranks and samplers of the host together, what they share counted once


@dataclass(frozen=True, slots=True)
class MonitorSummary:
    """All hosts of a run, over one span of time."""

    hosts: tuple[HostSummary, ...]

    @property
    def cpu_util_avg(self) -> float | None:
        """Mean over hosts of the busy share of all their cores, %."""
        return _mean([host.host.busy_percent_avg for host in self.hosts])

    @property
    def gpu_util_avg(self) -> float | None:
        """Mean over the GPUs of all hosts of the share of time in which a kernel ran, %."""
        return _mean([gpu.busy_percent_avg for host in self.hosts for gpu in host.gpus.values()])

    @property
    def peak_mib_by_rank(self) -> dict[int, float]:
        """Highest resident memory of each rank."""
        return _peaks([host.ranks for host in self.hosts])

    @property
    def peak_mib_by_sampler(self) -> dict[int, float]:
        """Highest resident memory of each process that samples for ranks."""
        return _peaks([host.samplers for host in self.hosts])


@dataclass(slots=True)
class MonitorFolder:
    """The files of all hosts of a run that is under way: each is read on from where it was read to."""

    folder: Path
    _offsets: dict[Path, int] = field(default_factory=dict)
    _rows: dict[str, list[MonitorRow]] = field(default_factory=dict)

    def summarise(self, begin: float, end: float) -> MonitorSummary:
        """Sum up what was taken after `begin` and until `end` (Unix time, s). Spans may only move on."""
        for path in sorted(self.folder.glob("*.csv")):
            rows = [row for row in self._rows.get(path.stem, []) if row.time > begin - _NEW_MONITOR_S]
            self._rows[path.stem] = rows + self._read_on(path)
        return summarise(self._rows, begin=begin, end=end)

    def _read_on(self, path: Path) -> list[MonitorRow]:
        refuse_endless(path)
        with path.open("rb") as file:  # reopened: that is when a network file system shows what others wrote
            file.seek(self._offsets.get(path, 0))
            text = file.read()
        whole = text.rfind(b"\n") + 1
        self._offsets[path] = self._offsets.get(path, 0) + whole
        return parse_rows(text[:whole].decode(errors="replace").splitlines())


def read_monitor(path: Path) -> list[MonitorRow]:
    """All rows that one host's monitors wrote, in order. The line that is being written is not counted."""
    text = retried(path, Path.read_bytes)
    return parse_rows(text[: text.rfind(b"\n") + 1].decode(errors="replace").splitlines())


def read_monitors(folder: Path) -> dict[str, list[MonitorRow]]:
    """Hostname → rows, for every file in the folder; empty if there is none."""
    return {path.stem: read_monitor(path) for path in sorted(folder.glob("*.csv"))}


def parse_rows(lines: Iterable[str]) -> list[MonitorRow]:
    """The rows among `lines`; headers and torn lines are skipped."""
    rows = (_parsed(line) for line in lines)
    return [row for row in rows if row is not None]


def summarise(
    rows: Mapping[str, Sequence[MonitorRow]], *, begin: float = float("-inf"), end: float = float("inf")
) -> MonitorSummary:
    """Sum up the rows of all hosts that were taken after `begin` and until `end` (Unix time, s)."""
    hosts = []
    for hostname, all_rows in sorted(rows.items()):
        within = [row for row in all_rows if begin < row.time <= end]
        if within:
            hosts.append(_host(hostname, within))
    return MonitorSummary(tuple(hosts))


def _parsed(line: str) -> MonitorRow | None:
    words = line.split(",")
    if len(words) != len(_NAMES):
        return None
    try:
        cells = {name: float(word) for name, word in zip(_NAMES[2:], words[2:], strict=True) if word}
        return MonitorRow(float(words[0]), words[1], cells)
    except ValueError:
        return None


def _host(hostname: str, rows: Sequence[MonitorRow]) -> HostSummary:
    by_subject: dict[str, list[MonitorRow]] = {}
    for row in rows:
        by_subject.setdefault(row.subject, []).append(row)
    uses = {subject: _usage(own) for subject, own in by_subject.items()}
    cores, memory = _ranks_together(rows)
    cores.sort()
    return HostSummary(
        hostname=hostname,
        host=uses.get("host", Usage(seconds=0.0)),
        job=uses.get("job"),
        ranks=_numbered(uses, "rank_"),
        samplers=_numbered(uses, "sampler_"),
        gpus=_numbered(uses, "gpu_"),
        ranks_cores_avg=statistics.fmean(cores) if cores else None,
        ranks_cores_p90=_p90(cores),
        ranks_peak_mib=max(memory, default=None),
    )


def _peaks(uses: Iterable[Mapping[int, Usage]]) -> dict[int, float]:
    peaks = {number: use.memory_peak_mib for each in uses for number, use in each.items()}
    return {number: peak for number, peak in sorted(peaks.items()) if peak is not None}


def _numbered(uses: Mapping[str, Usage], prefix: str) -> dict[int, Usage]:
    found = {subject.removeprefix(prefix): use for subject, use in uses.items() if subject.startswith(prefix)}
    return {int(number): found[number] for number in sorted(found, key=int)}


def _ranks_together(rows: Sequence[MonitorRow]) -> tuple[list[float], list[float]]:
    """Cores that all ranks and samplers kept busy in each sample, and their memory (MiB), shared pages counted once."""
    samples: dict[float, list[MonitorRow]] = {}
    for row in rows:
        if row.subject.startswith(("rank_", "sampler_")):
            samples.setdefault(row.time, []).append(row)
    cores = [sum(row.cells.get("cores", 0.0) for row in sample) for sample in samples.values()]
    memory = [_shared_once([row.cells for row in sample]) for sample in samples.values()]
    return cores, memory


def _shared_once(ranks: Sequence[Mapping[str, float]]) -> float:
    """Private memory of each, and the largest share that is not: ranks of one host map the same data set.

    A rank's peak may have come and gone between two samples; the kernel has kept it.
    """
    private = [rank.get("private_mib", 0.0) for rank in ranks]
    shared = [rank.get("memory_mib", 0.0) - own for rank, own in zip(ranks, private, strict=True)]
    return max(sum(private) + max(shared, default=0.0), *(rank.get("peak_mib", 0.0) for rank in ranks))


def _usage(rows: Sequence[MonitorRow]) -> Usage:
    weights = _seconds_covered([row.time for row in rows])
    columns = {name: [row.cells.get(name) for row in rows] for name in _NAMES[2:]}

    def average(name: str) -> float | None:
        pairs = [(value, w) for value, w in zip(columns[name], weights, strict=True) if value is not None]
        return sum(value * w for value, w in pairs) / sum(w for _, w in pairs) if pairs else None

    def peak(*names: str) -> float | None:
        return max((value for name in names for value in columns[name] if value is not None), default=None)

    def total(name: str) -> int | None:
        values = [value for value in columns[name] if value is not None]
        return int(sum(values)) if values else None

    return Usage(
        seconds=sum(weights),
        cores_avg=average("cores"),
        cores_p90=_p90(sorted(value for value in columns["cores"] if value is not None)),
        cpu_s=_grown([value for value in columns["cpu_s"] if value is not None]),
        busy_percent_avg=average("busy_percent"),
        busy_percent_peak=peak("busy_percent"),
        memory_avg_mib=average("memory_mib"),
        memory_peak_mib=peak("memory_mib", "peak_mib"),
        private_peak_mib=peak("private_mib"),
        proportional_peak_mib=peak("proportional_mib"),
        memory_total_mib=peak("memory_total_mib"),
        power_avg_w=average("power_w"),
        **{name: total(name) for name in _SUMMED},
    )


def _seconds_covered(times: Sequence[float]) -> list[float]:
    """Seconds that each row covers: since its subject was looked at last."""
    gaps = [later - earlier for earlier, later in pairwise(times)]
    usual = statistics.median([gap for gap in gaps if 0 < gap < _NEW_MONITOR_S] or [1.0])
    return [usual, *(gap if 0 < gap < _NEW_MONITOR_S else usual for gap in gaps)]


def _grown(values: Sequence[float]) -> float | None:
    """What a counter grew by, its first value included: it began at 0, and does so again with each attempt."""
    if not values:
        return None
    steps = (later - earlier if later >= earlier else later for earlier, later in pairwise(values))
    return values[0] + sum(steps)


def _p90(ascending: Sequence[float]) -> float | None:
    return ascending[min(len(ascending) - 1, int(0.9 * len(ascending)))] if ascending else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
