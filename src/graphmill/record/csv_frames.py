"""Tables of polars on their way into a CSV: as `base/cells.py` writes one."""

from typing import TypeVar

import polars as pl

from graphmill.base.cells import FORMULA

F = TypeVar("F", pl.DataFrame, pl.LazyFrame)


def without_formulas(frame: F) -> F:
    """Put an apostrophe before every text of the table that a spreadsheet would compute."""
    texts = pl.col(pl.String)
    is_formula = texts.str.contains(FORMULA) & texts.cast(pl.Float64, strict=False).is_null()
    return frame.with_columns(pl.when(is_formula).then(pl.lit("'") + texts).otherwise(texts).name.keep())
