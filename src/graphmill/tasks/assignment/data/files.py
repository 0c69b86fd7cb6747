"""Files of assignment problems: what they hold and what is wrong with them; and stores written as such files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.tasks.assignment.data.hdf5 import SUFFIXES, write_records
from graphmill.tasks.assignment.data.instance import SPLITS, TO_BE_DRAWN, About, RecordError
from graphmill.tasks.assignment.data.sources import ReadInstances, in_order, sources_in
from graphmill.tasks.assignment.data.store import AssignmentStore, distribution
from graphmill.tasks.assignment.page.data import AssignmentPrepareOptions


class ProblemFiles:
    """Files of problems as `tasks.stores.RawData`."""

    def __init__(self, path: Path) -> None:
        self._path, self._sources = path, sources_in(path, AssignmentPrepareOptions())

    def described(self) -> Sequence[tuple[str, Any]]:
        """Where the files are, how many there are, and how large."""
        num_bytes = sum(file.stat().st_size for file in self._files())
        return [
            ("path", str(self._path)),
            ("files", len(self._sources)),
            ("instances", sum(map(len, self._sources))),
            ("size", f"{num_bytes / (1 << 20):,.1f} MiB"),
        ]

    def table(self) -> Sequence[Mapping[str, Any]]:
        """How many instances there are of each size and family; those that cannot be read are a family of their own."""
        found = [_summary(source, number) for source in self._sources for number in range(len(source))]
        if not found:
            return ()
        abouts, shapes = zip(*found, strict=True)
        return distribution(
            np.array([about.size for about in abouts]),
            np.array([about.family for about in abouts]),
            np.array(shapes),
            np.array([TO_BE_DRAWN if about.split is None else SPLITS.index(about.split) for about in abouts], np.int8),
        )

    def problems(self) -> Iterator[str]:
        """Each record that is wrong, by name: its costs, its assignment against the solver, its duals."""
        for source in self._sources:
            numbers = range(len(source))
            for number, (_, error) in zip(numbers, in_order(source.instance, numbers, None), strict=True):
                if isinstance(error, RecordError):
                    yield f"{source.name_of(number)}: {error}"
                elif error is not None:
                    raise error

    def _files(self) -> list[Path]:
        return [Path(source.identity["file"]) for source in self._sources if "file" in source.identity]


def _summary(source: ReadInstances, number: int) -> tuple[About, tuple[int, int]]:
    try:
        return source.summary(number)
    except RecordError:
        return About("unreadable", 0), (0, 0)


def write_hdf5(store: AssignmentStore, path: Path) -> Sequence[Path]:
    """A store in the HDF5 layout of `hdf5`: the file `path`, or train.h5, val.h5 and test.h5 in the folder `path`."""
    if path.name.endswith(SUFFIXES):
        write_records(path, map(store.instance, range(len(store))), len(store))
        return [path]
    written = []
    for split in SPLITS:
        ids = store.instances(split).tolist()
        written.append(path / f"{split}.h5")
        write_records(written[-1], map(store.instance, ids), len(ids))
    return written
