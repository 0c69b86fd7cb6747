"""Triples as text, as FB15k-237 and WN18RR come: train.txt, valid.txt, test.txt of head, relation and tail.

Fields are separated by tabs, without a header; two fields are a source and a target. Nodes are those that are named.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.packed import open_packed
from graphmill.graph.features import no_features
from graphmill.graph.splits import SPLIT_CODES, SPLITS, Split
from graphmill.graph.tables import read_fields, row_name
from graphmill.graph.typed import RawTypes, Relation
from graphmill.graph.unused import tell_unused
from graphmill.tasks.link_prediction.data.splits import JoinedGraph

_NAMES: Final[dict[Split, tuple[str, ...]]] = {
    "train": ("train",),
    "val": ("valid", "val", "validation", "dev"),
    "test": ("test",),
}
_SUFFIXES: Final = (".txt", ".tsv", ".txt.gz", ".tsv.gz")
NODE_TYPE: Final = "node"


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


def triple_files(folder: Path) -> dict[Split, Path] | None:
    """The file of each split, or None if the folder is not in this layout."""
    found: dict[Split, Path] = {}
    for split, names in _NAMES.items():
        paths = [path for name in names for suffix in _SUFFIXES if (path := folder / f"{name}{suffix}").is_file()]
        if not paths:
            return None
        found[split] = paths[0]
    return found


def looks_like_triples(path: Path) -> bool:
    """Whether the first line of a file has two or three fields."""
    with open_packed(path) as file:
        return file.readline(1 << 16).count(b"\t") in (1, 2)


def read_triples(folder: Path, name: str) -> JoinedGraph:
    """Read the files of all splits. `UserError` if a line has other fields than the rest."""
    files = triple_files(folder)
    assert files is not None, "asked before"
    tell_unused(folder.name, (each.name for each in folder.iterdir() if each not in files.values()))
    tables = {split: _fields(path) for split, path in files.items()}
    widths = {table.width for table in tables.values()}
    if len(widths) != 1:
        raise UserError(
            f"{folder}: files have {' and '.join(map(str, sorted(widths)))} fields in a line",
            fix="write head, relation and tail in all of them, or source and target",
        )
    width = widths.pop()
    joined = pl.concat([tables[split] for split in SPLITS])
    (sources, targets), names = numbered([joined.to_series(0), joined.to_series(width - 1)])
    types = None
    if width == 3:
        (relations,), relation_names = numbered([joined.to_series(1)])
        types = RawTypes(
            node_type=np.zeros(len(names), dtype=np.int8),
            node_names=(NODE_TYPE,),
            edge_type=relations,
            relations=tuple(Relation(NODE_TYPE, each, NODE_TYPE) for each in relation_names),
        )
    place = f"{folder}, {', '.join(path.name for path in files.values())}"
    return JoinedGraph(
        edge_index=np.stack([sources, targets]),
        features=no_features(len(names)),
        name=name,
        source=f"triples {folder.name}",
        synthetic=False,
        origin=dict.fromkeys(("edge_index", "types", "split", "names"), place),
        types=types,
        split=np.repeat([SPLIT_CODES[split] for split in SPLITS], [len(tables[split]) for split in SPLITS]).astype(
            np.int8
        ),
        have_direction=True,
        node_names=tuple(names),
        split_note="as given by the files",
    )


def _fields(path: Path) -> pl.DataFrame:
    table = read_fields(path)
    if table.width not in (2, 3):
        raise UserError(
            f"{path} has {table.width} fields in a line", fix="write head, relation and tail, with tabs between them"
        )
    for column, what in zip(table.columns, ("source", "target") if table.width == 2 else _FIELDS, strict=True):
        refuse_empty(path, table[column], what, has_header=False)
    return table


_FIELDS: Final = ("head", "relation", "tail")
