"""Copies of the dataset near the ranks: where a rank finds its host's, and what making it took.

staged/<hostname>.json of a run records what became of the copy. The copy itself has `.staged.json`, the mark of what
was verified: a later reader sees without reading the files whether one has changed since.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graphmill.base.errors import UserError
from graphmill.base.files import write_json
from graphmill.record.documents import read_document
from graphmill.record.events import starts_in
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.machine import host_name
from graphmill.spec.plan import Plan

ROOT_VARIABLE: Final = "GRAPHMILL_STAGED_ROOT"
MARK_FILE: Final = ".staged.json"
_DIGITS: Final = 12  # of the checksum, in the folder's name
_LABELS_ONLY: Final = ".labels"
_LABEL: Final = re.compile(r"\.parts_(?P<parts>[0-9]+(?:-[0-9]+)?(?:_[0-9]+(?:-[0-9]+)?)*)(?P<topology>\.topology)?")


class FileState(BaseModel):
    """What stat says of a file. A write to it changes one of these."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, path: Path) -> "FileState":
        """State of the file at `path`, now."""
        stat = path.stat()
        return cls(bytes=stat.st_size, mtime_ns=stat.st_mtime_ns, ctime_ns=stat.st_ctime_ns)


class StagedMark(BaseModel):
    """`.staged.json`: every file of a copy, as it was when its content had just been verified."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    checksum: str = Field(description="of the dataset, as its metadata.json says")
    source: str
    hostname: str = Field(description="who copied it")
    time: float = Field(description="Unix time of the verification, s")
    files: dict[str, FileState]
    xxh3: dict[str, str] = Field(description="xxh3-128 of each of the files")


class StagedHost(BaseModel):
    """staged/<hostname>.json: what staging did on one host, and what it took."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    hostname: str
    time: float = Field(description="Unix time, s")
    outcome: Literal["copied", "reused", "use_shared"]
    source: str = Field(description="folder that was copied")
    to: str = Field(description="folder that the ranks read")
    checksum: str
    bytes: int = Field(description="of the dataset")
    seconds: float = Field(description="from start to end: waiting, copying, verifying")
    copy_s: float = Field(description="of it, moving bytes")
    mib_per_s: float | None = Field(description="bytes ÷ copy_s; null where nothing was copied")
    verified: Literal["checksums", "sizes and times", "nothing"] = Field(description="of the copy, in this job")
    message: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """What a host needs of a graph in parts, besides what all hosts do; of any graph, if it needs no more: `LABELS`."""

    parts: tuple[int, ...]  # ascending; none: classes and splits alone
    whole_topology: bool  # the graph's, where every host samples by itself

    @property
    def label(self) -> str:
        """The end of the name of a copy that has no more.

        >>> Share((0, 1, 2, 7), whole_topology=True).label, Share((3,), whole_topology=False).label
        ('.parts_0-2_7.topology', '.parts_3')
        """
        if not self.parts:
            return _LABELS_ONLY
        numbers = "_".join("-".join(map(str, run)) for run in runs_of(self.parts))
        return f".parts_{numbers}{'.topology' if self.whole_topology else ''}"

    @classmethod
    def of_label(cls, label: str) -> "Share | None":
        """The share that a copy has; None if that is no label."""
        if label == _LABELS_ONLY:
            return LABELS
        found = _LABEL.fullmatch(label)
        if found is None:
            return None
        runs = [[int(number) for number in run.split("-")] for run in found["parts"].split("_")]
        parts = [part for run in runs for part in range(run[0], run[-1] + 1)]
        return cls(tuple(parts), found["topology"] is not None)

    def holds(self, other: "Share") -> bool:
        """Whether a copy of this share has all that the other one has."""
        return set(self.parts) >= set(other.parts) and self.whole_topology >= other.whole_topology


LABELS: Final = Share((), whole_topology=False)
"""Of a host that trains on what others sample."""
LABEL_ARRAYS: Final = ("y", "split")
"""They are, of a graph that is stored whole."""


def runs_of(numbers: Sequence[int]) -> list[list[int]]:
    """Ascending numbers as runs of consecutive ones: first and last, or one alone.

    >>> runs_of((0, 1, 2, 7))
    [[0, 2], [7]]
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return runs


def staged_name(name: str, checksum: str, share: Share | None = None) -> str:
    """Folder of a dataset below the staged root. Different content, different folder: jobs that read are undisturbed.

    >>> staged_name("../cora", "0123456789abcdef")
    '_.._cora-0123456789ab'
    """
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    whole = f"{'_' if plain.startswith('.') else ''}{plain}-{checksum[:_DIGITS]}"
    return whole if share is None else f"{whole}{share.label}"


def staged_path(root: Path, name: str, checksum: str, share: Share | None = None) -> Path:
    """Where a copy is, or is to be: of all, or of a `share` of a graph in parts, which a larger copy has, too."""
    own = root / staged_name(name, checksum, share)
    if share is None or own.exists():
        return own
    whole = staged_name(name, checksum)
    larger = [(path, Share.of_label(path.name.removeprefix(whole))) for path in sorted(root.glob(f"{whole}.*"))]
    fitting = [(len(has.parts), path) for path, has in larger if has is not None and has.holds(share)]
    if fitting:
        return min(fitting)[1]
    return root / whole if (root / whole).exists() else own


def staged_store_path(
    plan: Plan, environ: Mapping[str, str], folder: RunFolder, share: Share | None = None
) -> Path | None:
    """The copy of the plan's dataset on this host, or None if the ranks read the dataset itself.

    `share`: what this host's ranks read of a graph in parts.

    None if GRAPHMILL_STAGED_ROOT is not set, or if staging failed and the job continues as
    `staging.on_failure: use_shared` asks. Raises `UserError` if the copy is missing, or has been changed since it was
    verified. Costs one stat per file, and no reading.
    """
    root = environ.get(ROOT_VARIABLE)
    if not root:
        return None
    record = folder.staged_path(host_name(environ))
    if record.exists() and _read(record).outcome == "use_shared":
        return None
    path = staged_path(Path(root), plan.dataset.name, plan.dataset.prepared_checksum, share)
    problem = staged_problem(path, plan.dataset.prepared_checksum)
    if problem:
        again = f"python -m graphmill.cluster.staging.stage {folder.path}"
        raise UserError(f"{path}: {problem}", fix=f"stage it again: `{again}`, or `unset {ROOT_VARIABLE}`")
    return path


class Named(Protocol):
    """Prepared data as their header calls them."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def checksum(self) -> str: ...  # noqa: D102


def near_copy(folder: Path, data: Named, environ: Mapping[str, str]) -> Path:
    """The verified copy of the prepared data in `folder` that was staged on this host, or `folder` if none was.

    For commands, which need not have asked for one. Raises `UserError` if the copy has been changed since.
    """
    root = environ.get(ROOT_VARIABLE)
    path = Path(root) / staged_name(data.name, data.checksum) if root else folder
    if path == folder or not path.exists():
        return folder
    problem = staged_problem(path, data.checksum)
    if problem:
        again = f"graphmill stage {shlex.quote(str(folder))}"
        raise UserError(f"{path}: {problem}", fix=f"stage it again: `{again}`, or `unset {ROOT_VARIABLE}`")
    return path


def copies_here(checksum: str, environ: Mapping[str, str]) -> list[Path]:
    """The verified copies of prepared data on this host: of all, or of shares of a graph in parts."""
    root = environ.get(ROOT_VARIABLE)
    found = sorted(Path(root).glob(f"*-{checksum[:_DIGITS]}*")) if root else []
    return [path for path in found if staged_problem(path, checksum) is None]


def data_read(folder: RunFolder) -> dict[str, str]:
    """The folder that the ranks of each host read in their last attempt, by host name; empty before they start."""
    read = {}
    for path in sorted(folder.events_dir.glob("*.jsonl")):
        starts = starts_in(path)
        if starts and starts[-1].data:
            read[starts[-1].hostname] = starts[-1].data
    return read


def data_read_text(folder: RunFolder) -> str:
    """Folders that the ranks read, in a line: host names only where hosts differ."""
    read = data_read(folder)
    if len(set(read.values())) <= 1:
        return next(iter(read.values()), "")
    return ", ".join(f"{path} on {host}" for host, path in sorted(read.items()))


def staged_problem(path: Path, checksum: str) -> str | None:
    """What is wrong with the copy in `path`, without reading its files; None: nothing visible that way."""
    mark = read_mark(path)
    if mark is None:
        return "there is no verified copy of the dataset here"
    if mark.checksum != checksum:
        return f"it is a copy of {mark.checksum}, and the plan's dataset is {checksum}"
    for name, state in mark.files.items():
        try:
            now = FileState.of(path / name)
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
        if now != state:
            return f"{name} was changed after it was verified"
    return None


def read_mark(path: Path) -> StagedMark | None:
    """The mark of a verified copy, or None if there is none, or none that can be read."""
    try:
        return StagedMark.model_validate_json((path / MARK_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def write_mark(path: Path, mark: StagedMark) -> None:
    """Mark the copy in `path` as verified."""
    write_json(path / MARK_FILE, mark.model_dump(mode="json"))


def write_staged(folder: RunFolder, staged: StagedHost) -> None:
    """Record in the run folder what staging did on this host."""
    write_json(folder.staged_path(staged.hostname), staged.model_dump(mode="json"))


def read_staged(folder: RunFolder) -> list[StagedHost]:
    """What staging did on each host, by name; a damaged file is refused."""
    return [_read(path) for path in sorted(folder.staged_dir.glob("*.json"))]


def _read(path: Path) -> StagedHost:
    return read_document(path, StagedHost, f"remove it: rm {shlex.quote(str(path))}")
