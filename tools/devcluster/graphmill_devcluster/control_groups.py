"""Control groups (version 1) for a dev cluster whose jobs the kernel ends when they take too much memory.

Namespaces go with their last process; control groups do not. Each cluster gets one of its own, below the group of
the process that starts it; Slurm's daemons make theirs within it, and the launcher removes it.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from graphmill_devcluster.description import Description

CONTROLLERS: Final = ("memory", "freezer")
_MOUNTED: Final = Path("/sys/fs/cgroup")
_PREFIX: Final = "graphmill-devcluster-"
_PATIENCE_S: Final = 5.0


def available() -> bool:
    """Whether version 1 of the controllers is mounted, and writable."""
    return all(os.access(_MOUNTED / controller / "cgroup.procs", os.W_OK) for controller in CONTROLLERS)


def make(cluster: Description) -> str:
    """Make a group of its own for the cluster, if it wants one. Returns its name, else nothing."""
    if cluster.out_of_memory != "cgroup":
        return ""
    remove_left_ones()
    name = f"{_PREFIX}{os.getpid()}"
    for folder in _own_folders():
        (folder / name).mkdir(exist_ok=True)
    return name


def join(group: str) -> list[str]:
    """The beginning of a command line that runs the rest of it in the group."""
    if not group:
        return []
    files = [str(folder / group / "cgroup.procs") for folder in _own_folders()]
    script = 'while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift; exec "$@"'
    return ["sh", "-ec", script, "sh", *files, "--"]


def folders(group: str) -> str:
    """Where the group is: `controller=folder`, separated by commas."""
    pairs = zip(CONTROLLERS, _own_folders(), strict=True) if group else ()
    return ",".join(f"{controller}={folder / group}" for controller, folder in pairs)


def remove(group: str) -> None:
    """Remove the group and what is below it; its processes are ending."""
    give_up = time.monotonic() + _PATIENCE_S
    while group and not _try_to_remove(group) and time.monotonic() < give_up:
        time.sleep(0.02)


def remove_left_ones() -> None:
    """Remove groups of clusters that ended without their launcher. Those in use cannot be removed, and stay."""
    if not available():
        return
    for name in {path.name for folder in _own_folders() for path in folder.glob(f"{_PREFIX}*")}:
        _try_to_remove(name)


def _own_folders() -> list[Path]:
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    own = {name: path for _, names, path in (line.split(":", 2) for line in lines) for name in names.split(",")}
    return [_MOUNTED / controller / own[controller].strip("/") for controller in CONTROLLERS]


def _try_to_remove(group: str) -> bool:
    roots = [folder / group for folder in _own_folders() if (folder / group).exists()]
    for root in roots:
        below = sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True)
        for path in [*below, root]:
            with suppress(OSError):  # in use, or gone meanwhile
                path.rmdir()
    return not any(root.exists() for root in roots)
