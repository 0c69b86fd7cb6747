"""Facts about a prepared graph, for `graphmill inspect`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.features import SparseFeatures
from graphmill.graph.splits import SPLIT_CODES
from graphmill.spec.targets import TARGET
from graphmill.tasks.node_classification.data.classes import edge_homophily
from graphmill.tasks.node_classification.data.labelled import is_labelled
from graphmill.tasks.node_classification.data.store import LabelledGraphStore

QUANTILES = {"min": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99, "max": 1.0}

_BLOCK = 2**22


def describe(store: LabelledGraphStore) -> dict[str, Any]:
    """Counts, degrees, labels, splits, homophily, feature density and bytes, as plain JSON values."""
    metadata = store.metadata
    undirected = store.topology(undirected=True)
    return {
        "name": metadata.name,
        "path": str(store.path),
        "source": metadata.source,
        "synthetic": metadata.synthetic,
        "checksum": metadata.checksum,
        "created_by": metadata.created_by,
        "num_nodes": metadata.num_nodes,
        "num_edges": metadata.num_edges,
        "num_undirected_edges": metadata.num_undirected_edges,
        "is_symmetric": metadata.is_symmetric,
        "num_duplicate_edges": metadata.num_duplicate_edges,
        "num_isolated_nodes": metadata.num_isolated_nodes,
        "num_self_loops": metadata.num_self_loops,
        "in_degree": _quantiles(np.diff(store.topology(undirected=False).indptr)),
        "undirected_degree": _quantiles(np.diff(undirected.indptr)),
        "num_features": metadata.num_features,
        "features": _features(store),
        "edge_features": list(metadata.edge_features),
        **({} if metadata.target_kind == "class" else {TARGET: metadata.target_kind}),
        "num_classes": metadata.num_classes,
        "labels": _labels(store),
        "split": metadata.split,
        "splits": {name: metadata.splits[name] for name in SPLIT_CODES},
        "edge_homophily": edge_homophily(undirected, store.labels) if metadata.target_kind == "class" else None,
        "bytes": {name: record.bytes for name, record in sorted(metadata.arrays.items())},
        "total_bytes": sum(record.bytes for record in metadata.arrays.values()),
    }


def _quantiles(degrees: NDArray[np.int64]) -> dict[str, float]:
    values = np.quantile(degrees, list(QUANTILES.values()), method="lower")
    return {"mean": float(degrees.mean())} | {name: int(value) for name, value in zip(QUANTILES, values, strict=True)}


def _features(store: LabelledGraphStore) -> dict[str, Any]:
    features = store.features
    num_cells = store.metadata.num_nodes * store.metadata.num_features
    if isinstance(features, SparseFeatures):
        num_stored = len(features.values)
        num_empty = int(np.count_nonzero(np.diff(features.indptr) == 0))
        return {"form": "sparse", "dtype": "float32", "density": num_stored / num_cells, "num_empty_rows": num_empty}
    num_nonzero = num_empty = 0
    step = max(1, _BLOCK // store.metadata.num_features)
    for start in range(0, store.metadata.num_nodes, step):
        nonzero = np.count_nonzero(features.x[start : start + step], axis=1)
        num_nonzero += int(nonzero.sum())
        num_empty += int(np.count_nonzero(nonzero == 0))
    return {"form": "dense", "dtype": features.dtype, "density": num_nonzero / num_cells, "num_empty_rows": num_empty}


def _labels(store: LabelledGraphStore) -> dict[str, int]:
    """How many nodes have each label, by class name if there are names."""
    labels, metadata = store.labels, store.metadata
    is_known = is_labelled(labels)
    if metadata.target_kind == "labels":
        counts = np.count_nonzero(labels == 1, axis=0)
    else:
        counts = np.bincount(labels[is_known], minlength=metadata.num_classes)
    names = metadata.class_names or tuple(map(str, range(metadata.num_classes)))
    histogram = {name: int(count) for name, count in zip(names, counts, strict=True)}
    num_unlabelled = int(np.count_nonzero(~is_known))
    return histogram | ({"(unlabelled)": num_unlabelled} if num_unlabelled else {})
