"""metrics.csv: one row per epoch, written by rank 0. Its columns are those of `spec.columns`."""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from graphmill.base.cells import as_written, csv_text
from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.base.names import did_you_mean
from graphmill.base.retries import is_there, retried
from graphmill.record.columns import current_names
from graphmill.record.lines import append_line
from graphmill.spec.columns import Cell, Column


def write_metrics(path: Path, rows: Iterable[Mapping[str, Cell]], columns: Mapping[str, Column]) -> None:
    """Write `rows` with all `columns`, whole or not at all; same rows, same bytes.

    A column that a row lacks, or holds None for, becomes an empty cell. Floats are written as the shortest text that
    reads back to the same float.
    """
    write_text(path, "".join([_line(columns), *(f"{_row(row, columns)}\n" for row in rows)]))


def append_metrics(path: Path, row: Mapping[str, Cell], columns: Mapping[str, Column]) -> None:
    """Append one row, with the header first if there is no file yet; durable when this returns.

    A line that a crash left half-written is cut off first, so the file only ever holds whole rows. Rows of a run that
    began before its task had the last of these columns stay as wide as its header.
    """
    if not is_there(path):
        write_text(path, _line(columns))
    line = _row(row, columns)
    header = retried(path, _header)
    names = list(columns)
    if len(header) < len(names) and header == names[: len(header)]:
        line = _row({name: row.get(name) for name in header}, {name: columns[name] for name in header})
    append_line(path, line)


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file), [])


def _row(row: Mapping[str, Cell], columns: Mapping[str, Column]) -> str:
    for name in row.keys() - columns.keys():
        raise ValueError(f"metrics.csv has no column {name!r}; {did_you_mean(name, columns)}")
    return _line([format_cell(row.get(name)) for name in columns]).removesuffix("\n")


def _line(cells: Iterable[str]) -> str:
    return csv_text([list(cells)])


def format_cell(value: Cell) -> str:
    """The text of one cell.

    >>> [format_cell(value) for value in (None, True, 3, 0.1, 1e-05, "local_sgd")]
    ['', 'true', '3', '0.1', '1e-05', 'local_sgd']
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float):  # numpy's is one; asking first whether it is an index takes ten times as long
        return repr(float(value))
    if type(value).__name__ in ("bool", "bool_"):  # numpy's own bool, without importing numpy
        return "true" if value else "false"
    return str(value.__index__()) if hasattr(value, "__index__") else repr(float(value))


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A CSV as it is on disk: cells are text, and each row has its line number."""

    path: Path
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]  # last line of each row, counted from 1


def read_metrics(path: Path, *, is_growing: bool = False) -> list[dict[str, str]]:
    """Read a metrics.csv, as strings by the names that columns have now. A torn file is refused with its line.

    `is_growing`: a rank may be appending to it, so a torn last line counts as not there yet.
    """
    table = read_table(path, is_growing=is_growing)
    header = current_names(table.header)
    return [dict(zip(header, row, strict=True)) for row in table.rows]


def read_table(path: Path, *, is_growing: bool = False) -> CsvTable:
    """Read a CSV with a header, or raise a `UserError` that names the file and the line where it breaks off.

    Raises `UnreadableError` if there may be such a file, and it cannot be read now.
    """
    advice = f"copy {path} again from where it was made, or remove it"
    try:
        text = retried(path, Path.read_bytes).decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", fix="check the path") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {line}: not UTF-8 text", fix=advice) from None
    if is_growing:
        text = text[: text.rfind("\n") + 1]
    if not text.strip():
        raise UserError(f"{path} is empty: not even a header", fix=advice)
    if "\0" in text:  # what a power failure leaves of a file that was being written
        line = text[: text.index("\0")].count("\n") + 1
        raise UserError(f"{path}, line {line}: the file holds zero bytes where text should be", fix=advice)
    if not text.endswith("\n"):  # the last number may have lost digits, and still look like one
        line = text.count("\n") + 1
        raise UserError(f"{path}, line {line}: the file ends in the middle of a line", fix=advice)
    return _parse(text, path, advice)


def _parse(text: str, path: Path, advice: str) -> CsvTable:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    is_marked = "'" in text  # else no cell was written otherwise than it was
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    try:
        header = next(reader)
        for row in reader:
            if not row:  # a blank line does no harm
                continue
            if len(row) != len(header):
                counts = f"{len(row)} cells, but the header names {len(header)} columns"
                raise UserError(f"{path}, line {reader.line_num}: {counts}", fix=advice)
            rows.append(tuple(map(as_written, row)) if is_marked else tuple(row))
            lines.append(reader.line_num)
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}", fix=advice) from None
    doubled = sorted({name for name in header if header.count(name) > 1})
    if doubled:
        raise UserError(f"{path}, line 1: the header names {', '.join(doubled)} more than once", fix=advice)
    return CsvTable(path, tuple(header), tuple(rows), tuple(lines))
