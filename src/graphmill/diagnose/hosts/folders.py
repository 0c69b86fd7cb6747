"""A folder as a host sees it: its file system, what is free, how fast files are written."""

import os
import tempfile
import time
from pathlib import Path
from typing import Final

from graphmill.diagnose.hosts.facts import Folder
from graphmill.runtime.machine import free_disk_bytes
from graphmill.runtime.scratch import file_system

_CHUNK: Final = 8 << 20
_MOST_BYTES: Final = 256 << 20
_WRITE_FOR_S: Final = 1.0


def look_at(path: Path) -> Folder:
    """Measure it. An error is part of the answer; the file that was written is removed."""
    try:
        free, speed, error = free_disk_bytes(path), _write_speed(path), ""
    except OSError as problem:
        free, speed, error = 0, None, f"{problem.strerror or problem}"
    return Folder(path=str(path), file_system=file_system(path), free_bytes=free, write_bytes_per_s=speed, error=error)


def _write_speed(path: Path) -> float | None:
    """Bytes per second into one file, up to when the disk has them; None where there is hardly room to try."""
    most = min(_MOST_BYTES, free_disk_bytes(path) // 10)
    if most < _CHUNK:
        return None
    chunk = os.urandom(_CHUNK)  # file systems compress
    with tempfile.TemporaryFile(dir=path, prefix=".graphmill-doctor-", buffering=0) as file:
        written, begin = 0, time.perf_counter()
        while written + _CHUNK <= most and time.perf_counter() - begin < _WRITE_FOR_S:
            written += file.write(chunk) or 0
        os.fsync(file.fileno())
        return written / (time.perf_counter() - begin)
