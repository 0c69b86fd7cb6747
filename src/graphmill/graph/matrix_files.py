"""Matrices of costs as people have them: .npy, .npz, .csv and .tsv, perhaps with names of rows and columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.cells import is_number
from graphmill.base.errors import UserError
from graphmill.graph.archive import npz_keys, read_npy, read_npz

NUMPY_SUFFIXES: Final = (".npy", ".npz")
TABLE_SUFFIXES: Final = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
SUFFIXES: Final = (*NUMPY_SUFFIXES, *TABLE_SUFFIXES)
_DIMENSIONS: Final = (2, 3)  # a matrix, or one after another
_KINDS: Final = "iufb"


@dataclass(frozen=True, slots=True)
class NamedMatrix:
    """Costs [rows, columns] as they are written, and what their lines are called; no names: they are numbered."""

    name: str
    costs: NDArray[Any]
    row_names: Sequence[str] = ()
    column_names: Sequence[str] = ()


def read_matrices(path: Path) -> list[NamedMatrix]:
    """The matrices of a file, in order: one of a table, those of the arrays of numpy's files.

    A first line without a number, and a first column without one, are names. An array of three dimensions is one matrix
    after another. `UserError`: it holds anything else.
    """
    if path.name.endswith(TABLE_SUFFIXES):
        return [_read_table(path)]
    if path.suffix == ".npy":
        return _cut(path, path.stem, read_npy(path))
    if path.suffix == ".npz":
        keys = npz_keys(path)
        arrays = read_npz(path, required=keys)
        return [matrix for key in keys for matrix in _cut(path, key, arrays[key])]
    raise UserError(f"{path.name} is not {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}", fix="save it with numpy.save")


def _cut(path: Path, name: str, array: NDArray[Any]) -> list[NamedMatrix]:
    if array.dtype.kind not in _KINDS or array.ndim not in _DIMENSIONS:
        raise UserError(
            f"{path}: {name} is {array.dtype} {list(array.shape)}",
            fix="give matrices of numbers [rows, columns], or [problems, rows, columns]",
        )
    if array.ndim == 2:
        return [NamedMatrix(name, array)]
    return [NamedMatrix(f"{name}[{number}]", each) for number, each in enumerate(array)]


def _read_table(path: Path) -> NamedMatrix:
    import polars as pl

    from graphmill.graph.tables import numbers, read_fields, refuse_other_separator

    refuse_other_separator(path)
    fields = read_fields(path).with_columns(pl.all().str.strip_chars(' "'))
    column_names: list[str] = []
    first = [cell or "" for cell in fields.row(0)] if fields.height else []
    if not any(map(is_number, first)):
        column_names, fields = first, fields[1:]
    row_names: list[str] = []
    if fields.height and fields.width > 1 and not any(is_number(cell or "") for cell in fields.to_series(0).head(20)):
        row_names = [cell or "" for cell in fields.to_series(0)]
        fields, column_names = fields[:, 1:], column_names[1:]
    names = column_names or [f"{number + bool(row_names)}" for number in range(1, fields.width + 1)]
    if not fields.height:
        raise UserError(f"{path} has no row of costs", fix="write a line of numbers for each row")
    columns = [
        numbers(
            fields.to_series(place).rename(name),
            pl.Float64,
            path=path,
            what="a number, or inf where the pair is not allowed",
            has_header=bool(column_names),
        )
        for place, name in enumerate(names)
    ]
    return NamedMatrix(path.name.split(".")[0], np.stack(columns, axis=1), row_names, column_names)
