"""Where may I write: prepared datasets, the person's configuration, and what need not outlive a process."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.runtime.job_environment import HOST_LOCAL

SCRATCH_FOLDERS: Final = (HOST_LOCAL, "LOCAL_SCRATCH", "LOCALSCRATCH", "TMPDIR")
"""Variables that name a folder on a disk of the host, the job's own first."""
MEMORY_FILE_SYSTEMS: Final = ("tmpfs", "ramfs")
_ELSE: Final = ("/tmp", "/var/tmp")


def dataset_root(option: str | Path | None, environ: Mapping[str, str]) -> Path:
    """`--dataset-root`, else GRAPHMILL_DATA_ROOT, else PYG_DATA_ROOT, else $SCRATCH/graphmill, else ./data.

    The folder need not exist yet; a file in its place is refused.
    """
    source, root = _first_given(option, environ)
    root = root.expanduser()
    if root.is_file():
        raise UserError(f"the dataset root {root} (from {source}) is a file, and datasets are folders in it", fix=_FIX)
    return root


def config_folder(environ: Mapping[str, str]) -> Path | None:
    """`$XDG_CONFIG_HOME/graphmill`, else `~/.config/graphmill`; None where no home is known."""
    given = environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(given) if given else Path.home() / ".config") / "graphmill"
    except RuntimeError:  # no HOME, and no entry of this user: a container
        return None


_FIX = "give a folder with --dataset-root, or set GRAPHMILL_DATA_ROOT"


def _first_given(option: str | Path | None, environ: Mapping[str, str]) -> tuple[str, Path]:
    if option is not None:
        return "--dataset-root", Path(option)
    for name in ("GRAPHMILL_DATA_ROOT", "PYG_DATA_ROOT"):
        if environ.get(name):
            return name, Path(environ[name])
    if environ.get("SCRATCH"):
        return "SCRATCH", Path(environ["SCRATCH"]) / "graphmill"
    return "the default", Path("data")


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
    named = [environ[name] for name in SCRATCH_FOLDERS if environ.get(name)]
    for folder in (Path(name) for name in (*named, *_ELSE)):
        if os.access(folder, os.W_OK | os.X_OK) and folder.is_dir() and file_system(folder) not in MEMORY_FILE_SYSTEMS:
            return folder
    return None


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
