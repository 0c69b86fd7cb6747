"""Read CSV (also gzipped) and Parquet with polars; polars' errors become a `UserError` with the file's name."""

import contextlib
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.packed import csv_source, is_inflated, open_packed
from graphmill.graph.arrays import UNREADABLE, reason
from graphmill.graph.csv_header import FIRST_BYTES, csv_header

_CELL_BYTES = 8  # at least, of a number in memory
_OTHER_SEPARATORS = (";", "\t", "|", ",")
SUFFIXES = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")

# polars' Rust core panics on some damaged files; its exception is not an Exception.
UNREADABLE_TABLE = (*UNREADABLE, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def find_table(folder: Path, stem: str) -> Path:
    """The table `stem` in `folder`, whatever its format; `UserError` unless there is exactly one."""
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
        refuse_other_separator(path)
        return csv_header(path, separator=_separator(path))
    except UNREADABLE_TABLE as error:
        raise _unreadable(path, error) from None


def refuse_other_separator(path: Path) -> None:
    """Refuse tables of spreadsheets of many countries, by the first line: decimal commas are fields of the others."""
    with open_packed(path) as file:
        first = file.readline(FIRST_BYTES).decode(errors="replace")
    own = _separator(path)
    other = None if own in first else next((each for each in _OTHER_SEPARATORS if each in first), None)
    if other is not None:
        raise UserError(
            f"{path}: the separator is {other!r}, and perhaps the decimal mark a comma",
            fix=f"save it with {own!r} between fields and points in numbers, for example in Python: import polars;"
            f" polars.read_csv({str(path)!r}, separator={other!r}, decimal_comma=True)"
            f".write_csv({str(path)!r}, separator={own!r})",
        )


def read_table(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Read these columns of a table; those of a CSV as text, so that the conversion can report which row fails."""
    try:
        if path.suffix == ".parquet":
            _refuse_inflated(path, columns)
            return pl.read_parquet(path, columns=list(columns))
        return pl.read_csv(csv_source(path), separator=_separator(path), columns=list(columns), infer_schema=False)
    except UNREADABLE_TABLE as error:
        raise _unreadable(path, error) from None


def _refuse_inflated(path: Path, columns: Sequence[str]) -> None:
    """`UserError` if a Parquet file is too small for its rows: a run of equal values takes few bytes."""
    schema = pl.read_parquet_schema(path)
    nested = next((name for name in columns if name in schema and schema[name].is_nested()), None)
    if nested is not None:
        raise UserError(f"{path}, column {nested} holds {schema[nested]}", fix="give one value in every row")
    num_rows = pl.scan_parquet(path).select(pl.len()).collect().item()
    if is_inflated(num_rows * len(columns) * _CELL_BYTES, path.stat().st_size):
        raise UserError(
            f"{path} has {path.stat().st_size:,} bytes, and {num_rows:,} rows of {len(columns)} columns to read",
            fix="if that is meant, write it as .csv",
        )


def read_integers(path: Path, columns: Sequence[str]) -> list[NDArray[np.int64]]:
    """Read these columns of a table as integers, none missing. A CSV is read as text only if they are not."""
    frame = None
    if path.suffix != ".parquet":
        schema = dict.fromkeys(columns, pl.Int64)
        with contextlib.suppress(*UNREADABLE_TABLE):  # read again below, as text, to find the row
            source, separator = csv_source(path), _separator(path)
            frame = pl.read_csv(source, separator=separator, columns=list(columns), schema_overrides=schema)
    if frame is None or any(frame[column].has_nulls() for column in columns):
        frame = read_table(path, columns)
    return [numbers(frame[column], pl.Int64, path=path, what="an integer") for column in columns]


def row_name(path: Path, row: int, *, has_header: bool = True) -> str:
    """How the user finds the row: by line in a CSV, by number in Parquet."""
    return f"row {row}" if path.suffix == ".parquet" else f"line {row + 1 + has_header}"


def read_headerless(path: Path, num_columns: int, dtype: type[pl.DataType], *, what: str) -> NDArray[Any]:
    """All cells of a CSV without a header, as [num_rows, num_columns]."""
    names = [f"column_{number}" for number in range(1, num_columns + 1)]
    with contextlib.suppress(*UNREADABLE_TABLE):  # read again below, as text, to find the row
        frame = pl.read_csv(csv_source(path), has_header=False, schema=dict.fromkeys(names, dtype))
        if not any(frame[name].has_nulls() for name in names):
            return frame.to_numpy()
    try:
        frame = pl.read_csv(csv_source(path), has_header=False, schema=dict.fromkeys(names, pl.String))
    except UNREADABLE_TABLE as error:
        raise _unreadable(path, error) from None
    columns = [numbers(frame[name], dtype, path=path, what=what, has_header=False) for name in names]
    return np.stack(columns, axis=1)


def read_fields(path: Path) -> pl.DataFrame:
    """All fields of a table without a header as text, as they stand: quotes are part of them."""
    try:
        return pl.read_csv(
            csv_source(path), separator=_separator(path), has_header=False, quote_char=None, infer_schema=False
        )
    except UNREADABLE_TABLE as error:
        raise _unreadable(path, error) from None


def count_columns(path: Path) -> int:
    """Columns of the first line of a CSV without a header."""
    try:
        source = csv_source(path, first_bytes=FIRST_BYTES)
        return len(pl.read_csv(source, has_header=False, n_rows=1, infer_schema=False).columns)
    except UNREADABLE_TABLE as error:
        raise _unreadable(path, error) from None


def count_in(path: Path) -> int:
    """The one number of a file."""
    values: NDArray[Any] = read_headerless(path, 1, pl.Int64, what="an integer")
    if values.shape != (1, 1) or values[0, 0] < 1:
        raise UserError(
            f"{path} holds {values[:, 0].tolist()[:5]}, and should hold one count", fix="download the dataset again"
        )
    return int(values[0, 0])


def numbers(
    column: pl.Series, dtype: type[pl.DataType], *, path: Path, what: str, has_header: bool = True
) -> NDArray[Any]:
    """The column as numbers, none missing and none rounded to fit; the error names the row."""
    text = column.str.strip_chars() if column.dtype == pl.String else column
    if not (text.dtype == pl.String or text.dtype.is_numeric() or text.dtype == pl.Boolean):
        raise UserError(f"{path}, column {column.name} holds {text.dtype}", fix=f"give {what} in every row")
    try:
        cast_column = text.cast(dtype, strict=False)
    except UNREADABLE_TABLE as error:
        raise UserError(f"{path}, column {column.name}: {reason(error)}", fix=f"give {what} in every row") from None
    broken = cast_column.is_null()
    if text.dtype.is_float() and dtype.is_integer():
        broken = broken | (text != cast_column)
    if broken.any():
        row = cast("int", broken.arg_max())
        place = f"{path}, {row_name(path, row, has_header=has_header)}, column {column.name}"
        found = "it is empty, and" if column[row] is None else repr(column[row])
        raise UserError(f"{place}: {found} is not {what}", fix=f"give {what} in every row")
    return np.ascontiguousarray(cast_column.to_numpy())


def _separator(path: Path) -> str:
    return "\t" if {".tsv", ".txt"} & set(path.suffixes) else ","


def _unreadable(path: Path, error: BaseException) -> UserError:
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path} does not exist", fix="give the folder that holds it with --from")
    if isinstance(error, pl.exceptions.NoDataError):
        return UserError(
            f"{path} cannot be read: it is empty", fix="write a header line, and a row for each node or edge"
        )
    place = None if path.suffix == ".parquet" else _first_broken_line(path)
    fix = "save the table as UTF-8" if place and "UTF-8" in place else "correct or rewrite it"
    return UserError(f"{path} cannot be read: {place or reason(error).strip().splitlines()[0]}", fix=fix)


def _first_broken_line(path: Path) -> str | None:
    """polars does not report where a CSV is malformed; the csv module reads until it fails, too."""
    number = 0
    try:
        with open_packed(path) as file:
            rows = csv.reader((line.decode() for line in file), delimiter=_separator(path))
            width = len(next(rows, []))
            for number, row in enumerate(rows, start=2):
                if len(row) != width:
                    return f"line {number} has {len(row)} fields, and the first has {width}"
    except UnicodeDecodeError as error:
        return f"line {number + 1} is not UTF-8: byte {error.object[error.start]:#04x} at position {error.start}"
    except (*UNREADABLE, csv.Error):
        return None  # then polars' own message must do
    return None
