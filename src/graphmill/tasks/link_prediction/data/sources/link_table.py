"""One table of links: source, target and perhaps relation, time, split; beside it perhaps a table of nodes.

A file .csv, .tsv or .parquet, or a folder with `links` and `nodes` so written. Columns may be called by the other usual
names (head, tail; src, dst). `nodes` has the column id, perhaps type, and every other column is a feature, a number in
every row. Without it nodes are those that links name.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.graph.features import Features, dense, no_features
from graphmill.graph.splits import SPLIT_CODES
from graphmill.graph.tables import SUFFIXES, column_names, find_table, numbers, read_table, row_name
from graphmill.graph.typed import RawTypes, named_relations
from graphmill.graph.unused import tell_unused
from graphmill.tasks.link_prediction.data.sources.triples import NODE_TYPE, numbered, refuse_empty
from graphmill.tasks.link_prediction.data.splits import JoinedGraph

_ALSO: Final = {
    "source": ("source", "head", "src"),
    "target": ("target", "tail", "dst"),
    "relation": ("relation", "rel", "predicate"),
    "time": ("time", "timestamp"),
    "split": ("split",),
}
_SPLITS: Final = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test", "none": "none"}


def is_link_table(path: Path) -> bool:
    """Whether a file is a table with a column of sources and one of targets."""
    if not path.is_file() or not path.name.endswith(SUFFIXES):
        return False
    found = _columns(column_names(path))
    return "source" in found and "target" in found


def is_link_folder(folder: Path) -> bool:
    """Whether a folder has a table of links."""
    return any((folder / f"links{suffix}").is_file() for suffix in SUFFIXES)


def read_link_table(path: Path, name: str) -> JoinedGraph:
    """Read a table, or the tables of a folder. `UserError` with the row of what is malformed."""
    links = find_table(path, "links") if path.is_dir() else path
    has_nodes = path.is_dir() and any((path / f"nodes{suffix}").is_file() for suffix in SUFFIXES)
    nodes = find_table(path, "nodes") if has_nodes else None
    present = column_names(links)
    columns = _columns(present)
    for needed in ("source", "target"):
        if needed not in columns:
            raise UserError(
                f"{links} lacks the column {needed} ({did_you_mean(needed, present)})",
                fix="name the columns source, target and, where there are any, relation, time, split",
            )
    tell_unused(links.name, set(present) - set(columns.values()))
    table = read_table(links, list(columns.values()))
    if table.is_empty():
        raise UserError(f"{links} has no row: there are no links", fix="write one row per link below the header")
    ends, names, of_nodes = _ends(links, table, columns, nodes)
    node_type, node_names, features = of_nodes
    return JoinedGraph(
        edge_index=ends,
        features=features,
        name=name,
        source=f"table {links.name}" + (f", {nodes.name}" if nodes else ""),
        synthetic=False,
        origin={
            "edge_index": str(links),
            "types": f"{links}, column {columns.get('relation')}",
            "split": f"{links}, column {columns.get('split')}",
            "times": f"{links}, column {columns.get('time')}",
            "features": str(nodes or links),
            "names": str(nodes or links),
        },
        types=_types(links, table, columns, ends, node_type, node_names),
        split=_codes(links, table[columns["split"]]) if "split" in columns else None,
        times=numbers(table[columns["time"]], pl.Float64, path=links, what="a number") if "time" in columns else None,
        node_names=tuple(names),
        split_note="as given in the table",
    )


def _columns(present: list[str]) -> dict[str, str]:
    """Which column is which."""
    found = {}
    for what, names in _ALSO.items():
        column = next((each for name in names for each in present if each.strip().lower() == name), None)
        if column is not None:
            found[what] = column
    return found


_OfNodes = tuple[NDArray[np.int64], tuple[str, ...], Features]


def _ends(
    links: Path, table: pl.DataFrame, columns: Mapping[str, str], nodes: Path | None
) -> tuple[NDArray[np.int64], pl.Series, _OfNodes]:
    """The ends of links [2, num_links], names of nodes, and what nodes have."""
    both = [table[columns[end]] for end in ("source", "target")]
    for column, what in zip(both, ("source", "target"), strict=True):
        refuse_empty(links, column, what, has_header=True)
    if nodes is None:
        ends, names = numbered(both)
        count = len(names)
        return np.stack(ends), names, (np.zeros(count, dtype=np.int64), (NODE_TYPE,), no_features(count))
    ids, of_nodes = _read_nodes(nodes)
    ends, names = numbered(both, ids)
    for column, found in zip(both, ends, strict=True):
        unknown = np.flatnonzero(found < 0)
        if len(unknown):
            row = int(unknown[0])
            raise UserError(
                f"{links}, {row_name(links, row)}, column {column.name}: node {column[row]!r} is not in {nodes.name}",
                fix="add the node there, or drop the link",
            )
    return np.stack(ends), names, of_nodes


def _read_nodes(path: Path) -> tuple[pl.Series, _OfNodes]:
    present = column_names(path)
    if "id" not in present:
        raise UserError(f"{path} lacks the column id ({did_you_mean('id', present)})", fix="name the nodes' column id")
    table = read_table(path, present)
    if table.is_empty():
        raise UserError(f"{path} has no row: there are no nodes", fix="write one row per node below the header")
    refuse_empty(path, table["id"], "id", has_header=True)
    ids = table["id"].cast(pl.String).str.strip_chars()
    repeated = ~ids.is_first_distinct()
    row = repeated.arg_max()
    if row is not None and repeated[row]:
        raise UserError(
            f"{path}, {row_name(path, row)}, column id: {ids[row]!r} was there before", fix="give every node its own id"
        )
    node_type, node_names = np.zeros(len(ids), dtype=np.int64), (NODE_TYPE,)
    if "type" in present:
        refuse_empty(path, table["type"], "type", has_header=True)
        (node_type,), found = numbered([table["type"]])
        node_names = tuple(found)
    names = [each for each in present if each not in ("id", "type")]
    if not names:
        return ids, (node_type, node_names, no_features(len(ids)))
    columns = [numbers(table[each], pl.Float64, path=path, what="a number") for each in names]
    return ids, (node_type, node_names, dense(np.stack(columns, axis=1)))


def _types(
    links: Path,
    table: pl.DataFrame,
    columns: Mapping[str, str],
    ends: NDArray[np.int64],
    node_type: NDArray[np.int64],
    node_names: tuple[str, ...],
) -> RawTypes | None:
    if "relation" not in columns:
        if len(node_names) > 1:
            tell_unused("nodes", ["type (links have no relation)"])
        return None
    column = table[columns["relation"]]
    refuse_empty(links, column, "relation", has_header=True)
    (relations,), names = numbered([column])
    of_ends: NDArray[Any] = node_type[ends]
    return RawTypes(
        node_type=node_type,
        node_names=node_names,
        edge_type=relations,
        relations=named_relations(list(names), relations, of_ends, node_names),
    )


def _codes(path: Path, column: pl.Series) -> NDArray[np.int8]:
    text = column.cast(pl.String).fill_null("none").str.strip_chars().str.to_lowercase()
    known = text.is_in(list(_SPLITS))
    if not known.all():
        row = int((~known).arg_max() or 0)
        raise UserError(
            f"{path}, {row_name(path, row)}, column {column.name}: {column[row]!r} is not a split",
            fix=did_you_mean(text[row], SPLIT_CODES),
        )
    codes = {name: SPLIT_CODES[split] for name, split in _SPLITS.items()}  # type: ignore[index]
    return text.replace_strict(codes, return_dtype=pl.Int8).to_numpy()
