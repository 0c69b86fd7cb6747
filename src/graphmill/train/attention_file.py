"""The file of a model's attention: a row for each edge in each layer, written as it is computed."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import polars
from polars.io.plugins import register_io_source

from graphmill.base.files import replacing
from graphmill.record.csv_frames import without_formulas
from graphmill.spec.kinds.kind import ORIGIN
from graphmill.tasks.attended import Attended, Attention

STREAMED: Final = (".parquet", ".csv")
"""Formats that are written without holding all rows."""


def write_attention(attention: Attention, path: Path, about: Mapping[str, Any]) -> int:
    """Write the file in the format that its suffix names, whole or not at all; returns its rows.

    Columns: the ids, `layer`, and `alpha_0`, `alpha_1`, … for the heads. Parquet carries `about` as predictions do.
    """
    rows = 0
    heads = [f"alpha_{number}" for number in range(attention.heads)]
    schema = polars.Schema(
        {
            **dict.fromkeys(attention.names, polars.Int64()),
            "layer": polars.Int32(),
            **dict.fromkeys(heads, polars.Float32()),
        }
    )

    def tables(columns: list[str] | None, *_: object) -> Iterator[polars.DataFrame]:
        nonlocal rows
        for part in attention.parts:
            rows += len(part.alpha)
            yield _table(part, attention.names, schema).select(columns or polars.all())

    lazy = register_io_source(tables, schema=schema)
    with replacing(path) as temporary:
        if path.suffix == ".csv":  # as float64, so that the text carries every bit of a float32
            lazy = lazy.with_columns(polars.col(polars.Float32).cast(polars.Float64))
            without_formulas(lazy).sink_csv(temporary, engine="streaming")
        else:
            lazy.sink_parquet(temporary, metadata={ORIGIN: json.dumps(about)}, engine="streaming")
    return rows


def _table(part: Attended, names: tuple[str, ...], schema: polars.Schema) -> polars.DataFrame:
    columns: dict[str, Any] = dict(zip(names, part.ids, strict=True))
    columns["layer"] = polars.repeat(part.layer, len(part.alpha), dtype=polars.Int32, eager=True)
    columns |= {f"alpha_{head}": part.alpha[:, head].copy() for head in range(part.alpha.shape[1])}
    for name in schema.keys() - columns.keys():  # of a layer with fewer heads
        columns[name] = polars.repeat(None, len(part.alpha), dtype=polars.Float32, eager=True)
    return polars.DataFrame(columns, schema=schema)
