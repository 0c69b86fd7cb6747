"""What the NVIDIA driver reports, asked through its own library: no torch, no subprocess.

The library (libnvidia-ml) comes with the driver, also into containers that are given GPUs.
"""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

_SUCCESS = 0
_NAME_BYTES = 96


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the driver names it."""

    name: str
    uuid: str
    memory_mib: int
    driver: str


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


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
