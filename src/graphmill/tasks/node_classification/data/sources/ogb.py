"""OGB's node sets from their folders, without the ogb package (1.3.6 fails on its second load with torch ≥ 2.6).

In CSV, as ogbn-arxiv comes:
<folder>/raw/{edge,node-feat,node-label,num-node-list,num-edge-list}.csv.gz
<folder>/split/<kind>/{train,valid,test}.csv.gz

ogbn-proteins has edge-feat.csv.gz in place of node-feat.csv.gz: a node's features are the mean of those of its edges.

In its own binary layout, as ogbn-papers100M comes:

<folder>/raw/data.npz         edge_index [2, num_edges], node_feat [num_nodes, num_features], num_nodes_list, …
<folder>/raw/node-label.npz   node_label [num_nodes, 1 or num_labels], NaN: unlabelled
<folder>/split/<kind>/{train,valid,test}.csv.gz

Edges and features are mapped and not read into memory, wherever they come from: of ogbn-papers100M they are 80 GB.
"""

import logging
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.archive import map_npz, npz_keys, read_npz
from graphmill.graph.edge_features import edge_columns
from graphmill.graph.features import DenseFeatures, dense
from graphmill.graph.splits import SplitName, split_from_ids
from graphmill.graph.tables import count_columns, count_in, read_headerless
from graphmill.graph.unused import tell_unused
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.sources.labels import targets_of

_log = logging.getLogger(__name__)

URL = "https://snap.stanford.edu/ogb/data/nodeproppred"
DOWNLOADS = {"ogbn-arxiv": "arxiv", "ogbn-products": "products"}
_SPLIT_KINDS = {"ogbn-arxiv": "time", "ogbn-products": "sales_ranking"}
_MARKS = ("edge.csv.gz", "data.npz", "triplet-type-list.csv.gz")  # each of a layout: tables, binary, heterogeneous
_TABLES = ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list")
_READ = frozenset(f"{table}.csv.gz" for table in (*_TABLES, "edge-feat"))
_BOTH_DIRECTIONS = {
    "ogbn-products",
    "ogbn-proteins",
}  # listed once in edge.csv.gz; OGB adds the inverse edges on reading
_BINARY: Final = "raw/data.npz"
_BINARY_LABELS: Final = "raw/node-label.npz"
_COUNTS: Final = ("num_nodes_list", "num_edges_list")


def archive_members(dataset: str) -> tuple[str, ...]:
    """The files that reading needs, by their names in OGB's zip archive."""
    top, kind = DOWNLOADS[dataset], _SPLIT_KINDS[dataset]
    raw = tuple(f"{top}/raw/{table}.csv.gz" for table in _TABLES)
    return raw + tuple(f"{top}/split/{kind}/{split}.csv.gz" for split in ("train", "valid", "test"))


def find_ogb_folder(path: Path, dataset: str) -> Path:
    """The folder that holds raw/ and split/: `path` itself or one of the names that OGB gives it."""
    candidates = [path, path / dataset.replace("-", "_"), path / "dataset" / dataset.replace("-", "_"), path / dataset]
    if dataset in DOWNLOADS:
        candidates.append(path / DOWNLOADS[dataset])
    short = dataset.removeprefix("ogbn-")
    candidates += [path / short, path / f"{short}-bin"]
    for folder in candidates:
        if any((folder / "raw" / name).is_file() for name in _MARKS):
            return folder
    raise UserError(
        f"{path} holds no {dataset}: none of raw/{{{','.join(_MARKS)}}} is in it, nor in {candidates[1].name}/",
        fix=f"give OGB's folder: split/<kind>/*.csv.gz, and raw/{{{','.join(_TABLES)}}}.csv.gz or"
        " raw/{data,node-label}.npz",
    )


def read_ogb(folder: Path, dataset: str, name: str) -> LabelledGraph:
    """Read the CSV folder of a node set with a class, or several labels, per node."""
    raw = folder / "raw"
    num_nodes = count_in(raw / "num-node-list.csv.gz")
    edges = read_headerless(raw / "edge.csv.gz", 2, pl.Int64, what="a node id").T
    num_edges = count_in(raw / "num-edge-list.csv.gz")
    if edges.shape[1] != num_edges:
        raise UserError(
            f"{raw / 'edge.csv.gz'} has {edges.shape[1]} edges, and num-edge-list.csv.gz says {num_edges}",
            fix="download the dataset again",
        )
    both = dataset in _BOTH_DIRECTIONS
    labels_path = raw / "node-label.csv.gz"
    labels = targets_of(_numbers(labels_path, pl.Float64), place=str(labels_path))
    of_edges = _edge_features(raw, num_edges)
    features_path, x = _node_features(raw, edges, of_edges, num_nodes)
    if len(labels) != num_nodes or len(x) != num_nodes:
        raise UserError(
            f"{raw}: {len(labels)} labels, {len(x)} rows of features, and num-node-list.csv.gz says {num_nodes} nodes",
            fix="download the dataset again",
        )
    kind = split_folder(folder / "split")
    tell_unused(folder.name, (f"raw/{each.name}" for each in raw.glob("*") if each.name not in _READ))
    columns, names = edge_columns({} if of_edges is None else {"edge_attr": of_edges}, place=f"{raw}:")
    return LabelledGraph(
        edge_index=np.concatenate([edges, edges[::-1]], axis=1) if both else edges,
        features=DenseFeatures(np.ascontiguousarray(x), "float32"),
        edge_features=np.concatenate([columns, columns]) if both and columns is not None else columns,
        edge_feature_names=names,
        labels=labels,
        split=read_split(kind, num_nodes),
        name=name,
        source=f"{dataset}, OGB CSV files" + ("; both directions of every edge" if both else ""),
        synthetic=False,
        split_note=f"public: {kind.name}",
        origin={"edge_index": str(raw / "edge.csv.gz"), "features": str(features_path), "labels": str(labels_path)},
    )


def _numbers(path: Path, dtype: type[pl.DataType]) -> NDArray[np.floating[Any]]:
    """All columns of a table without a header, [num_rows, num_columns]."""
    return read_headerless(path, count_columns(path), dtype, what="a number")


def _node_features(
    raw: Path, edges: NDArray[np.int64], of_edges: NDArray[np.float32] | None, num_nodes: int
) -> tuple[Path, NDArray[np.float32]]:
    """Where they are from, and the features of the nodes [num_nodes, num_features]: their own, or means over edges."""
    path = raw / "node-feat.csv.gz"
    if path.is_file() or of_edges is None:
        return path, _numbers(path, pl.Float32)
    _log.info(f"{path} is not there: the features of a node are the mean of those of its edges")
    return raw / "edge-feat.csv.gz", _mean_of_edges(edges, of_edges, num_nodes)


def _edge_features(raw: Path, num_edges: int) -> NDArray[np.float32] | None:
    """Features of the edges as listed [num_edges, num_edge_features]; None: the set has none."""
    path = raw / "edge-feat.csv.gz"
    if not path.is_file():
        return None
    found = _numbers(path, pl.Float32)
    if len(found) != num_edges:
        raise UserError(f"{path} has {len(found)} rows, and there are {num_edges} edges", fix="download it again")
    return found


def _mean_of_edges(edges: NDArray[np.int64], of_edges: NDArray[np.float32], num_nodes: int) -> NDArray[np.float32]:
    """The mean over the edges at each node [num_nodes, num_edge_features]; 0 for a node without one."""
    inside = edges.clip(0, num_nodes - 1)  # an edge to a node that is not there is refused with the graph
    degrees = np.bincount(inside.ravel(), minlength=num_nodes)
    x = np.empty((num_nodes, of_edges.shape[1]), dtype=np.float32)
    for column, values in enumerate(of_edges.T.astype(np.float64)):
        total = sum(np.bincount(ends, weights=values, minlength=num_nodes) for ends in inside)
        x[:, column] = total / degrees.clip(min=1)
    return x


def read_split(kind: Path, num_nodes: int) -> NDArray[np.int8]:
    """Codes [num_nodes] of the split in the folder `kind`: {train,valid,test}.csv.gz."""
    files: dict[SplitName, str] = {"train": "train.csv.gz", "val": "valid.csv.gz", "test": "test.csv.gz"}
    ids = {split: read_headerless(kind / file, 1, pl.Int64, what="an integer")[:, 0] for split, file in files.items()}
    return split_from_ids(ids, num_nodes, place=str(kind))


def split_folder(folder: Path) -> Path:
    """The one folder of a split below `folder`."""
    kinds = sorted(path for path in folder.glob("*") if (path / "train.csv.gz").is_file())
    if len(kinds) != 1:
        raise UserError(
            f"{folder} must hold one split folder with train.csv.gz, and holds {[path.name for path in kinds]}",
            fix="keep the one that you want, for example split/time",
        )
    return kinds[0]


def is_ogb_binary(folder: Path) -> bool:
    """Whether a folder is in this layout."""
    return (folder / _BINARY).is_file()


def read_ogb_binary(folder: Path, dataset: str, name: str, scratch: Path) -> LabelledGraph:
    """Read the folder of a node set with a class, or several labels, per node; unpack into `scratch`."""
    path, labels_path = folder / _BINARY, folder / _BINARY_LABELS
    tell_unused(path.name, set(npz_keys(path)) - {"edge_index", "node_feat", *_COUNTS})
    counts = read_npz(path, required=(), optional=_COUNTS)
    labels = targets_of(
        read_npz(labels_path, required=("node_label",))["node_label"], place=f"{labels_path}, key node_label"
    )
    edges, x = (map_npz(path, key, scratch) for key in ("edge_index", "node_feat"))
    _check_shapes(path, edges, x, labels, counts)
    kind = split_folder(folder / "split")
    return LabelledGraph(
        edge_index=edges,
        features=dense(x),
        labels=labels,
        split=read_split(kind, len(labels)),
        name=name,
        source=f"{dataset}, OGB binary files",
        synthetic=False,
        split_note=f"public: {kind.name}",
        origin={
            "edge_index": f"{path}, key edge_index",
            "features": f"{path}, key node_feat",
            "labels": f"{labels_path}, key node_label",
        },
    )


def _check_shapes(
    path: Path, edges: NDArray[Any], x: NDArray[Any], labels: NDArray[np.integer[Any]], counts: dict[str, NDArray[Any]]
) -> None:
    if x.ndim != 2 or x.dtype.kind not in "fiu":
        raise UserError(
            f"{path}, key node_feat: {x.dtype} {list(x.shape)}", fix="give numbers [num_nodes, num_features]"
        )
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise UserError(f"{path}, key edge_index: its shape is {list(edges.shape)}", fix="give [2, num_edges]")
    found = {"num_nodes_list": {len(x), len(labels)}, "num_edges_list": {edges.shape[1]}}
    if len(x) != len(labels):
        raise UserError(
            f"{path}: {len(labels)} labels, and {len(x)} rows of features", fix="download the dataset again"
        )
    for key, said in counts.items():
        if said.reshape(-1).tolist() != sorted(found[key]):
            raise UserError(
                f"{path}: {key} says {said.reshape(-1).tolist()[:5]}, and there are {sorted(found[key])[0]}",
                fix="download the dataset again: it should hold one graph",
            )
