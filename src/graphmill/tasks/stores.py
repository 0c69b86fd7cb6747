"""Prepared data of any task under the dataset root: where they are, how they are opened, and that they are the
plan's.
"""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast, runtime_checkable

from graphmill.base.errors import AbsentDataError, UserError
from graphmill.base.names import nearest
from graphmill.config.frozen import Spec
from graphmill.graph.header import FILE_NAME, Header, is_prepared, prepared_in
from graphmill.spec.kinds import DEFAULT_TASK
from graphmill.spec.kinds.kind import AnyKind, DatasetInfo, KnownDataset
from graphmill.spec.partition import DEFAULT_METHOD, PARTS_FOLDER, parts_named

if TYPE_CHECKING:
    from graphmill.graph.prepared import PreparedStore

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
S = TypeVar("S", bound="PreparedStore")


class Store(Protocol):
    """Prepared data of a task, opened."""

    @property
    def path(self) -> Path:
        """Folder of the prepared data."""

    @property
    def metadata(self) -> Header:
        """The header, and the task's own part."""

    def verify(self) -> None:
        """Read everything and compare checksums. `UserError` names the first breach."""

    def info(self, spec: Any) -> DatasetInfo:  # noqa: ANN401  # the dataset section of the task's experiment
        """What the planner must know. `UserError` if the data do not allow what is asked."""

    def described(self) -> Sequence[tuple[str, Any]]:
        """What `graphmill inspect` shows of its own part."""


@runtime_checkable
class CutsByBudget(Protocol):
    """A store of graphs of many sizes, which knows how many batches they make."""

    def num_batches(
        self,
        spec: Any,  # noqa: ANN401  # the dataset section of the task's experiment
        *,
        rng_seed: int,
        max_nodes: int,
        max_edges: int,
        ranks: int,
    ) -> int:
        """Batches of an epoch over all ranks, a multiple of them. `UserError` if a graph exceeds the budget."""


@runtime_checkable
class HasTable(Protocol):
    """Data of which `graphmill inspect` shows a table, too."""

    def table(self) -> Sequence[Mapping[str, Any]]:
        """Rows with the same keys, which head its columns."""


class RawData(HasTable, Protocol):
    """Files that could be prepared, opened to be looked at: `graphmill inspect FILE`."""

    def described(self) -> Sequence[tuple[str, Any]]:
        """What there is to say of them."""

    def problems(self) -> Iterator[str]:
        """What is wrong, record by record: everything is read."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """What `prepare` was asked for. The function that a kind names builds the store, whole or not at all."""

    name: str
    root: Path  # the dataset root
    options: Spec  # of the kind's own class
    from_path: Path | None = None  # raw data; None: the kind knows where they are, or generates them
    save_as: str | None = None
    force: bool = False  # rebuild an existing store
    more_paths: tuple[Path, ...] = ()  # further raw data, of a kind that `merges`


def load(dotted: str) -> Any:  # noqa: ANN401  # whatever a kind names
    """The object at `package.module:NAME`, a name out of a `Kind`."""
    module, _, name = dotted.partition(":")
    return getattr(importlib.import_module(module), name)


def open_store(kind: AnyKind, path: Path) -> Store:
    """The prepared data in the folder `path`, checked; data of another task are refused."""
    return cast("Store", load(kind.data.store).open(path))


def prepare_store(kind: AnyKind, preparation: Preparation) -> Store:
    """Build the prepared data that are asked for."""
    return cast("Store", load(kind.data.prepare)(preparation))


def store_path(name: str, root: Path) -> Path:
    """Where the store of that name is, or would be."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} cannot name a dataset",
            fix="use letters, digits, dots, dashes and underscores; one / makes a sub-folder",
        )
    return root.joinpath(*name.split("/"))


def refuse_place(path: Path, root: Path) -> None:
    """`UserError` if no store can be there: one replaces a store, never another folder; and stores are not nested."""
    for folder in path.parents:
        if folder == root:
            break
        if (folder / "metadata.json").exists():
            raise UserError(
                f"{folder} is a store, and {path.name} would be inside it", fix="choose another name with --as"
            )
    if path.is_dir() and any(path.iterdir()) and not (path / "metadata.json").exists():
        raise UserError(f"{path} holds other files", fix="move it away, or choose another name with --as")


def find_store(kind: AnyKind, name: str, root: Path) -> Store | None:
    """The prepared dataset `name` under `root`, or the one in the folder `name`; None: nothing is prepared there."""
    as_path = Path(name).expanduser()
    if name.startswith(("/", "./", "../", "~")):
        return open_store(kind, as_path)
    path = store_path(name, root)
    if is_prepared(path):
        return open_store(kind, path)
    return open_store(kind, as_path) if is_prepared(as_path) else None


def require_store(kind: AnyKind, name: str, root: Path) -> Store:
    """`find_store`, or a `UserError` that says how to prepare it."""
    store = find_store(kind, name, root)
    if store is None:
        raise not_prepared(kind, name, root)
    return store


def known_dataset(kind: AnyKind, name: str) -> KnownDataset | None:
    """What the kind's catalogue says of a name."""
    return next((dataset for dataset in kind.data.known if dataset.name == name), None)


def not_prepared(kind: AnyKind, name: str, root: Path) -> AbsentDataError:
    """The error of requested data that are not prepared."""
    here = f"--dataset-root {root}"
    parts = parts_named(name)
    if parts is not None:
        method = "" if parts.method == DEFAULT_METHOD else f" --method {parts.method}"
        split = f"graphmill partition {parts.dataset} --num-parts {parts.num_parts}{method} {here}"
        if find_store(kind, parts.dataset, root) is not None:
            there = _partitions_of(parts.dataset, root)
            told = f"; there are {', '.join(there)}" if there else ""
            return AbsentDataError(f"{parts.dataset} has no such parts under {root}: {name}{told}", fix=split)
        whole = not_prepared(kind, parts.dataset, root)
        return AbsentDataError(
            f"there is no {name} under {root}, and {whole.message}", fix=f"{whole.fix}; then {split}"
        )
    if name.startswith(f"{PARTS_FOLDER}/"):
        return _no_such_parts(name, root)
    of_task = "" if kind.name == DEFAULT_TASK else f" --task {kind.name}"
    known = known_dataset(kind, name)
    if known is not None:
        given = " --from PATH" if known.origin == "given" else ""
        return AbsentDataError(
            f"{name} is not prepared under {root}", fix=f"graphmill prepare {name}{given}{of_task} {here}"
        )
    others = {dataset.name for dataset in kind.data.known}
    others |= {header.name for _, header in prepared_in(root) if header.kind == kind.name}
    if name in others:
        return AbsentDataError(
            f"{root} holds a copy of {name}, under another name: `graphmill stage` makes such",
            fix=f"export GRAPHMILL_STAGED_ROOT={root}, and leave the dataset root where {name} was prepared",
        )
    match = nearest(name, others)
    suggestion, instead = (f"; did you mean {match!r}?", f"name {match}, or: ") if match else ("", "")
    return AbsentDataError(
        f"no dataset {name!r} is prepared under {root}{suggestion}",
        fix=f"{instead}graphmill prepare {name} --from PATH{of_task} {here} (graphmill datasets lists what is there)",
    )


def _no_such_parts(name: str, root: Path) -> AbsentDataError:
    """Error for a name below `parts/` where there are no such parts, with what to type."""
    given = name.removeprefix(f"{PARTS_FOLDER}/")
    dataset, _, own = (given, "", "") if _partitions_of(given, root) else given.rpartition("/")
    dataset, own = dataset or own, own if dataset else ""
    there = _partitions_of(dataset, root)
    told = f"; there are {', '.join(there)}" if there else ""
    make = f"graphmill partition {dataset} --num-parts P{f' --name {own}' if own else ''} --dataset-root {root}"
    close = nearest(own, there) if own else next(iter(there), None)
    return AbsentDataError(
        f"{dataset} has no such parts under {root}: {name}{told}",
        fix=f"set dataset.name={PARTS_FOLDER}/{dataset}/{close}, or make them: {make}" if close else make,
    )


def _partitions_of(dataset: str, root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / PARTS_FOLDER / dataset).glob(f"*/{FILE_NAME}"))


def open_planned(store: type[S], planned: DatasetInfo) -> S:
    """The store that was planned with: a run must not continue with other data under the same path."""
    found = store.open(Path(planned.path))
    refuse_other_data(planned, found.metadata.checksum)
    return found


def refuse_other_data(planned: DatasetInfo, checksum: str) -> None:
    """Raise a `UserError` if the data under the planned path have another checksum now."""
    if checksum != planned.checksum:
        raise UserError(
            f"{planned.path} was prepared again since the run was planned: its checksum is {checksum}, and plan.json"
            f" says {planned.checksum}",
            fix="restore that dataset, or start a new run",
        )
