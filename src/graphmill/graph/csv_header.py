"""The first line of a CSV, as it stands there: polars renames the second of two equal names."""

from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.packed import csv_source

FIRST_BYTES: Final = 1 << 26  # of a compressed table; a header is shorter


def csv_header(path: Path, *, separator: str = ",") -> list[str]:
    """Names of the columns, each there once. What polars cannot read raises what polars raises."""
    import polars as pl

    source = csv_source(path, first_bytes=FIRST_BYTES)
    first = pl.read_csv(source, separator=separator, has_header=False, n_rows=1, infer_schema=False)
    names = [name or "" for name in first.row(0)]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise UserError(f"{path} has two columns called {repeated[0]!r}", fix="rename or drop one of them")
    return names
