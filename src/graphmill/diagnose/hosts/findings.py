"""From what hosts found out to what would fail on them: pure."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from graphmill.diagnose.hosts.facts import Folder, HostFacts, HostReport, Link
from graphmill.runtime.checks import Finding
from graphmill.runtime.scratch import MEMORY_FILE_SYSTEMS

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_SLOW: Final = 0.5  # of the median over all hosts: less, and a host holds the others back
_LATE: Final = 5.0  # times the median round trip
_LATE_S: Final = 5e-4  # and more than this, which a step would notice
_SEEN_LATE_S: Final = 5.0
_CLOCK_S: Final = 0.1  # beyond what the measurement may be wrong by
_TEMPORARY: Final = 2 * _GIB
_EXAMPLE: Final = 10_000_000  # parameters, of 4 bytes


def findings_of(report: HostReport) -> list[Finding]:
    """What a job on these hosts would meet. One line for each thing that was looked at."""
    hosts = report.hosts
    found = [_answers(report)]
    if not hosts:
        return found
    found += [
        _same("graphmill's code", hosts, lambda host: host.code),
        _same("torch", hosts, lambda host: host.torch),
        _same("python", hosts, lambda host: host.python),
        _names(hosts),
        _shared_folder(hosts),
        _temporary_folder(hosts),
        _memory(hosts),
        _gpus(hosts),
    ]
    return [*found, *_network(report)] if len(report.expected) > 1 else found


def speed_of(host: str, links: Sequence[tuple[str, Link]]) -> float | None:
    """The best bandwidth from or to a host, bytes per second: what its other ways lack is the others' matter."""
    return max(
        (link.bytes_per_s for source, link in links if host in (source, link.to) and link.bytes_per_s), default=None
    )


def round_trip_of(host: str, links: Sequence[tuple[str, Link]]) -> float | None:
    """The best round trip from or to a host, s."""
    return min(
        (link.round_trip_s for source, link in links if host in (source, link.to) and link.round_trip_s), default=None
    )


def links_of(hosts: Iterable[HostFacts]) -> list[tuple[str, Link]]:
    """All connections that were tried, each with the host that tried it."""
    return [(host.host, link) for host in hosts for link in host.links]


def _answers(report: HostReport) -> Finding:
    silent = [name for name in report.expected if name not in {host.host for host in report.hosts}]
    if silent:
        said = f" ({report.problem})" if report.problem else ""
        detail = f"{len(report.hosts)} of {len(report.expected)}; no word of {', '.join(silent)}{said}"
        return Finding(
            "hosts", "fail", detail, f"every job on {', '.join(silent)}; leave out: --sbatch-arg --exclude=…"
        )
    return Finding("hosts", "ok", f"{', '.join(report.expected)}: all answered")


def _same(name: str, hosts: Sequence[HostFacts], value: Callable[[HostFacts], str]) -> Finding:
    groups: dict[str, list[str]] = {}
    for host in hosts:
        groups.setdefault(value(host), []).append(host.host)
    if len(groups) == 1:
        return Finding(name, "ok", f"{next(iter(groups))} on all")
    listed = sorted(groups.items(), key=lambda pair: len(pair[1]))  # most often one host is behind
    detail = "; ".join(f"{what} on {', '.join(names)}" for what, names in listed)
    return Finding(name, "fail", detail, "training on these hosts together: install the same on all of them")


def _names(hosts: Sequence[HostFacts]) -> Finding:
    unknown = [f"{host.host} does not know {', '.join(host.unknown_names)}" for host in hosts if host.unknown_names]
    if unknown:
        return Finding(
            "names", "fail", "; ".join(unknown), "the rendezvous; ask the administrators (`getent hosts NAME`)"
        )
    return Finding("names", "ok", "every host resolves those of the others")


def _shared_folder(hosts: Sequence[HostFacts]) -> Finding:
    name, first = "shared folder", hosts[0].shared
    broken = [f"{host.host}: {host.shared.error}" for host in hosts if host.shared.error]
    blind = [host.host for host in hosts if host.seen_after_s is None and host.links]
    if broken or blind:
        blind_text = [f"{', '.join(blind)} see no file of another host"] if blind else []
        detail = f"{first.path}: {'; '.join([*broken, *blind_text])}"
        return Finding(
            name, "fail", detail, "jobs on several hosts: --logs-root must be on a file system that all share"
        )
    late = max((host.seen_after_s or 0.0 for host in hosts), default=0.0)
    detail = _kinds(host.shared for host in hosts)
    if len(hosts) > 1:
        detail += f"; a file of another host is seen after {late:.1f} s"
    if late > _SEEN_LATE_S:
        return Finding(name, "warn", detail, "nothing, but `watch`, `verify` and a job's end wait for files")
    return Finding(name, "ok", detail)


def _temporary_folder(hosts: Sequence[HostFacts]) -> Finding:
    name = "TMPDIR"
    detail = f"{_kinds(host.temporary for host in hosts)}; {_free(host.temporary for host in hosts)}"
    broken = [f"{host.host}: {host.temporary.path}: {host.temporary.error}" for host in hosts if host.temporary.error]
    if broken:
        return Finding(name, "fail", "; ".join(broken), "whatever writes temporary files; set TMPDIR (slurm.env)")
    full = [host.host for host in hosts if host.temporary.free_bytes < _TEMPORARY]
    if full:
        lacks = f"staging.to=host_local of more than that on {', '.join(full)}"
        return Finding(name, "warn", detail, lacks)
    if any(host.temporary.file_system in MEMORY_FILE_SYSTEMS for host in hosts):
        return Finding(name, "warn", detail, "nothing, but what is written there takes memory, also of the job's limit")
    return Finding(name, "ok", detail)


def _kinds(folders: Iterable[Folder]) -> str:
    """Where they are, each kind once, and how fast the slowest is written."""
    seen = list(folders)
    where = ", ".join(dict.fromkeys(f"{folder.path} ({folder.file_system})" for folder in seen))
    speeds = [folder.write_bytes_per_s for folder in seen if folder.write_bytes_per_s]
    return f"{where}, written at {min(speeds) / _MIB:,.0f} MiB/s" if speeds else where


def _free(folders: Iterable[Folder]) -> str:
    return f"{min(folder.free_bytes for folder in folders) / _GIB:.1f} GiB free"


def _memory(hosts: Sequence[HostFacts]) -> Finding:
    memory, cores = {host.memory_bytes for host in hosts}, {host.num_cores for host in hosts}
    sizes = f"{_range(size / _GIB for size in memory)} GiB, {_range(cores)} cores"
    if len(cores) > 1:
        few = [host.host for host in hosts if host.num_cores == min(cores)]
        return Finding("cores and memory", "warn", sizes, f"nothing, but all wait for {', '.join(few)} at every step")
    return Finding("cores and memory", "ok", f"{sizes} each")


def _range(values: Iterable[float]) -> str:
    texts = list(dict.fromkeys(f"{value:.4g}" for value in sorted(values)))
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"


def _gpus(hosts: Sequence[HostFacts]) -> Finding:
    old = [
        f"{gpu.name} (compute capability {gpu.capability}) of {host.host}"
        for host in hosts
        for gpu in host.gpus
        if not gpu.is_supported
    ]
    if old:
        built = f"torch {hosts[0].torch} has code for {', '.join(hosts[0].architectures)}"
        return Finding(
            "gpus", "fail", f"{'; '.join(old)}; {built}", "train.device=cuda; install a build for older GPUs"
        )
    each = {host.host: ", ".join(f"{gpu.name} ({gpu.capability})" for gpu in host.gpus) or "none" for host in hosts}
    if len(set(each.values())) == 1:
        return Finding("gpus", "ok", f"{next(iter(each.values()))} on each")
    detail = "; ".join(f"{host}: {gpus}" for host, gpus in each.items())
    return Finding("gpus", "warn", detail, "a job that wants the same of each host")


def _network(report: HostReport) -> Iterator[Finding]:
    hosts, links = report.hosts, links_of(report.hosts)
    yield _meeting(hosts)
    yield _connections(links)
    yield from _speeds(hosts, links)
    yield from _sums(hosts)
    yield _clocks(links)


def _meeting(hosts: Sequence[HostFacts]) -> Finding:
    failed = [f"{host.host}: {host.error}" for host in hosts if host.error]
    absent = sorted({name for host in hosts for name in host.absent})
    if failed or absent:
        waited = [f"{', '.join(absent)} did not come"] if absent else []
        detail = "; ".join([*waited, *failed])
        return Finding(
            "rendezvous", "fail", detail, "training on these hosts together: look at firewalls, slurm.interface"
        )
    return Finding("rendezvous", "ok", "all hosts met")


def _connections(links: Sequence[tuple[str, Link]]) -> Finding:
    broken = [f"{source} → {link.to} ({link.error})" for source, link in links if link.error]
    if broken:
        return Finding(
            "connections",
            "fail",
            f"{len(broken)} of {len(links)}: {'; '.join(broken)}",
            "collectives between these hosts",
        )
    return Finding(
        "connections", "ok" if links else "warn", f"{len(links)} tried, both ways", "" if links else "unknown"
    )


def _speeds(hosts: Sequence[HostFacts], links: Sequence[tuple[str, Link]]) -> Iterator[Finding]:
    speeds = {host.host: speed for host in hosts if (speed := speed_of(host.host, links)) is not None}
    trips = {host.host: trip for host in hosts if (trip := round_trip_of(host.host, links)) is not None}
    if not speeds or not trips:
        return
    least, most = _SLOW * statistics.median(speeds.values()), max(_LATE * statistics.median(trips.values()), _LATE_S)
    slow = {host: f"{speed / _MIB:,.0f} MiB/s" for host, speed in speeds.items() if speed < least}
    late = {host: f"{1e6 * trip:,.0f} µs" for host, trip in trips.items() if trip > most}
    for source, link in links:  # a way between two hosts that are good otherwise
        name = f"{source} → {link.to}"
        if link.bytes_per_s and link.bytes_per_s < least and not {source, link.to} & slow.keys():
            slow[name] = f"{link.bytes_per_s / _MIB:,.0f} MiB/s"
        if link.round_trip_s and link.round_trip_s > most and not {source, link.to} & late.keys():
            late[name] = f"{1e6 * link.round_trip_s:,.0f} µs"
    yield _held_back("bandwidth", f"{_span(speeds.values(), 1 / _MIB)} MiB/s over one TCP connection", slow)
    yield _held_back("round trip", f"{_span(trips.values(), 1e6)} µs for 64 bytes and back", late)


def _held_back(name: str, usual: str, worse: Mapping[str, str]) -> Finding:
    if not worse:
        return Finding(name, "ok", usual)
    listed = "; ".join(f"{where}: {value}" for where, value in worse.items())
    lacks = "nothing, but every synchronisation waits for the slowest; leave it out: --sbatch-arg --exclude=HOST"
    return Finding(name, "warn", f"{usual}; {listed}", lacks)


def _span(values: Iterable[float], factor: float) -> str:
    low, high = f"{min(known := list(values)) * factor:,.0f}", f"{max(known) * factor:,.0f}"
    return low if low == high else f"{low} to {high}"


def _sums(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """Bus bandwidth as NCCL's tests define it: what a link carries, 2 (n - 1) / n times the bytes of the sum."""
    sums = next((host.all_reduces for host in hosts if host.all_reduces), ())
    if not sums:
        yield Finding("all-reduce", "warn", "not tried", "unknown: some hosts cannot reach each other")
        return
    small, large = min(sums, key=lambda one: one.num_bytes), max(sums, key=lambda one: one.num_bytes)
    bus = 2 * (len(hosts) - 1) / len(hosts) * large.num_bytes / large.seconds
    example = small.seconds + 4 * _EXAMPLE * large.seconds / large.num_bytes
    detail = (
        f"{large.backend}: {bus / _MIB:,.0f} MiB/s (bus), {1e6 * small.seconds:,.0f} µs at least; a synchronisation of"
        f" {_EXAMPLE:,} parameters takes about {1e3 * example:,.0f} ms"
    )
    yield Finding("all-reduce", "ok", detail)


def _clocks(links: Sequence[tuple[str, Link]]) -> Finding:
    known = [
        (source, link, link.clock_ahead_s, link.clock_error_s or 0.0)
        for source, link in links
        if link.clock_ahead_s is not None
    ]
    if not known:
        return Finding("clocks", "warn", "not compared", "unknown")
    apart = [(source, link, ahead) for source, link, ahead, error in known if abs(ahead) - error > _CLOCK_S]
    if apart:
        listed = [f"{link.to} is {ahead:+.3f} s from {source}" for source, link, ahead in apart]
        return Finding(
            "clocks", "warn", "; ".join(listed), "nothing, but times of events and attempts are not comparable"
        )
    most = max(abs(ahead) + error for _, _, ahead, error in known)
    return Finding("clocks", "ok", f"within {1e3 * most:.1f} ms of each other")
