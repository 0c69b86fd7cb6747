"""OGB's node sets from their CSV folder, without the ogb package (1.3.6 fails on its second load with torch ≥ 2.6).

<folder>/raw/{edge,node-feat,node-label,num-node-list,num-edge-list}.csv.gz
<folder>/split/<kind>/{train,valid,test}.csv.gz
"""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.features import DenseFeatures
from graphmill.graph.splits import SplitName
from graphmill.graph.tables import count_columns, count_in, read_headerless
from graphmill.graph.unused import tell_unused
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.sources.npz import integer_labels
from graphmill.tasks.node_classification.data.sources.splits import split_from_ids

URL = "https://snap.stanford.edu/ogb/data/nodeproppred"
DOWNLOADS = {"ogbn-arxiv": "arxiv", "ogbn-products": "products"}
_SPLIT_KINDS = {"ogbn-arxiv": "time", "ogbn-products": "sales_ranking"}
_MARKS = ("edge.csv.gz", "data.npz", "triplet-type-list.csv.gz")  # each of a layout: tables, binary, heterogeneous
_TABLES = ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list")
_READ = frozenset(f"{table}.csv.gz" for table in _TABLES)
_BOTH_DIRECTIONS = {"ogbn-products"}  # listed once in edge.csv.gz; OGB adds the inverse edges on reading


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
    """Read the CSV folder of a node set with one label per node."""
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
    labels_path, features_path = raw / "node-label.csv.gz", raw / "node-feat.csv.gz"
    labels = integer_labels(
        one_label(read_headerless(labels_path, count_columns(labels_path), pl.Float64, what="a number"), labels_path),
        place=str(labels_path),
    )
    x = read_headerless(features_path, count_columns(features_path), pl.Float32, what="a number")
    if len(labels) != num_nodes or len(x) != num_nodes:
        raise UserError(
            f"{raw}: {len(labels)} labels, {len(x)} rows of features, and num-node-list.csv.gz says {num_nodes} nodes",
            fix="download the dataset again",
        )
    kind = split_folder(folder / "split")
    tell_unused(folder.name, (f"raw/{each.name}" for each in raw.glob("*") if each.name not in _READ))
    return LabelledGraph(
        edge_index=np.concatenate([edges, edges[::-1]], axis=1) if both else edges,
        features=DenseFeatures(np.ascontiguousarray(x), "float32"),
        labels=labels,
        split=read_split(kind, num_nodes),
        name=name,
        source=f"{dataset}, OGB CSV files" + ("; both directions of every edge" if both else ""),
        synthetic=False,
        split_note=f"public: {kind.name}",
        origin={"edge_index": str(raw / "edge.csv.gz"), "features": str(features_path), "labels": str(labels_path)},
    )


def one_label(labels: NDArray[Any], path: Path) -> NDArray[Any]:
    """Labels [num_nodes, 1]; `UserError` of a set with several for each node, as ogbn-proteins has."""
    if labels.shape[1] > 1:
        raise UserError(
            f"{path} has {labels.shape[1]} labels for each node (multi-label), and one class is learnt",
            fix="learn one of them: write a .npz with edge_index, x, split and y, one column of the labels",
        )
    return labels


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
