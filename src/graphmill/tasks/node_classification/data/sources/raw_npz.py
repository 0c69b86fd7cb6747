"""Raw .npz files of PyG's `Amazon`, `Coauthor` (Shchur et al.'s archives) and `Reddit`."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.archive import npz_keys, read_npz
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures, dense
from graphmill.graph.npz import csr_features
from graphmill.graph.unused import tell_unused
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.sources.labels import class_names_of, integer_labels, random_split

SHCHUR_URL = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
REDDIT_URL = "https://data.dgl.ai/dataset/reddit.zip"
REDDIT_FILES = ("reddit_data.npz", "reddit_graph.npz")
_REDDIT_SPLITS = np.array([-1, 0, 1, 2], dtype=np.int8)  # by node type: 1 train, 2 val, 3 test
_DENSE_FROM = 0.25  # share of non-zero features from which dense rows are the smaller and the faster form


def read_shchur(path: Path, name: str, *, split_seed: int) -> LabelledGraph:
    """Amazon and Coauthor, as PyG reads them: features binarised, self-loops dropped, both directions of every edge.

    There is no public split: one is drawn at random, and metadata says so.
    """
    matrices = [f"{matrix}_{part}" for matrix in ("adj", "attr") for part in ("data", "indices", "indptr", "shape")]
    arrays = read_npz(path, required=(*matrices, "labels"), optional=("class_names",))
    tell_unused(path.name, set(npz_keys(path)) - {*arrays})
    adjacency = _csr(arrays, "adj", path)
    sources = np.repeat(np.arange(adjacency.num_nodes), np.diff(adjacency.indptr))
    edges = np.stack([sources, adjacency.indices])
    edges = edges[:, edges[0] != edges[1]]
    labels = integer_labels(arrays["labels"], place=f"{path}, key labels")
    split, note = random_split(labels, split_seed)
    return LabelledGraph(
        edge_index=np.concatenate([edges, edges[::-1]], axis=1),
        features=_packed(_binarised(_csr(arrays, "attr", path))),
        labels=labels,
        split=split,
        class_names=class_names_of(arrays.get("class_names"), place=f"{path}, key class_names"),
        name=name,
        source=f"{path.name} (Shchur et al. 2018); features binarised, self-loops dropped, edges in both directions",
        synthetic=False,
        split_note=note,
        origin={
            "edge_index": f"{path}, keys adj_*",
            "features": f"{path}, keys attr_*",
            "labels": f"{path}, key labels",
        },
    )


def read_reddit(folder: Path, name: str) -> LabelledGraph:
    """Reddit (Hamilton et al. 2017) in PyG's raw layout: `reddit_data.npz` and `reddit_graph.npz`."""
    data_path, graph_path = (folder / file for file in REDDIT_FILES)
    data = read_npz(data_path, required=("feature", "label", "node_types"))
    tell_unused(data_path.name, set(npz_keys(data_path)) - {*data, "node_ids"})
    labels = integer_labels(data["label"], place=f"{data_path}, key label")
    x, types = data["feature"], data["node_types"]
    if x.ndim != 2 or x.dtype.kind != "f":
        raise UserError(f"{data_path}, key feature: {x.dtype} {list(x.shape)}", fix="give [num_nodes, num_features]")
    if types.shape != labels.shape or types.dtype.kind not in "iu" or not np.isin(types, range(4)).all():
        raise UserError(
            f"{data_path}, key node_types: {types.dtype} {list(types.shape)}, for {len(labels)} nodes",
            fix="give one of 1 train, 2 val, 3 test per node",
        )
    return LabelledGraph(
        edge_index=_coo(graph_path, len(labels)),
        features=dense(x),
        labels=labels,
        split=_REDDIT_SPLITS[types],
        name=name,
        source=f"PyG Reddit raw files {', '.join(REDDIT_FILES)}",
        synthetic=False,
        split_note="public: by day (Hamilton et al. 2017)",
        origin={
            "edge_index": str(graph_path),
            "features": f"{data_path}, key feature",
            "labels": f"{data_path}, key label",
        },
    )


def _coo(path: Path, num_nodes: int) -> NDArray[np.integer[Any]]:
    """`scipy.sparse.save_npz` of a COO matrix, rows being the sources, as PyG reads it."""
    arrays = read_npz(path, required=("row", "col", "shape"))
    row, col, shape = arrays["row"], arrays["col"], arrays["shape"]
    if row.ndim != 1 or row.shape != col.shape or shape.tolist() != [num_nodes, num_nodes]:
        raise UserError(
            f"{path}: {list(row.shape)} rows, {list(col.shape)} columns, shape {shape.tolist()}, for {num_nodes} nodes",
            fix="write a square COO matrix with scipy.sparse.save_npz",
        )
    return np.stack([row, col])


def _csr(arrays: dict[str, NDArray[Any]], matrix: str, path: Path) -> SparseFeatures:
    data, indices, indptr, shape = (arrays[f"{matrix}_{part}"] for part in ("data", "indices", "indptr", "shape"))
    return csr_features(data, indices, indptr, shape, place=f"{path}, keys {matrix}_*")


def _binarised(features: SparseFeatures) -> SparseFeatures:
    values = np.where(features.values > 0, np.float32(1), features.values)
    return SparseFeatures(features.indptr, features.indices, values, features.num_features)


def _packed(features: SparseFeatures) -> Features:
    if len(features.values) < _DENSE_FROM * features.num_nodes * features.num_features:
        return features
    x = np.zeros((features.num_nodes, features.num_features), dtype=np.float32)
    x[np.repeat(np.arange(features.num_nodes), np.diff(features.indptr)), features.indices] = features.values
    return DenseFeatures(x, "float32")
