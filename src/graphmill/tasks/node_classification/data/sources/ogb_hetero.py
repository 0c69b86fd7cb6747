"""OGB's heterogeneous node sets from their CSV folder, as ogbn-mag comes.

<folder>/raw/{num-node-dict,triplet-type-list}.csv.gz           node types with their counts; the edge types
<folder>/raw/relations/S___R___T/{edge,num-edge-list}.csv.gz    edges, counted within their types
<folder>/raw/node-feat/TYPE/node-feat.csv.gz                    of the types that have features
<folder>/raw/node-label/TYPE/node-label.csv.gz
<folder>/split/<kind>/TYPE/{train,valid,test}.csv.gz
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.packed import open_packed
from graphmill.graph.arrays import UNREADABLE, reason
from graphmill.graph.splits import SPLIT_CODES, SplitName
from graphmill.graph.tables import count_columns, count_in, read_headerless
from graphmill.graph.unused import tell_unused
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.sources.hetero import from_hetero
from graphmill.tasks.node_classification.data.sources.ogb import read_split

TRIPLETS: Final = "raw/triplet-type-list.csv.gz"
_COUNTS: Final = "raw/num-node-dict.csv.gz"
_SAID_ELSEWHERE: Final = ("edge_reltype", "nodetype-has-feat", "nodetype-has-label", "nodetype-has-split")
_SPLITS: tuple[SplitName, ...] = ("train", "val", "test")


class _Of(dict[str, Any]):
    """What one type of nodes or edges has, by name, as PyG's storages give it."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class _Types(dict[Any, _Of]):
    """Nodes and edges by type, in the form in which `from_hetero` reads a `HeteroData`, which would need PyG."""

    node_types: tuple[str, ...] = ()
    edge_types: tuple[tuple[str, str, str], ...] = ()


def is_ogb_hetero(folder: Path) -> bool:
    """Whether a folder is in this layout."""
    return (folder / TRIPLETS).is_file()


def read_ogb_hetero(folder: Path, dataset: str, name: str) -> LabelledGraph:
    """A typed graph: every type of nodes and edges, the classes of the one type that has labels."""
    read = {folder / TRIPLETS, folder / _COUNTS}
    data, counts = _Types(), _counts(folder / _COUNTS)
    data.node_types, data.edge_types = tuple(counts), tuple(_triplets(folder / TRIPLETS, counts))
    for kind, count in counts.items():
        data[kind] = _nodes_of(folder / "raw", kind, count, read)
    for relation in data.edge_types:
        data[relation] = _Of(edge_index=_edges(folder / "raw/relations" / "___".join(relation), read))
    note = _add_splits(folder / "split", data, read)
    others = {path for path in folder.glob("*/**/*.csv.gz") if not path.name.startswith(_SAID_ELSEWHERE)} - read
    tell_unused(folder.name, (str(path.relative_to(folder)) for path in others))
    raw = from_hetero(data, name=name, source=f"{dataset}, OGB CSV files")
    return replace(raw, split_note=note)


def _counts(path: Path) -> dict[str, int]:
    """Number of nodes of each type."""
    names, counts = [*_words(path), [], []][:2]
    if not names or len(names) != len(counts) or not all(count.isdigit() for count in counts):
        raise UserError(f"{path} does not name types and count their nodes", fix="download the dataset again")
    return dict(zip(names, map(int, counts), strict=True))


def _triplets(path: Path, node_types: Collection[str]) -> list[tuple[str, str, str]]:
    found = [(row[0], row[1], row[2]) for row in _words(path) if len(row) == 3]
    strange = [row for row in found if not {row[0], row[2]} <= set(node_types)]
    if strange or not found:
        raise UserError(
            f"{path}: {strange[0] if strange else 'nothing'} is no relation of {', '.join(node_types)}",
            fix="download the dataset again",
        )
    return found


def _nodes_of(raw: Path, kind: str, count: int, read: set[Path]) -> _Of:
    import torch

    found = _Of(num_nodes=count)
    features, labels = raw / f"node-feat/{kind}/node-feat.csv.gz", raw / f"node-label/{kind}/node-label.csv.gz"
    for key, path, dtype in (("x", features, pl.Float32), ("y", labels, pl.Float64)):
        if not path.is_file():
            continue
        read.add(path)
        values = read_headerless(path, count_columns(path), dtype, what="a number")
        if len(values) != count:
            raise UserError(
                f"{path} has {len(values)} rows, and there are {count} nodes of {kind}", fix="download it again"
            )
        found[key] = torch.from_numpy(np.ascontiguousarray(values)) if key == "x" else values
    return found


def _edges(folder: Path, read: set[Path]) -> NDArray[np.int64]:
    path, said = folder / "edge.csv.gz", folder / "num-edge-list.csv.gz"
    read |= {path, said}
    edges = read_headerless(path, 2, pl.Int64, what="a node id").T
    if edges.shape[1] != count_in(said):
        raise UserError(
            f"{path} has {edges.shape[1]} edges, and {said.name} says {count_in(said)}",
            fix="download the dataset again",
        )
    return edges


def _add_splits(folder: Path, data: _Types, read: set[Path]) -> str:
    """Masks of the types that have a split; what it is called."""
    found = {kind: sorted(folder.glob(f"*/{kind}/train.csv.gz")) for kind in data.node_types}
    kinds = {path.parents[1].name for paths in found.values() for path in paths}
    if len(kinds) != 1:
        raise UserError(
            f"{folder} must hold one split, and holds {sorted(kinds)}", fix="keep the one that you want: split/time"
        )
    for kind, paths in found.items():
        for path in paths:
            read.update(path.parent / f"{name}.csv.gz" for name in ("train", "valid", "test"))
            codes = read_split(path.parent, data[kind]["num_nodes"])
            data[kind].update({f"{name}_mask": codes == SPLIT_CODES[name] for name in _SPLITS})
    return f"public: {kinds.pop()}"


def _words(path: Path) -> list[list[str]]:
    try:
        with open_packed(path) as file:
            return [line.decode().strip().split(",") for line in file if line.strip()]
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read: {reason(error)}", fix="download the dataset again") from None
