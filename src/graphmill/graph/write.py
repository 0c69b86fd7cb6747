"""Write a GraphStore, whole or not at all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import graphmill
from graphmill.base.errors import UserError
from graphmill.base.files import remove_leftovers, replacing_folder
from graphmill.graph.arrays import ArrayRecord, write_array
from graphmill.graph.features import Features, SparseFeatures
from graphmill.graph.metadata import SPLIT_CODES, StoreMetadata, seal, write_metadata
from graphmill.graph.raw import RawGraph, check_raw_graph
from graphmill.graph.topology import (
    Topology,
    edge_keys,
    num_isolated,
    self_loops,
    topology_from_keys,
    undirected_keys,
)


def write_checked(raw: RawGraph, path: Path) -> StoreMetadata:
    """Check `raw` and write it to the folder `path`, replacing a store that is there."""
    check_raw_graph(raw)
    if path.exists() and not path.is_dir():
        raise UserError(
            f"{path} is a file, and a GraphStore is a folder",
            fix="move it away, or give another --dataset-root or name",
        )
    try:
        remove_leftovers(path)
        with replacing_folder(path) as temporary:
            metadata = seal(_write_arrays(raw, temporary))
            write_metadata(temporary, metadata)
    except OSError as error:
        raise UserError(
            f"{path}: the store cannot be written: {error.strerror or error}",
            fix="free some space or choose another place with --dataset-root",
        ) from error
    return metadata


def _write_arrays(raw: RawGraph, folder: Path) -> StoreMetadata:
    num_nodes = len(raw.labels)
    keys = edge_keys(raw.edge_index, num_nodes)
    given = topology_from_keys(keys, num_nodes)
    records = _write_topology(folder, given, prefix="")
    loops = self_loops(keys, num_nodes)
    both = undirected_keys(keys, num_nodes)
    del keys
    undirected = given if both is None else topology_from_keys(both, num_nodes)
    if both is not None:
        records |= _write_topology(folder, undirected, prefix="undirected_")
    records |= _write_all(folder, _feature_arrays(raw.features))
    records |= _write_all(folder, {"y": raw.labels.astype(np.int64), "split": raw.split.astype(np.int8)})
    return StoreMetadata(
        name=raw.name,
        source=raw.source,
        synthetic=raw.synthetic,
        split=raw.split_note,
        num_nodes=num_nodes,
        num_edges=given.num_edges,
        num_undirected_edges=undirected.num_edges,
        num_features=raw.features.num_features,
        num_classes=len(raw.class_names) or int(raw.labels.max()) + 1,
        class_names=raw.class_names,
        feature_dtype="float32" if isinstance(raw.features, SparseFeatures) else raw.features.dtype,
        is_symmetric=both is None,
        num_duplicate_edges=raw.edge_index.shape[1] - given.num_edges,
        num_isolated_nodes=num_isolated(undirected, loops),
        num_self_loops=len(loops),
        splits={name: int(np.count_nonzero(raw.split == code)) for name, code in SPLIT_CODES.items()},
        arrays=records,
        created_by=f"graphmill {graphmill.__version__}",
    )


def _feature_arrays(features: Features) -> dict[str, NDArray[Any]]:
    if isinstance(features, SparseFeatures):
        return {"x_indptr": features.indptr, "x_indices": features.indices, "x_values": features.values}
    return {"x": features.x}


def _write_topology(folder: Path, topology: Topology, *, prefix: str) -> dict[str, ArrayRecord]:
    return _write_all(folder, {f"{prefix}indptr": topology.indptr, f"{prefix}indices": topology.indices})


def _write_all(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, ArrayRecord]:
    return {name: write_array(folder / f"{name}.npy", array) for name, array in arrays.items()}
