"""What the NVIDIA driver reports, asked through its own library: no torch, no subprocess.

The library (libnvidia-ml) comes with the driver, also into containers that are given GPUs.
"""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_SUCCESS = 0
_NAME_BYTES = 96
_OF_THE_DIE = 0  # the sensor that nvmlDeviceGetTemperature reads


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the driver names it."""

    name: str
    uuid: str
    memory_mib: int
    driver: str


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What one GPU does now. None: its driver does not say; it says no utilisation of a GPU that is cut in slices."""

    uuid: str
    busy_percent: float | None  # share of the driver's last sampling period in which a kernel ran
    memory_busy_percent: float | None  # … in which its memory was read or written
    memory_used_mib: float | None
    memory_total_mib: float | None
    power_w: float | None
    temperature_c: float | None


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class GpuUsage:
    """Reads GPUs again and again, in one session with the driver. Without a driver there are none."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None
        self.gpus: tuple[Gpu, ...] = ()  # all that the driver shows this process
        with suppress(OSError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == _SUCCESS:
                self._library, self.gpus = library, _all_gpus(library)

    def read(self) -> tuple[GpuReading, ...]:
        """One reading of each of `gpus`, in their order."""
        library = self._library
        return () if library is None else tuple(_reading(library, number, gpu) for number, gpu in enumerate(self.gpus))

    def close(self) -> None:
        """End the session."""
        if self._library is not None:
            self._library.nvmlShutdown()
        self._library, self.gpus = None, ()


def visible_gpus(environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that a process with this environment may use; none where there is no driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ()
    with _session(library) as usable:
        gpus = _all_gpus(library) if usable else ()
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


@contextmanager
def _session(library: ctypes.CDLL) -> Iterator[bool]:
    usable = library.nvmlInit_v2() == _SUCCESS
    try:
        yield usable
    finally:
        if usable:
            library.nvmlShutdown()


def _all_gpus(library: ctypes.CDLL) -> tuple[Gpu, ...]:
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
        return ()
    driver = ctypes.create_string_buffer(_NAME_BYTES)
    library.nvmlSystemGetDriverVersion(driver, _NAME_BYTES)
    return tuple(_gpu(library, index, driver.value.decode()) for index in range(count.value))


def _gpu(library: ctypes.CDLL, index: int, driver: str) -> Gpu:
    handle, memory = ctypes.c_void_p(), _Memory()
    name, uuid = ctypes.create_string_buffer(_NAME_BYTES), ctypes.create_string_buffer(_NAME_BYTES)
    if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == _SUCCESS:
        library.nvmlDeviceGetName(handle, name, _NAME_BYTES)
        library.nvmlDeviceGetUUID(handle, uuid, _NAME_BYTES)
        library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    return Gpu(name.value.decode(), uuid.value.decode(), int(memory.total) >> 20, driver)


def _reading(library: ctypes.CDLL, index: int, gpu: Gpu) -> GpuReading:
    handle = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != _SUCCESS:
        return GpuReading(gpu.uuid, None, None, None, None, None, None)
    busy, memory = _Utilisation(), _Memory()
    milliwatts, celsius = ctypes.c_uint(), ctypes.c_uint()
    knows_busy = library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(busy)) == _SUCCESS
    knows_memory = library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == _SUCCESS
    knows_power = library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(milliwatts)) == _SUCCESS
    knows_heat = library.nvmlDeviceGetTemperature(handle, _OF_THE_DIE, ctypes.byref(celsius)) == _SUCCESS
    return GpuReading(
        uuid=gpu.uuid,
        busy_percent=float(busy.gpu) if knows_busy else None,
        memory_busy_percent=float(busy.memory) if knows_busy else None,
        memory_used_mib=memory.used / 2**20 if knows_memory else None,
        memory_total_mib=memory.total / 2**20 if knows_memory else None,
        power_w=milliwatts.value / 1000 if knows_power else None,
        temperature_c=float(celsius.value) if knows_heat else None,
    )
