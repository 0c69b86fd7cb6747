"""Where the host has a disk for what need not outlive a process."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from graphmill.runtime.job_environment import HOST_LOCAL

FOLDERS: Final = (HOST_LOCAL, "LOCAL_SCRATCH", "LOCALSCRATCH", "TMPDIR")
"""Variables that name a folder on a disk of the host, the job's own first."""
MEMORY_FILE_SYSTEMS: Final = ("tmpfs", "ramfs")
_ELSE: Final = ("/tmp", "/var/tmp")


def file_system(path: Path) -> str:
    """The type of the file system that holds `path`, as the kernel calls it; "?" if it is unknown."""
    import psutil

    try:
        mounts = psutil.disk_partitions(all=True)  # type: ignore[no-untyped-call]  # psutil ships no types
    except OSError:
        return "?"
    absolute = os.path.realpath(path)
    holding = [each for each in mounts if absolute == each.mountpoint or _is_below(absolute, each.mountpoint)]
    return max(holding, key=lambda each: len(each.mountpoint)).fstype if holding else "?"


def scratch_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The first of the host's folders for temporary files that may be written to and is not memory; None: no such one.

    A file on a tmpfs is memory: what is moved there is not out of it.
    """
    named = [environ[name] for name in FOLDERS if environ.get(name)]
    for folder in (Path(name) for name in (*named, *_ELSE)):
        if os.access(folder, os.W_OK | os.X_OK) and folder.is_dir() and file_system(folder) not in MEMORY_FILE_SYSTEMS:
            return folder
    return None


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
