"""Two tables in one folder, CSV or Parquet: `edges` (src, dst) and `nodes` (id, label, split, one column per feature).

Without the columns label and split it is a graph without labels. Other columns of `edges` that hold numbers are
features of edges.

Ids are in any order; they are integers if each of them reads as one, else text. Labels are integers from 0, or
names; empty, or NA and its like, means unlabelled. split is train, val, test or empty. Every other column of `nodes`
is a feature and must be a number in every row.
"""

import logging
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean, nearest
from graphmill.graph.edge_features import edge_columns
from graphmill.graph.features import DenseFeatures
from graphmill.graph.splits import split_from_names
from graphmill.graph.tables import (
    UNREADABLE_TABLE,
    column_names,
    find_table,
    numbers,
    read_integers,
    read_table,
    row_name,
)
from graphmill.graph.unused import tell_unused
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.sources.labels import integer_labels, no_labels, random_split

_log = logging.getLogger(__name__)

_ENDS = ("src", "dst")
_MISSING = ("NA", "N/A", "<NA>", "NaN", "nan", "null", "NULL")  # as pandas, R and SQL write a missing value
_MAX_SPAN = 4  # a table over the ids' range may have at most this many entries per id
_NOT_FEATURES = ("id", "label", "split")


def read_edge_list(folder: Path, name: str, *, split_seed: int | None = None) -> LabelledGraph:
    """Read the tables `edges` and `nodes` in `folder`."""
    return read_tables(find_table(folder, "edges"), find_table(folder, "nodes"), name, split_seed=split_seed)


def read_tables(edges: Path, nodes: Path, name: str, *, split_seed: int | None = None) -> LabelledGraph:
    """Read the two tables. With `split_seed` the split is drawn at random, whatever the file says."""
    columns = column_names(nodes)
    has_labels = "label" in columns or nearest("label", columns) is not None
    wanted = ("id", "label", "split") if has_labels else ("id",)
    _require(nodes, columns, wanted if split_seed is None else wanted[:2])
    _require(edges, column_names(edges), _ENDS)
    table = read_table(nodes, columns)
    if table.is_empty():
        raise UserError(f"{nodes} has no row: there are no nodes", fix="write one row per node below the header")
    ids = _ids(table["id"], nodes)
    labels, split, note = no_labels(len(table))
    class_names: tuple[str, ...] = ()
    if has_labels:
        labels, class_names = _labels(table["label"], nodes)
    of_edges, names = edge_columns(_edge_arrays(edges), place=f"{edges}, column")
    if split_seed is not None:
        split, note = random_split(labels, split_seed)
    elif "split" in columns:
        split, note = _split(table["split"], nodes), "as given in the file"
    return LabelledGraph(
        edge_index=_edges(edges, ids),
        features=_features(table, nodes),
        edge_features=of_edges,
        edge_feature_names=names,
        labels=labels,
        split=split,
        class_names=class_names,
        name=name,
        source=f"edge list {edges.name}, {nodes.name}",
        synthetic=False,
        split_note=note,
        origin={
            "edge_index": str(edges),
            "features": str(nodes),
            "edge_features": str(edges),
            "labels": f"{nodes}, column label; its rows are numbered from 0",
            "split": f"{nodes}, column split",
        },
    )


def _require(path: Path, columns: list[str], wanted: tuple[str, ...]) -> None:
    missing = [column for column in wanted if column not in columns]
    if missing and len(columns) == 1 and any(separator in columns[0] for separator in ";\t|"):
        raise UserError(
            f"{path} has one column, {columns[0]!r}", fix="separate columns by commas, or by tabs in a file .tsv"
        )
    if missing:
        raise UserError(
            f"{path} lacks the column {missing[0]} ({did_you_mean(missing[0], columns)})",
            fix=f"name the columns {', '.join(wanted)} in the first line"
            + (", or --random-split" if missing == ["split"] else ""),
        )


def _text(column: pl.Series, path: Path) -> pl.Series:
    try:
        return column.cast(pl.String).str.strip_chars()
    except UNREADABLE_TABLE as error:
        raise UserError(f"{path}, column {column.name}: {error}", fix="give text or integers") from None


def _ids(column: pl.Series, path: Path) -> pl.Series:
    """Node ids, integers or text."""
    text = _text(column, path)
    missing = text.is_null() | (text == "")
    if missing.any():
        row = cast("int", missing.arg_max())
        raise UserError(f"{path}, {row_name(path, row)}, column id: the id is empty", fix="give every node an id")
    integers = text.cast(pl.Int64, strict=False)
    ids = text if integers.has_nulls() else integers
    repeated = ~ids.is_first_distinct()
    if repeated.any():
        row = cast("int", repeated.arg_max())
        raise UserError(
            f"{path}, {row_name(path, row)}, column id: {ids[row]!r} was there before", fix="give every node its own id"
        )
    return ids


def _edges(path: Path, ids: pl.Series) -> NDArray[np.int64]:
    if ids.dtype == pl.Int64:
        known = ids.to_numpy()
        order = np.argsort(known)
        numbered = [_numbers_of_integers(end, known, order) for end in read_integers(path, _ENDS)]
    else:
        table = read_table(path, _ENDS)
        numbered = [_numbers_of_text(_text(table[name], path), ids) for name in _ENDS]
    for name, numbers_of_end in zip(_ENDS, numbered, strict=True):
        missing = np.flatnonzero(numbers_of_end < 0)
        if len(missing):
            row = int(missing[0])
            shown = read_table(path, (name,))[name][row]
            what = "there is no node" if shown is None else f"node {shown!r} is not in the table of nodes"
            raise UserError(
                f"{path}, {row_name(path, row)}, column {name}: {what}",
                fix="add the node there, or drop the edge",
            )
    return np.stack(numbered)


def _numbers_of_integers(ends: NDArray[np.int64], known: NDArray[Any], order: NDArray[np.intp]) -> NDArray[np.int64]:
    """Position of each end among the ids, -1 if it is not there."""
    low, high = int(known[order[0]]), int(known[order[-1]])
    if high - low >= _MAX_SPAN * len(known):
        places = np.minimum(np.searchsorted(known, ends, sorter=order), len(known) - 1)
        return np.where(known[order[places]] == ends, order[places], -1)
    inside = (ends >= low) & (ends <= high)
    number_of = np.full(high - low + 1, -1, dtype=np.int64)
    number_of[known - low] = np.arange(len(known))
    return np.where(inside, number_of[np.where(inside, ends - low, 0)], -1)


def _numbers_of_text(ends: pl.Series, known: pl.Series) -> NDArray[np.int64]:
    numbers = pl.DataFrame({"id": known, "number": np.arange(len(known), dtype=np.int64)})
    found = ends.to_frame("id").join(numbers, on="id", how="left", maintain_order="left")["number"]
    return cast("NDArray[np.int64]", found.fill_null(-1).to_numpy())


def _labels(column: pl.Series, path: Path) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Integers as they are; names in alphabetical order become 0, 1, …; what is missing is -1."""
    if column.dtype.is_float():
        floats = column.cast(pl.Float64).fill_null(float("nan")).to_numpy()
        return integer_labels(floats, place=f"{path}, column {column.name}"), ()
    text = _text(column, path)
    written = [word for word in _MISSING if (text == word).any()]
    if written:
        _log.info(f"{path}, column {column.name}: {', '.join(written)} means unlabelled, and names no class")
    text = pl.select(pl.when((text != "") & ~text.is_in(_MISSING)).then(text)).to_series()
    for integers_or_floats in (text.cast(pl.Int64, strict=False), text.cast(pl.Float64, strict=False)):
        if (
            integers_or_floats.null_count() == text.null_count()
        ):  # all are numbers; pandas writes 1.0 beside a missing one
            whole = integers_or_floats.fill_null(-1).to_numpy()
            return integer_labels(whole, place=f"{path}, column {column.name}"), ()
    names = text.drop_nulls().unique().sort().to_list()
    codes = text.replace_strict(names, list(range(len(names))), default=None, return_dtype=pl.Int64)
    return codes.fill_null(-1).to_numpy().astype(np.int64), tuple(names)


def _split(column: pl.Series, path: Path) -> NDArray[np.int8]:
    names: list[str | None] = _text(column, path).to_list()
    return split_from_names(names, place=lambda row: f"{path}, {row_name(path, row)}, column split")


def _edge_arrays(path: Path) -> dict[str, NDArray[np.float64]]:
    """The columns of numbers besides the ends. A column without a number in it is text, and is not used."""
    others = [name for name in column_names(path) if name not in _ENDS]
    if not others:
        return {}
    table = read_table(path, others)
    is_text = {name: table[name].cast(pl.Float64, strict=False).null_count() == len(table) for name in others}
    tell_unused(f"{path.name}, which hold no numbers", (name for name in others if is_text[name]))
    return {name: numbers(table[name], pl.Float64, path=path, what="a number") for name in others if not is_text[name]}


def _features(table: pl.DataFrame, path: Path) -> DenseFeatures:
    names = [name for name in table.columns if name not in _NOT_FEATURES]
    if not names:
        raise UserError(f"{path} has no feature column", fix="add at least one number per node, for example its degree")
    x = np.empty((len(table), len(names)), dtype=np.float32)
    for number, name in enumerate(names):
        values = numbers(table[name], pl.Float64, path=path, what="a number")
        broken = np.flatnonzero(~(np.abs(values) <= np.finfo(np.float32).max))
        if len(broken):
            raise UserError(
                f"{path}, {row_name(path, int(broken[0]))}, column {name}: {values[broken[0]]} is not a finite float32",
                fix="replace NaN and infinite features, for example by 0",
            )
        x[:, number] = values
    return DenseFeatures(x, "float32")
