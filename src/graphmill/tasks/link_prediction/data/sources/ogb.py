"""OGB's link sets from their folder, without the ogb package: ogbl-collab, -ppa, -citation2, -wikikg2.

<folder>/raw/{edge,num-node-list,num-edge-list}.csv.gz       training edges
<folder>/raw/{node-feat,edge_weight,edge_year,edge_reltype}.csv.gz   of those that have them
<folder>/split/<kind>/{train,valid,test}.pt                  dicts of arrays that torch.save wrote

Splits are told apart by their keys: edge and edge_neg (a pool that all links of a split share), source_node and
target_node_neg (candidates of each), head, relation, tail with head_neg and tail_neg.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.edge_features import edge_columns
from graphmill.graph.features import DenseFeatures, Features, no_features
from graphmill.graph.saved import read_saved_arrays
from graphmill.graph.splits import SPLITS, Split
from graphmill.graph.tables import count_columns, count_in, read_headerless
from graphmill.graph.typed import RawTypes, Relation
from graphmill.graph.unused import tell_unused
from graphmill.tasks.link_prediction.data.links import (
    JUDGED,
    Candidates,
    GivenCandidates,
    LinkGraph,
    Links,
    SharedCandidates,
)
from graphmill.tasks.link_prediction.data.sources.triples import NODE_TYPE

_FILES: Final[dict[Split, str]] = {"train": "train.pt", "val": "valid.pt", "test": "test.pt"}
_UNDIRECTED: Final = ("ogbl-collab", "ogbl-ppa")  # listed once in edge.csv.gz; OGB adds the inverse edges on reading
_READ: Final = ("edge", "num-node-list", "num-edge-list", "node-feat", "edge_weight", "edge_reltype")
_KEYS: Final = (
    ("edge", "edge_neg"),
    ("source_node", "target_node", "target_node_neg"),
    ("head", "relation", "tail", "head_neg", "tail_neg"),
)
_FIX: Final = "download the dataset again"

Arrays = dict[str, NDArray[Any]]


def is_ogb_links(folder: Path) -> bool:
    """Whether a folder is in this layout."""
    return (folder / "raw/edge.csv.gz").is_file() and bool(list(folder.glob("split/*/train.pt")))


def find_ogb_links(path: Path, dataset: str) -> Path:
    """The folder that holds raw/ and split/: `path` itself or one of the names that OGB gives it."""
    under, short = dataset.replace("-", "_"), dataset.removeprefix("ogbl-")
    for folder in (path, path / under, path / "dataset" / under, path / dataset, path / short):
        if is_ogb_links(folder):
            return folder
    raise UserError(
        f"{path} holds no {dataset}: raw/edge.csv.gz and split/<kind>/train.pt are neither in it nor in {under}/",
        fix="give OGB's folder, unpacked from its zip archive",
    )


def read_ogb_links(folder: Path, dataset: str, name: str, *, undirected: bool | None) -> LinkGraph:
    """Read the folder; `dataset` is OGB's name of it, which says whether its links have direction."""
    raw, kind = folder / "raw", _split_folder(folder / "split")
    num_nodes, num_edges = (count_in(raw / f"num-{what}-list.csv.gz") for what in ("node", "edge"))
    edges = read_headerless(raw / "edge.csv.gz", 2, pl.Int64, what="a node id").T
    if edges.shape[1] != num_edges:
        raise UserError(
            f"{raw / 'edge.csv.gz'} has {edges.shape[1]} edges, and num-edge-list.csv.gz says {num_edges}", fix=_FIX
        )
    saved = {split: read_saved_arrays(kind / file) for split, file in _FILES.items()}
    links = {split: _links(saved[split], kind / _FILES[split]) for split in SPLITS}
    types = _types(raw, num_edges, num_nodes, links)
    has_direction = dataset not in _UNDIRECTED if undirected is None else not undirected
    columns, names = edge_columns(_of_edges(raw, num_edges), place=str(raw))
    if not has_direction:
        edges = np.concatenate([edges, edges[::-1]], axis=1)
        columns = None if columns is None else np.concatenate([columns, columns])
    tell_unused(folder.name, (f"raw/{each.name}" for each in raw.glob("*.gz") if each.name.split(".")[0] not in _READ))
    of_splits = {f"{key} of {_FILES[split]}" for split in SPLITS for key in saved[split] if key not in sum(_KEYS, ())}
    tell_unused(folder.name, of_splits)
    return LinkGraph(
        edge_index=edges,
        features=_features(raw / "node-feat.csv.gz", num_nodes),
        name=name,
        source=f"{dataset}, OGB files" + ("" if has_direction else "; both directions of every message edge"),
        synthetic=False,
        origin={
            "edge_index": str(raw / "edge.csv.gz"),
            "features": str(raw / "node-feat.csv.gz"),
            "types": str(raw / "edge_reltype.csv.gz"),
            "links": str(kind),
            "candidates": str(kind),
        },
        edge_features=columns,
        edge_feature_names=names,
        types=types,
        links=links,
        links_have_direction=has_direction,
        split_note=f"public: {kind.name}",
        num_relations=0 if types is None else len(types.relations),
        candidates={
            split: given for split in JUDGED if (given := _candidates(saved[split], kind / _FILES[split])) is not None
        },
    )


def _links(arrays: Arrays, path: Path) -> Links:
    if "edge" in arrays:
        edge = arrays["edge"]
        if edge.ndim != 2 or edge.shape[1] != 2 or edge.dtype.kind not in "iu":
            raise UserError(f"{path}, key edge: {edge.dtype} {list(edge.shape)}, not pairs of nodes", fix=_FIX)
        return Links.of(edge.T)
    wanted = ("head", "tail", "relation") if "head" in arrays else ("source_node", "target_node")
    if missing := [key for key in wanted if key not in arrays]:
        raise UserError(f"{path} lacks {', '.join(missing)}; it has {', '.join(sorted(arrays))}", fix=_FIX)
    columns = [arrays[key] for key in wanted]
    shapes = {column.shape for column in columns}
    if len(shapes) != 1 or columns[0].ndim != 1 or any(column.dtype.kind not in "iu" for column in columns):
        found = ", ".join(f"{key} {arrays[key].dtype} {list(arrays[key].shape)}" for key in wanted)
        raise UserError(f"{path}: {found}", fix=_FIX)
    return Links.of(np.stack(columns))


def _candidates(arrays: Arrays, path: Path) -> Candidates | None:
    if "edge_neg" in arrays:
        pairs = arrays["edge_neg"]
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise UserError(f"{path}, key edge_neg: {pairs.dtype} {list(pairs.shape)}, not pairs of nodes", fix=_FIX)
        return SharedCandidates(pairs.T)
    if "tail_neg" in arrays:
        return GivenCandidates(arrays["tail_neg"], arrays.get("head_neg"))
    return GivenCandidates(arrays["target_node_neg"]) if "target_node_neg" in arrays else None


def _types(raw: Path, num_edges: int, num_nodes: int, links: dict[Split, Links]) -> RawTypes | None:
    """Relations of the message edges, by number: OGB names them in files of its mapping."""
    path = raw / "edge_reltype.csv.gz"
    if links["train"].relations is None:
        return None
    numbers = read_headerless(path, 1, pl.Int64, what="an integer")[:, 0]
    if len(numbers) != num_edges:
        raise UserError(f"{path} has {len(numbers)} rows for {num_edges} edges", fix=_FIX)
    largest = max(
        int(of.max(initial=0))
        for of in (numbers, *(each.relations for each in links.values() if each.relations is not None))
    )
    return RawTypes(
        node_type=np.zeros(num_nodes, dtype=np.int8),
        node_names=(NODE_TYPE,),
        edge_type=numbers,
        relations=tuple(Relation(NODE_TYPE, str(number), NODE_TYPE) for number in range(largest + 1)),
    )


def _features(path: Path, num_nodes: int) -> Features:
    if not path.is_file():
        return no_features(num_nodes)
    x = read_headerless(path, count_columns(path), pl.Float32, what="a number")
    if len(x) != num_nodes:
        raise UserError(f"{path} has {len(x)} rows, and num-node-list.csv.gz says {num_nodes} nodes", fix=_FIX)
    return DenseFeatures(np.ascontiguousarray(x), "float32")


def _of_edges(raw: Path, num_edges: int) -> Arrays:
    path = raw / "edge_weight.csv.gz"
    if not path.is_file():
        return {}
    weights = read_headerless(path, 1, pl.Float32, what="a number")
    if len(weights) != num_edges:
        raise UserError(f"{path} has {len(weights)} rows for {num_edges} edges", fix=_FIX)
    return {"edge_weight": weights}


def _split_folder(folder: Path) -> Path:
    kinds = sorted(path.parent for path in folder.glob("*/train.pt"))
    if len(kinds) != 1:
        raise UserError(
            f"{folder} must hold one split folder with train.pt, and holds {[path.name for path in kinds]}",
            fix="keep the one that you want, for example split/time",
        )
    return kinds[0]
