"""The first line of a CSV, as it stands there: polars renames the second of two equal names."""

from pathlib import Path

from graphmill.base.errors import UserError


def csv_header(path: Path, *, separator: str = ",") -> list[str]:
    """Names of the columns, each there once. What polars cannot read raises what polars raises."""
    import polars as pl

    first = pl.read_csv(path, separator=separator, has_header=False, n_rows=1, infer_schema=False)
    names = [name or "" for name in first.row(0)]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise UserError(f"{path} has two columns called {repeated[0]!r}", fix="rename or drop one of them")
    return names
