"""What the NVIDIA driver reports, through nvidia-ml-py (the official bindings of NVML): no torch, no subprocess.

The library that the bindings load (libnvidia-ml) comes with the driver, also into containers that are given GPUs.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the driver names it."""

    name: str
    uuid: str
    memory_mib: int
    driver: str


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What one GPU does now. None: its driver does not report it, as the utilisation of a GPU that is split by MIG."""

    uuid: str
    busy_percent: float | None  # share of the driver's last sampling period in which a kernel ran
    memory_busy_percent: float | None  # … in which its memory was read or written
    memory_used_mib: float | None
    memory_total_mib: float | None
    power_w: float | None
    temperature_c: float | None


class GpuUsage:
    """Reads GPUs again and again, in one NVML session. Without a driver there are none."""

    def __init__(self) -> None:
        self._nvml = _initialised()
        self.gpus: tuple[Gpu, ...] = () if self._nvml is None else _all_gpus(self._nvml)

    def read(self) -> tuple[GpuReading, ...]:
        """One reading of each of `gpus`, in their order."""
        nvml = self._nvml
        return () if nvml is None else tuple(_reading(nvml, index, gpu) for index, gpu in enumerate(self.gpus))

    def close(self) -> None:
        """End the session."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
        self._nvml, self.gpus = None, ()


def visible_gpus(environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that a process with this environment may use; none if there is no driver."""
    with _session() as nvml:
        gpus = () if nvml is None else _all_gpus(nvml)
    return select_visible(gpus, environ.get("CUDA_VISIBLE_DEVICES"))


def select_visible(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    """Apply CUDA_VISIBLE_DEVICES as CUDA does: indices or UUID prefixes, and the list ends at the first invalid one."""
    if visible is None:
        return gpus
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in visible.split(",")):
        found = _find(gpus, entry)
        if found is None:
            break
        chosen.append(found)
    return tuple(chosen)


def _find(gpus: tuple[Gpu, ...], entry: str) -> Gpu | None:
    if entry.isascii() and entry.isdecimal():
        return gpus[int(entry)] if int(entry) < len(gpus) else None
    if entry.startswith("MIG-"):  # a slice of a GPU; the driver has checked it, and each entry is one device
        return Gpu(name="MIG slice", uuid=entry, memory_mib=0, driver=gpus[0].driver) if gpus else None
    matches = [gpu for gpu in gpus if entry and gpu.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def _initialised() -> ModuleType | None:
    """The bindings in a session, or None without a usable driver. Without one they are not even imported."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()  # type: ignore[no-untyped-call]  # the bindings ship no types
    except pynvml.NVMLError:
        return None
    nvml: ModuleType = pynvml
    return nvml


@contextmanager
def _session() -> Iterator[ModuleType | None]:
    nvml = _initialised()
    try:
        yield nvml
    finally:
        if nvml is not None:
            nvml.nvmlShutdown()


def _all_gpus(nvml: ModuleType) -> tuple[Gpu, ...]:
    driver = _known(nvml, nvml.nvmlSystemGetDriverVersion) or ""
    return tuple(_gpu(nvml, index, driver) for index in range(_known(nvml, nvml.nvmlDeviceGetCount) or 0))


def _gpu(nvml: ModuleType, index: int, driver: str) -> Gpu:
    handle = _known(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return Gpu("", "", 0, driver)
    memory = _known(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return Gpu(
        name=_known(nvml, nvml.nvmlDeviceGetName, handle) or "",
        uuid=_known(nvml, nvml.nvmlDeviceGetUUID, handle) or "",
        memory_mib=0 if memory is None else int(memory.total) >> 20,
        driver=driver,
    )


def _reading(nvml: ModuleType, index: int, gpu: Gpu) -> GpuReading:
    handle = _known(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return GpuReading(gpu.uuid, None, None, None, None, None, None)
    busy = _known(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _known(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    milliwatts = _known(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    celsius = _known(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
    return GpuReading(
        uuid=gpu.uuid,
        busy_percent=None if busy is None else float(busy.gpu),
        memory_busy_percent=None if busy is None else float(busy.memory),
        memory_used_mib=None if memory is None else memory.used / 2**20,
        memory_total_mib=None if memory is None else memory.total / 2**20,
        power_w=None if milliwatts is None else milliwatts / 1000,
        temperature_c=None if celsius is None else float(celsius),
    )


def _known(nvml: ModuleType, ask: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  # NVML's own structs
    """NVML's answer, or None if it refuses or does not support the query."""
    try:
        return ask(*arguments)
    except nvml.NVMLError:
        return None
