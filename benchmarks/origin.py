"""Where a figure comes from: code, processor, command, moment. One `Origin` belongs to each entry of a result file.

It is taken when a measurement begins, so that an edit or a commit made meanwhile is not credited with it.
"""

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import graphmill
from graphmill.base.names import counted
from graphmill.base.versions import installed_version
from graphmill.runtime.machine import machine_info

PACKAGES = ("graphmill", "torch", "numpy", "torch-geometric", "pyg-lib", "torch-sparse")
# What the figures depend on. Results, documents and tests are not code: a commit of results leaves the tree clean.
SOURCES = ("src", "native", "recipes", "benchmarks", "CMakeLists.txt", "pyproject.toml", "constraints.txt")
NO_SOURCE = ("benchmarks/results", "benchmarks/README.md")
_SUFFIXES = {".py", ".pyi", ".yaml", ".j2", ".json", ".cpp", ".h", ".txt", ".toml"}


@dataclass(frozen=True, slots=True)
class Code:
    """The state of one checkout (or installed package). `checksum` is over the contents of its sources."""

    commit: str | None
    dirty: bool | None  # whether sources differ from the commit; None where there is no git
    checksum: str
    native_checksum: str | None  # of the compiled core, which may be older than its sources
    isa: str | None  # instruction set that the core picked on this processor


@dataclass(frozen=True, slots=True)
class Processor:
    """Of /proc/cpuinfo. Clouds often hide the marketing name; family, model and stepping then tell what it is."""

    name: str
    vendor: str | None
    family: int | None
    model: int | None
    stepping: int | None
    num_cores: int

    def __str__(self) -> str:
        return f"{counted(self.num_cores, 'core')} of {describe(asdict(self))}"


@dataclass(frozen=True, slots=True)
class Origin:
    """Taken at the start of a measurement."""

    time_utc: str
    argv: tuple[str, ...]
    code: Code
    processor: Processor
    versions: dict[str, str]
    load_average: tuple[float, float, float]

    @classmethod
    def now(cls, argv: Sequence[str] | None = None) -> "Origin":
        """Of this process: its script and arguments, without the folders of this machine."""
        words = sys.argv if argv is None else argv
        return cls(
            time_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            argv=tuple(without_folders(words)),
            code=code_of(Path(graphmill.__file__).parent),
            processor=processor(),
            versions={name: found for name in PACKAGES if (found := installed_version(name)) is not None}
            | {"python": platform.python_version()},
            load_average=os.getloadavg(),
        )


def without_folders(words: Iterable[str]) -> list[str]:
    """Absolute paths are cut to their last part: they say nothing to others, and name this machine."""
    return [re.sub(r"(?<![\w.])/[^\s,:=]*/", "…/", word) for word in words]


def code_of(package: Path, isa: str | None = None) -> Code:
    """Of the graphmill whose package folder this is; `isa` where its core runs in another process."""
    root = checkout_of(package)
    native = next(iter(sorted(package.glob("_native*.so"))), None) or _installed_core(package)
    status = (
        _git(root, "status", "--porcelain", "--untracked-files=all", "--", *SOURCES, *_excluded()) if root else None
    )
    return Code(
        commit=(_git(root, "rev-parse", "HEAD") or None) if root else None,
        dirty=None if status is None else bool(status),
        checksum=_checksum(root / name for name in SOURCES) if root else _checksum([package]),
        native_checksum=_checksum([native]) if native else None,
        isa=isa or own_isa(),
    )


def _installed_core(package: Path) -> Path | None:
    """The core of the package that this process imports: of an editable install it lies in site-packages."""
    spec = find_spec("graphmill._native") if package == Path(graphmill.__file__).parent else None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def checkout_of(package: Path) -> Path | None:
    """The checkout that a package folder is in, as src/graphmill; None where it is installed."""
    root = package.parents[1]
    return root if package.parent.name == "src" and (root / "pyproject.toml").is_file() else None


def own_isa() -> str:
    """The instruction set of the compiled core in this process."""
    from graphmill import _native

    return str(_native.isa())


def processor(cpuinfo: str | None = None) -> Processor:
    """Read /proc/cpuinfo, or the text of one."""
    text = _cpuinfo() if cpuinfo is None else cpuinfo
    facts = dict(re.findall(r"^([^:\n]*?)\s*:[ \t]*(.*)$", text.partition("\n\n")[0], flags=re.MULTILINE))
    machine = machine_info()
    number = {key: int(facts[key]) if facts.get(key, "").isdigit() else None for key in _NUMBERS}
    return Processor(
        name=facts.get("model name") or machine.cpu_model,
        vendor=facts.get("vendor_id"),
        family=number["cpu family"],
        model=number["model"],
        stepping=number["stepping"],
        num_cores=machine.num_cores,
    )


_NUMBERS = ("cpu family", "model", "stepping")


def describe(facts: Mapping[str, Any]) -> str:
    """One phrase for a processor; numbers only where its name has none."""
    name = str(facts["name"])
    if re.search(r"\d", name) or facts.get("family") is None:
        return name
    numbers = ", ".join(f"{key} {facts[key]}" for key in ("family", "model", "stepping") if facts.get(key) is not None)
    return f"{name} ({facts['vendor']}, {numbers})"


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.is_file() else ""


def _excluded() -> list[str]:
    return [f":(exclude){name}" for name in NO_SOURCE]


def _checksum(paths: Iterable[Path]) -> str:
    """SHA-256 of names and contents, the first 16 digits."""
    digest = hashlib.sha256()
    for top in paths:
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            name = path.relative_to(top.parent).as_posix()
            if path.is_file() and not name.startswith(NO_SOURCE) and (path == top or path.suffix in _SUFFIXES):
                digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _git(folder: Path, *arguments: str) -> str | None:
    environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
