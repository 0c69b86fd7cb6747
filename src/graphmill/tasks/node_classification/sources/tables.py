"""Read CSV (also gzipped) and Parquet with polars; whatever polars says becomes a `UserError` with the file's name."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.arrays import UNREADABLE

SUFFIXES = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")

# polars' Rust core panics on some damaged files; its exception is no Exception.
UNREADABLE_TABLE = (*UNREADABLE, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def find_table(folder: Path, stem: str) -> Path:
    """The table `stem` in `folder`, whatever its format; two of them are one too many."""
    found = [path for suffix in SUFFIXES if (path := folder / f"{stem}{suffix}").is_file()]
    if len(found) != 1:
        seen = ", ".join(path.name for path in found) or "none"
        raise UserError(
            f"{folder} must hold one table {stem}.csv or {stem}.parquet, and holds {seen}",
            fix=f"write {stem}.csv with a header line, or keep one of them",
        )
    return found[0]


def column_names(path: Path) -> list[str]:
    """Names of the columns, in order."""
    try:
        if path.suffix == ".parquet":
            return list(pl.read_parquet_schema(path))
        return list(pl.read_csv(path, separator=_separator(path), n_rows=0, infer_schema=False).columns)
    except UNREADABLE_TABLE as error:
        raise _unreadable(path, error) from None


def read_table(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """These columns of the table; those of a CSV as text, so that whoever converts them can say which row fails."""
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path, columns=list(columns))
        return pl.read_csv(path, separator=_separator(path), columns=list(columns), infer_schema=False)
    except UNREADABLE_TABLE as error:
        raise _unreadable(path, error) from None


def read_integers(path: Path, columns: Sequence[str]) -> list[NDArray[np.int64]]:
    """These columns of the table as integers, each of them there. Text is only looked at where it is none."""
    frame = None
    if path.suffix != ".parquet":
        schema = dict.fromkeys(columns, pl.Int64)
        with contextlib.suppress(*UNREADABLE_TABLE):  # read again below, as text, to find the row
            frame = pl.read_csv(path, separator=_separator(path), columns=list(columns), schema_overrides=schema)
    if frame is None or any(frame[column].has_nulls() for column in columns):
        frame = read_table(path, columns)
    return [numbers(frame[column], pl.Int64, path=path, what="an integer") for column in columns]


def row_name(path: Path, row: int) -> str:
    """How a person finds the row: by line in a CSV with a header, by number in Parquet."""
    return f"row {row}" if path.suffix == ".parquet" else f"line {row + 2}"


def read_headerless(path: Path, num_columns: int, dtype: type[pl.DataType]) -> NDArray[Any]:
    """All cells of a CSV without a header, as [num_rows, num_columns]."""
    names = [f"column_{number}" for number in range(1, num_columns + 1)]
    try:
        frame = pl.read_csv(path, has_header=False, schema=dict.fromkeys(names, dtype))
    except UNREADABLE_TABLE as error:
        raise _unreadable(path, error) from None
    for number, name in enumerate(names):
        empty = frame[name].is_null()
        if empty.any():
            line = cast("int", empty.arg_max()) + 1
            raise UserError(f"{path}, line {line}: column {number + 1} is empty", fix="write a number there")
    return frame.to_numpy()


def count_columns(path: Path) -> int:
    """Columns of the first line of a CSV without a header."""
    try:
        return len(pl.read_csv(path, has_header=False, n_rows=1, infer_schema=False).columns)
    except UNREADABLE_TABLE as error:
        raise _unreadable(path, error) from None


def numbers(column: pl.Series, dtype: type[pl.DataType], *, path: Path, what: str) -> NDArray[Any]:
    """The column as numbers, each of them there; the error names the row."""
    try:
        text = column.str.strip_chars() if column.dtype == pl.String else column
        cast_column = text.cast(dtype, strict=False)
    except UNREADABLE_TABLE as error:
        raise UserError(f"{path}, column {column.name}: {error}", fix=f"give {what}") from None
    missing = cast_column.is_null()
    if missing.any():
        row = cast("int", missing.arg_max())
        place = f"{path}, {row_name(path, row)}, column {column.name}"
        raise UserError(f"{place}: {column[row]!r} is not {what}", fix=f"give {what}")
    return np.ascontiguousarray(cast_column.to_numpy())


def _separator(path: Path) -> str:
    return "\t" if ".tsv" in path.suffixes else ","


def _unreadable(path: Path, error: BaseException) -> UserError:
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path} does not exist", fix="give the folder that holds it with --from")
    lines = str(error).strip().splitlines()
    return UserError(
        f"{path} cannot be read: {lines[0] if lines else type(error).__name__}", fix="write the table again"
    )
