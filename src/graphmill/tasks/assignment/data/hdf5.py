"""HDF5 files of assignment problems, in the layout of progressive training of dual models: one record an instance.

One-dimensional datasets, of which the n-th entries are the n-th record: `C` (variable length, row-major), `u`, `v`
(variable length), `rows`, `cols` (variable length: the pairs of the optimal assignment), `cost`, `n`, `family`,
`noise_std`, `tag`, and in files of graphmill `size`, `sequence`, `frame` and `row_ids`. The attribute `records` counts
them. A matrix has as many rows as `u` and columns as `v` has entries. Records are read one at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.files import remove_leftovers, replacing
from graphmill.graph.hdf5 import described, row, tree, write_columns
from graphmill.graph.unused import tell_unused
from graphmill.tasks.assignment.data.instance import (
    NO_SEQUENCE,
    SPLITS,
    About,
    Instance,
    RecordError,
    Split,
    Stated,
    checked_costs,
    confirmed,
    solved,
)
from graphmill.tasks.assignment.data.oracle import UNMATCHED, Columns

SUFFIXES: Final = (".h5", ".hdf5")
_COSTS: Final = ("C", "n")
_ANSWER: Final = ("u", "v", "rows", "cols", "cost")
_LABELS: Final = ("family", "noise_std", "tag", "size", "sequence", "frame", "row_ids")
_VARIABLE: Final[Mapping[str, str]] = {
    **{"C": "<f8", "u": "<f8", "v": "<f8"},
    **{"rows": "<i4", "cols": "<i4", "row_ids": "<i4"},
}
_FIXED: Final[Mapping[str, str]] = {
    **{"cost": "<f8", "n": "<i4", "noise_std": "<f4"},
    **{"size": "<i4", "sequence": "<i4", "frame": "<i4"},
}
_TEXT: Final = ("family", "tag")
_COLUMNS: Final[Mapping[str, str]] = {
    **{key: f"{dtype} variable" for key, dtype in _VARIABLE.items()},
    **_FIXED,
    **dict.fromkeys(_TEXT, "text"),
}
_ENOUGH: Final = 3  # of its keys, to know the layout by


def holds_records(path: Path) -> bool:
    """Whether a file is of this layout by its keys, of which some may be missing."""
    if not path.name.endswith(SUFFIXES) or not path.is_file():
        return False
    try:
        return len({*_COSTS, *_ANSWER} & set(tree(path))) >= _ENOUGH
    except (ValueError, UserError):
        return False


class Hdf5Records:
    """`sources.Source`: the records of one file, of which each is read when it is asked for."""

    def __init__(self, path: Path, *, split: Split | None, duals: str) -> None:
        self.path = path
        self._split, self._solves = split, duals == "solve"
        if not path.exists():
            raise UserError(f"{path} does not exist", fix="give the path of a .h5 file")
        try:
            self._keys = tuple(tree(path))
            self._num_records = self._checked_length()
        except ValueError as error:
            raise UserError(f"{path} cannot be read as HDF5: {error}", fix="fetch or write the file again") from error
        tell_unused(path.name, set(self._keys) - {*_COSTS, *_ANSWER, *_LABELS})

    def __len__(self) -> int:
        return self._num_records

    @property
    def identity(self) -> Mapping[str, Any]:
        """Which file it is, and whether it is still the same."""
        stat = self.path.stat()
        return {"file": str(self.path.resolve()), "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}

    def name_of(self, number: int) -> str:
        """Name of a record for messages."""
        return f"{self.path}, record {number}"

    def summary(self, number: int) -> tuple[About, tuple[int, int]]:
        """What the record says of itself, and its shape; its costs are not read."""
        record = self._record(number, ("n", "u", "v"))
        return self._about(record), self._shape(record)

    def instance(self, number: int) -> Instance:
        """The instance with its exact answer. `RecordError` says what is wrong with the record."""
        record = self._record(number, _COSTS + (("u", "v") if self._solves else _ANSWER))
        costs, shape = record["C"], self._shape(record)
        if len(costs) != shape[0] * shape[1]:
            raise RecordError(f"C has {len(costs):,} entries, and {shape[0]} x {shape[1]} are {shape[0] * shape[1]:,}")
        matrix = checked_costs(costs.reshape(shape), "float64")
        about = self._about(record)
        found = solved(matrix, about) if self._solves else confirmed(matrix, _stated(record, shape), about)
        ids = record.get("row_ids", ())
        return replace(found, row_ids=ids.astype(np.int32)) if len(ids) == shape[0] else found

    def _checked_length(self) -> int:
        """The number of records that all keys have; `UserError` if keys are missing or contradict each other."""
        needed = _COSTS if self._solves else _COSTS + _ANSWER
        if missing := [key for key in needed if key not in self._keys]:
            fix = f"write a file with the keys {', '.join(needed)}"
            if not set(missing) & set(_COSTS):
                fix += ", or set -o duals=solve, which reads C and n only"
            raise UserError(
                f"{self.path} lacks {', '.join(missing)}; it has {', '.join(self._keys) or 'nothing'}", fix=fix
            )
        read = [*needed, *(key for key in _LABELS if key in self._keys)]
        datasets = described(self.path, ["/", *read], ["records"])
        lengths = {key: self._length(datasets[key].shape, key) for key in read}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{key} {count:,}" for key, count in lengths.items())
            raise UserError(
                f"{self.path}: keys have different numbers of records: {counts}", fix="write the file again"
            )
        found = lengths["C"]
        stated = datasets["/"].attributes.get("records", found)
        if stated is not None and int(stated) != found:
            raise UserError(
                f"{self.path}: its attribute records is {int(stated):,}, and it has {found:,}",
                fix="write the file again: it seems to have been cut short",
            )
        return found

    def _length(self, shape: tuple[int, ...] | None, key: str) -> int:
        if shape is None or len(shape) != 1:
            raise UserError(
                f"{self.path}, key {key}: it is no one-dimensional dataset", fix="write an entry for each record"
            )
        return shape[0]

    def _record(self, number: int, keys: Sequence[str]) -> dict[str, Any]:
        """The values under `keys`, and the labels, as far as the file has them."""
        names = [key for key in (*keys, *_LABELS) if key in self._keys]
        try:
            record = row(self.path, names, number, keep=number < self._num_records - 1)
        except ValueError as error:
            raise RecordError(str(error)) from error
        for key in _VARIABLE.keys() & record.keys():
            record[key] = _vector(key, record[key])
        for key in _FIXED.keys() & record.keys():
            if np.ndim(record[key]) or np.asarray(record[key]).dtype.kind not in "iuf":
                raise RecordError(f"{key} is {record[key]!r}, and no number")
        return record

    def _shape(self, record: Mapping[str, Any]) -> tuple[int, int]:
        n = int(record["n"])
        if "u" not in record or "v" not in record:
            return n, n
        if len(record["u"]) != n:
            raise RecordError(f"n is {n}, and u has {len(record['u'])} entries")
        return n, len(record["v"])

    def _about(self, record: Mapping[str, Any]) -> About:
        noise = float(record.get("noise_std", 0.0))
        return About(
            family=str(record.get("family", "")) or "unknown",
            size=int(record.get("size", record["n"])),
            tag=str(record.get("tag", "")),
            noise_std=noise if np.isfinite(noise) else 0.0,
            sequence=int(record.get("sequence", NO_SEQUENCE)),
            frame=int(record.get("frame", NO_SEQUENCE)),
            split=self._split,
        )


def _vector(key: str, value: object) -> NDArray[Any]:
    found = np.asarray(value)
    if found.ndim != 1 or found.dtype.kind not in "iuf":
        raise RecordError(f"{key} is {found.dtype} {list(found.shape)}, and no vector of numbers")
    return found.astype(np.float64) if _VARIABLE[key] == "<f8" else found.astype(np.int64)


def _stated(record: Mapping[str, Any], shape: tuple[int, int]) -> Stated:
    rows, cols = record["rows"], record["cols"]
    if len(rows) != len(cols):
        raise RecordError(f"rows has {len(rows)} entries, and cols {len(cols)}")
    if len(rows) and (rows.min() < 0 or rows.max() >= shape[0]):
        raise RecordError(f"rows has {int(rows.min())} to {int(rows.max())}, and there are {shape[0]} rows")
    if len(np.unique(rows)) < len(rows):
        raise RecordError("rows has a row twice")
    if len(cols) and (cols.min() < 0 or cols.max() >= shape[1]):
        raise RecordError(f"cols has {int(cols.min())} to {int(cols.max())}, and there are {shape[1]} columns")
    columns: Columns = np.full(shape[0], UNMATCHED, np.int32)
    columns[rows] = cols
    return Stated(columns, record["u"], record["v"], float(record["cost"]))


def write_records(path: Path, instances: Iterable[Instance], num_records: int) -> None:
    """Write the file, whole or not at all, an instance at a time.

    What has a fixed length is chunked, compressed and checked by HDF5 when it is read. Of variable length it compresses
    the references only: the numbers themselves lie in a heap that has no filters.
    """
    try:
        remove_leftovers(path)
        with replacing(path) as temporary:
            records = map(_columns_of, instances)
            write_columns(temporary, _COLUMNS, {"records": num_records}, records, num_records)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}", fix="free some space, or name another place"
        ) from error


def _columns_of(instance: Instance) -> dict[str, Any]:
    rows = np.flatnonzero(instance.columns != UNMATCHED)
    about = instance.about
    return {
        "C": np.asarray(instance.costs, "<f8").ravel(),
        "u": instance.u,
        "v": instance.v,
        "rows": rows.astype("<i4"),
        "cols": instance.columns[rows].astype("<i4"),
        "row_ids": np.empty(0, "<i4") if instance.row_ids is None else instance.row_ids,
        "cost": float(instance.optimum),
        "n": int(instance.shape[0]),
        "size": about.size,
        "family": about.family,
        "noise_std": about.noise_std,
        "tag": about.tag,
        "sequence": about.sequence,
        "frame": about.frame,
    }


def split_by_name(path: Path) -> Split | None:
    """The split that a file's name says: train.h5, val.h5, test.h5, as generators of this layout write them."""
    stem = path.name.split(".")[0].lower()
    known: Sequence[Split] = SPLITS
    return next((split for split in known if stem == split or (stem, split) == ("valid", "val")), None)
