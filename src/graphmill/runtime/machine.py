"""What does this machine have: cores, memory, GPUs, disk. Measured without torch."""

import ctypes
import os
import platform
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graphmill.runtime.job_environment import JobEnvironment
from graphmill.runtime.nvml import Gpu, visible_gpus

CGROUP_ROOT = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60  # cgroup v1 writes "no limit" as a number near 2^63


@dataclass(frozen=True, slots=True)
class UsableMachine:
    """What this process may use of the machine, not what the machine could give to others."""

    hostname: str
    cpu_model: str
    num_cores: int  # cores of our affinity mask, cut to the control group's quota
    num_machine_cores: int
    memory_bytes: int  # the smaller of the machine's memory and the control group's limit
    available_bytes: int
    gpus: tuple[Gpu, ...]

    @property
    def num_gpus(self) -> int:
        """GPUs this process may use."""
        return len(self.gpus)

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """Names of the GPUs, as the driver gives them."""
        return tuple(gpu.name for gpu in self.gpus)


def machine_info(environ: Mapping[str, str] | None = None) -> UsableMachine:
    """Measure this machine. `environ` matters for CUDA_VISIBLE_DEVICES."""
    total, available = _memory()
    return UsableMachine(
        hostname=socket.gethostname(),
        cpu_model=_cpu_model(),
        num_cores=num_cores(),
        num_machine_cores=os.cpu_count() or 1,
        memory_bytes=total,
        available_bytes=available,
        gpus=visible_gpus(os.environ if environ is None else environ),
    )


def host_name(environ: Mapping[str, str]) -> str:
    """The name of this host in file names: Slurm's name for it, else its own.

    Several of Slurm's hosts may be one machine with one name, as in tests.
    """
    return JobEnvironment(environ).host or socket.gethostname()


def num_cores() -> int:
    """Cores we may compute on: the affinity mask, and no more than the control group's quota lets run at once."""
    affinity = len(os.sched_getaffinity(0))
    quota = _cpu_quota(_own_cgroups(), CGROUP_ROOT)
    return affinity if quota is None else max(1, min(affinity, int(quota)))


def free_disk_bytes(path: Path) -> int:
    """Free bytes where `path` is, or would be made."""
    existing = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(existing).free


def _own_cgroups() -> dict[str, str]:
    """Controller name → path of our control group in it; the name is empty for version 2."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    entries = (line.split(":", 2) for line in lines)
    return {name: path for _, names, path in entries for name in names.split(",")}


def _limits(
    group_paths: Mapping[str, str], controller: str, root: Path, file_v2: str, file_v1: str
) -> list[tuple[Path, str]]:
    """Every readable limit that applies to us: our group's and those of all groups above it."""
    found = []
    for base, file, path in (
        (root, file_v2, group_paths.get("")),
        (root / "unified", file_v2, group_paths.get("")),
        (root / controller, file_v1, group_paths.get(controller)),
    ):
        for group in () if path is None else _upwards(path):
            limit = base / group / file
            if limit.is_file():
                found.append((limit, limit.read_text(encoding="ascii").strip()))
    return found


def _upwards(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    return ["/".join(parts[:length]) for length in range(len(parts), -1, -1)]


def _cpu_quota(group_paths: Mapping[str, str], root: Path) -> float | None:
    """Cores' worth of time per period that the tightest control group grants, or None for no limit."""
    quotas = []
    for file, text in _limits(group_paths, "cpu", root, "cpu.max", "cpu.cfs_quota_us"):
        words = text.split()
        if file.name == "cpu.cfs_quota_us":
            words = [*words, (file.with_name("cpu.cfs_period_us")).read_text(encoding="ascii").strip()]
        if words[0] not in ("max", "-1"):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def peak_bytes() -> int:
    """The most memory that this process has had, mapped files included. getrusage would count its parent's, too."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def return_free_memory() -> None:
    """Give pages of the heap that nothing uses back to the kernel, where the C library can (glibc).

    It keeps what is freed below what is not: after many arrays of some MiB at once that is most of them, for good.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _memory() -> tuple[int, int]:
    """Bytes this process may use in all, and bytes free for it now."""
    import psutil

    now = psutil.virtual_memory()  # type: ignore[no-untyped-call]  # psutil ships no types
    texts = [text for _, text in _limits(_own_cgroups(), "memory", CGROUP_ROOT, "memory.max", "memory.limit_in_bytes")]
    limits = [int(text) for text in texts if text.isdecimal() and int(text) < _NO_LIMIT]
    total = min([now.total, *limits])
    return total, min(now.available, total)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
