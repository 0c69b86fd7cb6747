"""Where a number comes from: code, versions, machine, command. Written with every run and every benchmark."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

import graphmill
from graphmill.base.versions import installed_version
from graphmill.runtime.machine import machine_info
from graphmill.runtime.snapshot import own_code

_PACKAGES = ("torch", "numpy", "safetensors", "pydantic", "torch-geometric", "pyg-lib", "torch-sparse")
_GIT_TIMEOUT_S = 10.0
# A checkout may have come with a configuration of its own: git is to run nothing that it names, and to fetch nothing.
_GIT_OPTIONS = ("-c", "core.fsmonitor=")
_GIT_ENVIRON = {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
_FILTER_OF_ITS_OWN = re.compile(r"(local|worktree)\tfilter\.", re.IGNORECASE)


class GitState(BaseModel):
    """The commit of a working tree, and whether its files differ from it."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    commit: str
    dirty: bool | None = Field(description="null where git cannot say in time, or would run programs of the checkout")


class GpuInfo(BaseModel):
    """One GPU, as the driver names it."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    name: str
    memory_mib: int
    driver: str


class Provenance(BaseModel):
    """provenance.json. A field is null if it does not apply: no git, no data set."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    time_utc: str
    command: tuple[str, ...]
    code: GitState | None = Field(description="of the checkout that graphmill runs from; null where it is installed")
    workdir: GitState | None = Field(description="of the folder the command was given in")
    versions: dict[str, str]
    hostname: str
    cpu_model: str
    num_cores: int
    memory_bytes: int
    gpus: tuple[GpuInfo, ...]
    load_average: tuple[float, float, float]
    own_code: str = Field("", description="SHA-256 of the copy that the user's code is imported from; empty: none")
    dataset_checksum: str | None
    synthetic: bool | None


def collect_provenance(
    command: Sequence[str], *, dataset_checksum: str | None = None, synthetic: bool | None = None
) -> Provenance:
    """Record the current state. Versions are read from the packages' metadata: torch is not imported."""
    machine = machine_info()
    return Provenance(
        time_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        command=tuple(command),
        code=code_state(),
        workdir=git_state(Path.cwd()),
        versions=_versions(),
        hostname=machine.hostname,
        cpu_model=machine.cpu_model,
        num_cores=machine.num_cores,
        memory_bytes=machine.memory_bytes,
        gpus=tuple(GpuInfo(name=gpu.name, memory_mib=gpu.memory_mib, driver=gpu.driver) for gpu in machine.gpus),
        load_average=os.getloadavg(),
        own_code=own_code(os.environ),
        dataset_checksum=dataset_checksum,
        synthetic=synthetic,
    )


def git_state(folder: Path) -> GitState | None:
    """The state of the working tree that holds `folder`, or None if it is in none, or git is not installed."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    return GitState(commit=commit, dirty=_is_dirty(folder))


def _is_dirty(folder: Path) -> bool | None:
    """Whether files differ from the commit; None: unknown. A filter that the checkout names would be run to compare."""
    settings = _git(folder, "config", "--list", "--name-only", "--show-scope", "--includes")
    if settings is None or any(map(_FILTER_OF_ITS_OWN.match, settings.splitlines())):
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
    return None if changes is None else bool(changes)


def code_state() -> GitState | None:
    """The state of the checkout that graphmill runs from, or None if it is installed."""
    package = Path(graphmill.__file__).parent
    root = package.parents[1]  # of a checkout, src/graphmill's; an environment inside some other checkout is not ours
    return git_state(root) if (root / "pyproject.toml").is_file() and package.parent.name == "src" else None


def _versions() -> dict[str, str]:
    found = {package: installed_version(package) for package in _PACKAGES}
    python = ".".join(str(part) for part in sys.version_info[:3])
    present = {package: version for package, version in found.items() if version is not None}
    return {"graphmill": graphmill.__version__, "python": python, **present}


def _git(folder: Path, *arguments: str) -> str | None:
    environ = {**os.environ, **_GIT_ENVIRON}
    try:
        done = subprocess.run(
            ["git", *_GIT_OPTIONS, "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            env=environ,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
