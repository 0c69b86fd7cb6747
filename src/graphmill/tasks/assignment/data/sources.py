"""Where instances come from: generators, files, prepared data; and threads that make them in order."""

import os
import re
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from graphmill.base.errors import UserError
from graphmill.graph.header import is_prepared
from graphmill.graph.matrix_files import SUFFIXES as PLAIN_SUFFIXES
from graphmill.tasks.assignment.data.hdf5 import SUFFIXES, Hdf5Records, holds_records, split_by_name
from graphmill.tasks.assignment.data.instance import About, Instance
from graphmill.tasks.assignment.data.matrices import (
    MARKET_SUFFIXES,
    assign_arrays,
    assign_text,
    has_square_costs,
    holds_assign_arrays,
    holds_assign_text,
    market_matrix,
    plain_matrices,
)
from graphmill.tasks.assignment.data.store import AssignmentStore, StoredInstances
from graphmill.tasks.assignment.page.data import AssignmentPrepareOptions
from graphmill.tasks.recognise import Look, best_of, named, shaped, weak

_LOOKED_AT: Final = 20  # files of a folder
_RAW: Final = (*SUFFIXES, *MARKET_SUFFIXES, *PLAIN_SUFFIXES, ".txt")
T = TypeVar("T")


class InstanceSource(Protocol):
    """Numbered instances, each of which can be made alone, by any thread."""

    def __len__(self) -> int: ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """What they depend on, as JSON can carry it: the same, and so are the instances."""

    def name_of(self, number: int) -> str:
        """What a message calls one: file and record, or family, size and number."""

    def instance(self, number: int) -> Instance:
        """One of the instances. `RecordError` says what is wrong with it."""


class ReadInstances(InstanceSource, Protocol):
    """Instances that others made."""

    def summary(self, number: int) -> tuple[About, tuple[int, int]]:
        """What is said of one, and its shape. `RecordError`, or a `UserError`: not even that can be read."""


class Several:
    """Several sources as one `InstanceSource`, one after another."""

    def __init__(self, sources: Sequence[InstanceSource]) -> None:
        self._sources = sources
        self._begins = [0]
        for source in sources:
            self._begins.append(self._begins[-1] + len(source))

    def __len__(self) -> int:
        return self._begins[-1]

    @property
    def identity(self) -> Mapping[str, Any]:
        """Identities of all sources."""
        return {"sources": [dict(source.identity) for source in self._sources]}

    def name_of(self, number: int) -> str:
        """Name of an instance in its source."""
        source, own = self._place(number)
        return source.name_of(own)

    def instance(self, number: int) -> Instance:
        """Instance as its source gives it."""
        source, own = self._place(number)
        return source.instance(own)

    def _place(self, number: int) -> tuple[InstanceSource, int]:
        at = next(at for at, begin in enumerate(self._begins[1:]) if number < begin)
        return self._sources[at], number - self._begins[at]


def holds_problems(path: Path) -> Look | None:
    """What the first files say of whether it holds assignment problems."""
    return best_of([_look_of(file) for file in _files(path)[:_LOOKED_AT]])


def _look_of(file: Path) -> Look | None:
    kind = _kind_of(file)
    if kind == "hdf5":
        return shaped(f"{file.name} has the keys of its records") if holds_records(file) else None
    if kind == "market":
        return shaped(f"{file.name} ends as Matrix Market files do")
    if kind == "arrays":
        return named(f"{file.name} has the keys of matrices with their optima")
    return _look_of_text(file) if kind == "text" else None  # plain numbers may be anything


def _look_of_text(file: Path) -> Look:
    if re.fullmatch(r"assign[a-z]*\d+\.txt", file.name):
        return named(f"{file.name} has a name of OR-Library's")
    if has_square_costs(file):
        return shaped(f"{file.name} holds a number n and n x n more")
    return weak(f"{file.name} holds digits alone")


def sources_in(path: Path, options: AssignmentPrepareOptions) -> list[ReadInstances]:
    """What a file or a folder holds, files by name, train before val before test. `UserError`: no such problems."""
    if not path.exists():
        raise UserError(f"{path} does not exist", fix="give a file of assignment problems, or a folder of them")
    if is_prepared(path):
        return [StoredInstances(AssignmentStore.open(path), checks=options.duals == "stored")]
    kinds = ((file, _kind_of(file)) for file in _files(path))
    found = [_opened(file, kind, options) for file, kind in kinds if kind is not None]
    if not found:
        raise UserError(
            f"{path} holds no assignment problems",
            fix="give .h5 files with the keys C, u, v, rows, cols, cost, n; OR-Library's text files; Matrix Market "
            "files; matrices in .npy, .npz, .csv or .tsv; or the folder of prepared data",
        )
    return found


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.name.endswith(_RAW) else []
    found = (each for each in path.rglob("*") if each.is_file() and each.name.endswith(_RAW))
    order = {"train": 0, "val": 1, "test": 2}
    return sorted(found, key=lambda each: (each.parent, order.get(split_by_name(each) or "train", 0), _natural(each)))


def _natural(path: Path) -> tuple[int, str]:
    """assign100 before assign1000: shorter names first."""
    return len(path.name), path.name


def _kind_of(file: Path) -> str | None:
    """A damaged .h5 or .mtx file is one, too: it is not passed over in silence."""
    for kind, suffixes in (("hdf5", SUFFIXES), ("market", MARKET_SUFFIXES)):
        if file.name.endswith(suffixes):
            return kind
    if holds_assign_text(file) or holds_assign_arrays(file):
        return "text" if file.suffix == ".txt" else "arrays"
    return "plain" if file.name.endswith(PLAIN_SUFFIXES) else None


def _opened(file: Path, kind: str, options: AssignmentPrepareOptions) -> ReadInstances:
    if kind == "hdf5":
        return Hdf5Records(file, split=split_by_name(file), duals=options.duals)
    if kind == "market":
        return market_matrix(file, options.matrix_costs)
    if kind == "plain":
        return plain_matrices(file)
    return assign_text(file) if kind == "text" else assign_arrays(file)


def in_order(
    make: Callable[[int], T], numbers: range, workers: int | None
) -> Generator[tuple[T | None, Exception | None]]:
    """What `make` gives, or the error that it raises, for each number, in order; made by threads a little ahead.

    So few are ahead that the memory is that of workers + 2 results.
    """
    num_threads = workers or len(os.sched_getaffinity(0))
    waiting: deque[Future[tuple[T | None, Exception | None]]] = deque()

    def made(number: int) -> tuple[T | None, Exception | None]:
        try:
            return make(number), None
        except Exception as error:  # noqa: BLE001  # whoever asked for it decides what becomes of it
            return None, error

    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="instances")
    try:
        for number in numbers:
            waiting.append(pool.submit(made, number))
            if len(waiting) > num_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
