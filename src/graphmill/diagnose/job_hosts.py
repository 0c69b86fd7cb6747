"""What a job on several hosts found out about them (`graphmill doctor --hosts N`), and what would fail there."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from graphmill.diagnose.thresholds import CLOCKS_APART_S, TEMPORARY_BYTES
from graphmill.runtime.checks import CheckResult
from graphmill.runtime.roots import MEMORY_FILE_SYSTEMS

JOB_SCRIPT: Final = "job.sbatch"
"""In the folder of what is found, from before the job: a host that does not see it shares no files with the others."""
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_EXAMPLE: Final = 10_000_000  # parameters, of 4 bytes
_FROZEN = ConfigDict(frozen=True, extra="forbid", defer_build=True)

Number = Annotated[float, Field(allow_inf_nan=False)]


class HostGpu(BaseModel):
    """A GPU, as torch sees it."""

    model_config = _FROZEN

    name: str
    capability: str = Field(description="its compute capability, such as 8.0")
    is_supported: bool = Field(description="whether this torch has code for it")


class HostFolder(BaseModel):
    """A folder of a host."""

    model_config = _FROZEN

    path: str
    file_system: str = Field(description="its type, such as xfs, nfs4, lustre, tmpfs")
    free_bytes: int
    error: str = Field("", description="why it cannot be written to; empty: it can")


class AllReduce(BaseModel):
    """A sum over all hosts."""

    model_config = _FROZEN

    num_bytes: int
    seconds: Number = Field(description="the median")


class ClockOffset(BaseModel):
    """A host's clock beside that of the job's first host."""

    model_config = _FROZEN

    ahead_s: Number
    error_s: Number = Field(description="by which `ahead_s` may be wrong")


class HostFacts(BaseModel):
    """What one host says of itself and of the others: host_<rank>.json."""

    model_config = _FROZEN

    rank: int
    host: str
    torch: str
    num_cores: int
    memory_bytes: int
    gpus: tuple[HostGpu, ...]
    architectures: tuple[str, ...] = Field(description="torch.cuda.get_arch_list()")
    temporary: HostFolder = Field(description="$TMPDIR, else /tmp")
    sees_files: bool = Field(description="whether it sees the files that were written for the job")
    unknown_names: tuple[str, ...] = Field(description="hosts of the job whose names it cannot resolve")
    error: str = Field("", description="why it could not meet the others; empty: it did")
    all_reduces: tuple[AllReduce, ...] = ()
    clock: ClockOffset | None = None


class HostReport(BaseModel):
    """Facts of all hosts of a job: hosts.json."""

    model_config = _FROZEN

    job_id: str
    expected: tuple[str, ...] = Field(description="the hosts of the job")
    hosts: tuple[HostFacts, ...] = Field(description="of those that answered")
    problem: str = Field("", description="what the job said, if it did not end well")


def findings_of(report: HostReport) -> list[CheckResult]:
    """What a job on these hosts would meet. One line for each thing that was looked at."""
    hosts = report.hosts
    found = [_answers(report)]
    if hosts:
        found += [_names(hosts), _shared_folder(hosts), _temporary_folder(hosts), _gpus(hosts)]
    return [*found, *_network(hosts)] if hosts and len(report.expected) > 1 else found


def _answers(report: HostReport) -> CheckResult:
    silent = [name for name in report.expected if name not in {host.host for host in report.hosts}]
    if silent:
        said = f" ({report.problem})" if report.problem else ""
        detail = f"{len(report.hosts)} of {len(report.expected)}; no word of {', '.join(silent)}{said}"
        lacks = f"every job on {', '.join(silent)}; leave out: --sbatch-arg --exclude=…; or --logs-root is not shared"
        return CheckResult("hosts", "fail", detail, lacks)
    return CheckResult("hosts", "ok", f"{', '.join(report.expected)}: all answered")


def _names(hosts: Sequence[HostFacts]) -> CheckResult:
    unknown = [f"{host.host} does not know {', '.join(host.unknown_names)}" for host in hosts if host.unknown_names]
    if unknown:
        return CheckResult(
            "names", "fail", "; ".join(unknown), "the rendezvous; ask the administrators (`getent hosts NAME`)"
        )
    return CheckResult("names", "ok", "every host resolves those of the others")


def _shared_folder(hosts: Sequence[HostFacts]) -> CheckResult:
    blind = [host.host for host in hosts if not host.sees_files]
    if blind:
        detail = f"{', '.join(blind)} do not see the files of the job"
        lacks = "jobs on several hosts: --logs-root must be on a file system that all share"
        return CheckResult("shared folder", "fail", detail, lacks)
    return CheckResult("shared folder", "ok", "every host sees the files of the job")


def _temporary_folder(hosts: Sequence[HostFacts]) -> CheckResult:
    name, folders = "TMPDIR", [host.temporary for host in hosts]
    broken = [f"{host.host}: {host.temporary.path}: {host.temporary.error}" for host in hosts if host.temporary.error]
    if broken:
        return CheckResult(name, "fail", "; ".join(broken), "whatever writes temporary files; set TMPDIR (slurm.env)")
    where = ", ".join(dict.fromkeys(f"{folder.path} ({folder.file_system})" for folder in folders))
    detail = f"{where}; {min(folder.free_bytes for folder in folders) / _GIB:.1f} GiB free"
    full = [host.host for host in hosts if host.temporary.free_bytes < TEMPORARY_BYTES]
    if full:
        return CheckResult(name, "warn", detail, f"staging.to=host_local of more than that on {', '.join(full)}")
    if any(folder.file_system in MEMORY_FILE_SYSTEMS for folder in folders):
        return CheckResult(
            name, "warn", detail, "nothing, but what is written there takes memory, also of the job's limit"
        )
    return CheckResult(name, "ok", detail)


def _gpus(hosts: Sequence[HostFacts]) -> CheckResult:
    old = [
        f"{gpu.name} (compute capability {gpu.capability}) of {host.host}"
        for host in hosts
        for gpu in host.gpus
        if not gpu.is_supported
    ]
    if old:
        built = f"torch {hosts[0].torch} has code for {', '.join(hosts[0].architectures)}"
        return CheckResult(
            "gpus", "fail", f"{'; '.join(old)}; {built}", "train.device=cuda; install a build for older GPUs"
        )
    each = {host.host: ", ".join(f"{gpu.name} ({gpu.capability})" for gpu in host.gpus) or "none" for host in hosts}
    if len(set(each.values())) == 1:
        return CheckResult("gpus", "ok", f"{next(iter(each.values()))} on each")
    detail = "; ".join(f"{host}: {gpus}" for host, gpus in each.items())
    return CheckResult("gpus", "warn", detail, "a job that wants the same of each host")


def _network(hosts: Sequence[HostFacts]) -> Iterator[CheckResult]:
    failed = [f"{host.host}: {host.error}" for host in hosts if host.error]
    if failed:
        lacks = "training on these hosts together: look at firewalls, slurm.interface"
        yield CheckResult("rendezvous", "fail", "; ".join(failed), lacks)
    else:
        yield CheckResult("rendezvous", "ok", "all hosts met, and run the same program")
    yield _sums(hosts)
    yield _clocks(hosts)


def _sums(hosts: Sequence[HostFacts]) -> CheckResult:
    """Bus bandwidth as NCCL's tests define it: what a link carries, 2 (n - 1) / n times the bytes of the sum."""
    sums = next((host.all_reduces for host in hosts if host.all_reduces), ())
    if not sums:
        return CheckResult("all-reduce", "warn", "not tried", "unknown: the hosts did not meet")
    small, large = min(sums, key=lambda one: one.num_bytes), max(sums, key=lambda one: one.num_bytes)
    bus = 2 * (len(hosts) - 1) / len(hosts) * large.num_bytes / large.seconds
    example = small.seconds + 4 * _EXAMPLE * large.seconds / large.num_bytes
    detail = (
        f"gloo: {bus / _MIB:,.0f} MiB/s (bus), {1e6 * small.seconds:,.0f} µs at least; a synchronisation of"
        f" {_EXAMPLE:,} parameters takes about {1e3 * example:,.0f} ms"
    )
    return CheckResult("all-reduce", "ok", detail)


def _clocks(hosts: Sequence[HostFacts]) -> CheckResult:
    known = [(host.host, host.clock) for host in hosts if host.clock is not None]
    if not known:
        return CheckResult("clocks", "warn", "not compared", "unknown")
    apart = [(name, clock.ahead_s) for name, clock in known if abs(clock.ahead_s) - clock.error_s > CLOCKS_APART_S]
    if apart:
        listed = "; ".join(f"{name} is {ahead:+.3f} s from {known[0][0]}" for name, ahead in apart)
        return CheckResult("clocks", "warn", listed, "nothing, but times of events and attempts are not comparable")
    most = max(abs(clock.ahead_s) + clock.error_s for _, clock in known)
    return CheckResult("clocks", "ok", f"within {1e3 * most:.1f} ms of {known[0][0]}")
