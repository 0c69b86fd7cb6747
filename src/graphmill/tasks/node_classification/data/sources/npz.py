"""One .npz file: `edge_index`, `y`, features dense (`x`) or CSR (`x_data x_indices x_indptr x_shape`), and a split.

`y` is a class per node [num_nodes], or 0 and 1 of each of several labels [num_nodes, num_labels]. Without `y` and split
it is a graph without labels.

`edge_weight` [num_edges] and `edge_attr` [num_edges, any number] are features of edges.

The split is `train_mask val_mask test_mask` or `split` (codes 0 train, 1 val, 2 test, -1 none, or those names).
`class_names` and a boolean `unlabelled` may be there, and types of edges and nodes (`graph/npz.py`). Everything else in
the file is not used, and a message says so.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.archive import MAPPED, npz_keys, read_npz
from graphmill.graph.edge_features import edge_columns
from graphmill.graph.npz import FEATURE_KEYS, TYPE_KEYS, npz_features, types_in
from graphmill.graph.splits import MASK_KEYS, split_of_archive
from graphmill.graph.unused import tell_unused
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.sources.labels import class_names_of, no_labels, random_split, targets_of

_EDGES = ("edge_weight", "edge_attr")
_OPTIONAL = (*FEATURE_KEYS, *_EDGES, *MASK_KEYS, "split", "class_names", "unlabelled")

Arrays = dict[str, NDArray[Any]]


def is_graph_npz(path: Path) -> bool:
    """Whether the archive is in this layout."""
    return path.suffix == ".npz" and "edge_index" in npz_keys(path)


def read_npz_graph(path: Path, name: str, *, scratch: Path, split_seed: int | None = None) -> LabelledGraph:
    """Read the file; large edges and features are mapped, unpacked into `scratch` where they are compressed.

    With `split_seed` the split is drawn at random, whatever the file says.
    """
    optional = ("y", *_OPTIONAL, *TYPE_KEYS)
    arrays = read_npz(path, required=("edge_index",), optional=optional, mapped=MAPPED, scratch=scratch)
    features = npz_features(arrays, path)
    labels, split, note = _labels_and_split(arrays, features.num_nodes, path, split_seed)
    types, read = types_in(arrays, len(labels), place=str(path))
    of_labels = set() if "y" in arrays else {"class_names", "unlabelled"}
    tell_unused(path.name, set(npz_keys(path)) - {"edge_index", "y", *_OPTIONAL, *read} | of_labels & set(arrays))
    of_edges, names = edge_columns({key: arrays[key] for key in _EDGES if key in arrays}, place=f"{path}, key")
    names_of_classes = arrays.get("class_names") if "y" in arrays else None
    return LabelledGraph(
        edge_index=arrays["edge_index"],
        features=features,
        edge_features=of_edges,
        edge_feature_names=names,
        types=types,
        labels=labels,
        split=split,
        class_names=class_names_of(names_of_classes, place=f"{path}, key class_names"),
        name=name,
        source=f"npz file {path.name}",
        synthetic=False,
        split_note=note,
        origin={
            "edge_index": f"{path}, key edge_index",
            "features": f"{path}, key {'x' if 'x' in arrays else 'x_indptr, x_indices, x_data'}",
            "edge_features": f"{path}, key {' and '.join(key for key in _EDGES if key in arrays)}",
            "types": f"{path}, keys {', '.join(sorted(read))}",
            "labels": f"{path}, key y",
            "split": f"{path}, key {'split' if 'split' in arrays else '*_mask'}",
        },
    )


def _labels_and_split(
    arrays: Arrays, num_nodes: int, path: Path, split_seed: int | None
) -> tuple[NDArray[np.integer[Any]], NDArray[np.int8], str]:
    """Label and split of each node, and who drew the split; a file without y has no labels."""
    labels: NDArray[np.integer[Any]]
    labels, split, note = no_labels(num_nodes)
    if "y" in arrays:
        labels = _labels(arrays, path)
    if num_nodes != len(labels):  # before a mask is compared with either
        raise UserError(
            f"{path}: key y has {len(labels)} labels, and the features have {num_nodes} rows",
            fix="give one of each per node; a label of -1: unlabelled",
        )
    if split_seed is not None:
        return labels, *random_split(labels, split_seed)
    if "y" in arrays or "split" in arrays or set(MASK_KEYS) & set(arrays):
        return labels, *split_of_archive(arrays, len(labels), path)
    return labels, split, note


def _labels(arrays: Arrays, path: Path) -> NDArray[np.integer[Any]]:
    labels = targets_of(arrays["y"], place=f"{path}, key y")
    unlabelled = arrays.get("unlabelled")
    if unlabelled is None:
        return labels
    if unlabelled.shape != labels.shape[:1] or unlabelled.dtype != np.bool_:
        raise UserError(
            f"{path}, key unlabelled: {unlabelled.dtype} {list(unlabelled.shape)} for {len(labels)} nodes",
            fix="give one boolean per node, or leave the key out and write -1 in y",
        )
    labels[unlabelled] = -1
    return labels
