"""Write the arrays of a graph, and whole stores or none."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.files import remove_leftovers, replacing_folder
from graphmill.graph.arrays import write_array
from graphmill.graph.edge_features import in_both_directions
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures
from graphmill.graph.header import ArrayRecord
from graphmill.graph.metadata import GraphMetadata
from graphmill.graph.raw import RawGraph
from graphmill.graph.statistics import scales_differ
from graphmill.graph.topology import (
    EdgeIds,
    EdgeKeys,
    Topology,
    edge_keys,
    index_dtype,
    num_isolated,
    other_keys,
    self_loops,
    topology_from_keys,
    topology_with_edge_ids,
)
from graphmill.graph.typed import (
    EdgeType,
    NodeType,
    column_names,
    type_dtype,
    typed_topology,
    with_type_column,
)


@contextmanager
def new_store(path: Path) -> Iterator[Path]:
    """A temporary folder to write a store into, which then replaces the one at `path`, whole or not at all.

    Leftovers of writers that were killed are removed.
    """
    if path.is_file():  # one look: another writer may be exchanging the folder
        raise UserError(
            f"{path} is a file, and prepared data are a folder",
            fix="move it away, or give another --dataset-root or name",
        )
    try:
        remove_leftovers(path)
        with replacing_folder(path) as temporary:
            yield temporary
    except OSError as error:
        raise UserError(
            f"{path}: the prepared data cannot be written: {error.strerror or error}",
            fix="free some space or choose another place with --dataset-root",
        ) from error


def write_graph(raw: RawGraph, folder: Path, kind: str) -> GraphMetadata:
    """Build the topologies of a graph that was checked, and write its arrays. The metadata are not sealed yet."""
    num_nodes = raw.num_nodes
    room = np.empty(2 * raw.edge_index.shape[1], dtype=np.uint64)  # for the keys of both directions, sorted in place
    keys = edge_keys(raw.edge_index, num_nodes, room)
    given, edge_ids = _given(raw, keys)
    records = _write_topology(folder, given, prefix="")
    loops = self_loops(keys, num_nodes)
    both = other_keys(keys, num_nodes, given.num_edges, room)
    undirected = given if (is_symmetric := both is None) else topology_from_keys(both, num_nodes)
    del keys, both, room
    if not is_symmetric:
        records |= _write_topology(folder, undirected, prefix="undirected_")
    records |= write_all(folder, _feature_arrays(raw.features))
    arrays, types = _edge_arrays(raw, given, edge_ids, is_symmetric=is_symmetric), _types_of(raw, edge_ids)
    records |= write_all(folder, arrays)
    if raw.types is not None:
        node_type = raw.types.node_type.astype(type_dtype(len(raw.types.node_names)))
        records |= write_all(folder, {"node_type": node_type})
    return GraphMetadata(
        kind=kind,
        name=raw.name,
        source=raw.source,
        synthetic=raw.synthetic,
        num_nodes=num_nodes,
        num_edges=given.num_edges,
        num_undirected_edges=undirected.num_edges,
        num_features=raw.features.num_features,
        feature_dtype="float32" if isinstance(raw.features, SparseFeatures) else raw.features.dtype,
        scales_differ=isinstance(raw.features, DenseFeatures) and scales_differ(raw.features),
        is_symmetric=is_symmetric,
        num_duplicate_edges=raw.edge_index.shape[1] - given.num_edges,
        num_isolated_nodes=num_isolated(undirected, loops),
        num_self_loops=len(loops),
        edge_features=raw.edge_feature_names if raw.types is None else column_names(raw.edge_feature_names),
        arrays=records,
        **types,
    )


def _given(raw: RawGraph, keys: EdgeKeys) -> tuple[Topology, EdgeIds | None]:
    """The topology as given, and which edges its entries are, where those carry anything."""
    if raw.types is not None:
        return typed_topology(raw.edge_index, raw.types.edge_type, raw.num_nodes)
    edge_ids = None if raw.edge_features is None else topology_with_edge_ids(raw.edge_index, raw.num_nodes)[1]
    return topology_from_keys(keys, raw.num_nodes), edge_ids


def _feature_arrays(features: Features) -> dict[str, NDArray[Any]]:
    if isinstance(features, SparseFeatures):
        return {"x_indptr": features.indptr, "x_indices": features.indices, "x_values": features.values}
    return {"x": features.x}


def _edge_arrays(
    raw: RawGraph, given: Topology, edge_ids: EdgeIds | None, *, is_symmetric: bool
) -> dict[str, NDArray[Any]]:
    """Features of edges in the order of the topology; of repeated edges those of the first."""
    if edge_ids is None:
        return {}
    values = None if raw.edge_features is None else raw.edge_features[edge_ids]
    if raw.types is not None:
        return {"edge_attr": with_type_column(values, raw.types.edge_type[edge_ids])}
    assert values is not None, "else there are no ids"
    arrays: dict[str, NDArray[Any]] = {"edge_attr": values}
    if not is_symmetric:
        entries = in_both_directions(given)[1]
        arrays["undirected_edge_ids"] = entries.astype(index_dtype(given.num_edges))
    return arrays


def _types_of(raw: RawGraph, edge_ids: EdgeIds | None) -> dict[str, Any]:
    """Types as metadata have them; none for a graph without types."""
    types = raw.types
    if types is None:
        return {}
    nodes = np.bincount(types.node_type, minlength=len(types.node_names)).tolist()
    edges = np.bincount(types.edge_type[edge_ids], minlength=len(types.relations)).tolist()
    return {
        "node_types": tuple(
            NodeType(name=name, num_nodes=count, columns=columns)
            for name, count, columns in zip(types.node_names, nodes, types.columns or [None] * len(nodes), strict=True)
        ),
        "edge_types": tuple(
            EdgeType(source=each.source, name=each.name, target=each.target, num_edges=count)
            for each, count in zip(types.relations, edges, strict=True)
        ),
    }


def _write_topology(folder: Path, topology: Topology, *, prefix: str) -> dict[str, ArrayRecord]:
    return write_all(folder, {f"{prefix}indptr": topology.indptr, f"{prefix}indices": topology.indices})


def write_all(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, ArrayRecord]:
    """Write each array to <name>.npy."""
    return {name: write_array(folder / f"{name}.npy", array) for name, array in arrays.items()}
