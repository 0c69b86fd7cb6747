"""Nodes that have names: numbers for them, in one order whatever table they come from."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.tables import row_name


def numbered(columns: Sequence[pl.Series], known: pl.Series | None = None) -> tuple[list[NDArray[np.int64]], pl.Series]:
    """A number for each entry of each column, and the names by number.

    Names are numbered as `known` lists them; without it whole numbers ascend, and other names come as they first
    appear. A name that is not known has the number -1.
    """
    text = [column.cast(pl.String).str.strip_chars() for column in columns]
    if known is None:
        known = pl.concat([column.rename("name") for column in text]).unique(maintain_order=True)
        as_numbers = known.cast(pl.Int64, strict=False)
        if not as_numbers.has_nulls():
            known = known.gather(as_numbers.arg_sort())
    table = pl.DataFrame({"name": known.rename("name"), "number": np.arange(len(known), dtype=np.int64)})
    numbers = []
    for column in text:
        joined = pl.DataFrame({"name": column.rename("name")}).join(table, on="name", how="left", maintain_order="left")
        numbers.append(joined["number"].fill_null(-1).to_numpy().astype(np.int64))
    return numbers, known


def refuse_empty(path: Path, column: pl.Series, what: str, *, has_header: bool) -> None:
    """`UserError` with the row, if one is empty."""
    empty = column.is_null() | (column.cast(pl.String).str.strip_chars() == "")
    row = empty.arg_max()
    if row is not None and empty[row]:
        place = f"{path}, {row_name(path, row, has_header=has_header)}"
        raise UserError(f"{place}: the {what} is empty", fix=f"give every link a {what}")
