"""A table as CSV and as Parquet, written while its rows are read: no more than a part of them is in memory."""

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Final, TextIO, cast

import polars as pl
from polars.io.plugins import register_io_source

from graphmill.base.cells import csv_text
from graphmill.base.files import replacing
from graphmill.base.retries import insist
from graphmill.report.order import Value
from graphmill.report.table import frame_of
from graphmill.spec.columns import Column

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ROWS: Final = 1000
"""In memory as values of Python, where one takes up to a hundred bytes; as columns of polars it takes eight."""
_ROW_GROUP: Final = 50_000
"""Rows that polars keeps until it writes them."""

Row = tuple[tuple[str, ...], tuple[Value, ...]]
"""Cells as text for the CSV, and as values for Parquet."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table to write."""

    header: tuple[str, ...]
    columns: Mapping[str, Column]  # what those of the header hold
    rows: Callable[[], Iterator[Row]]  # from the first row on with each call

    def write(self, output: Path) -> Path:
        """Write the CSV, and Parquet next to it, whose path is returned; neither, where a row cannot be read."""
        parquet = output.with_suffix(".parquet")
        insist(lambda: self._write(output, parquet))
        return parquet

    def _write(self, output: Path, parquet: Path) -> None:
        with (
            replacing(output) as text,
            replacing(parquet) as table,
            text.open("w", encoding="utf-8", newline="") as lines,
            table.open("wb") as file,
        ):
            lines.write(csv_text([self.header]))
            self._stream(lines, file)

    def _stream(self, lines: TextIO, file: BinaryIO) -> None:
        rows = self.rows()
        raised: list[Exception] = []  # polars 1.30 has only the text of one in an error of its own

        def frames(columns: list[str] | None, *_: object) -> Iterator[pl.DataFrame]:
            try:
                while part := list(islice(rows, _ROWS)):
                    lines.write(csv_text(cells for cells, _ in part))
                    yield frame_of(self.header, [values for _, values in part], self.columns)
            except Exception as error:
                raised.append(error)
                raise

        source = register_io_source(frames, schema=frame_of(self.header, [], self.columns).schema)
        binary = _Binary(file)
        try:
            source.sink_parquet(cast("IO[bytes]", binary), row_group_size=_ROW_GROUP, engine="streaming")
        except pl.exceptions.ComputeError:
            for error in filter(None, (*raised, binary.error)):
                raise error from None
            raise


class _Binary(io.RawIOBase):
    """A file as polars writes it; its own error of a full disk says what happened, that of polars has no errno."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, content: "Buffer") -> int:
        try:
            return self._file.write(content)
        except OSError as error:
            self.error = error
            raise
