"""Read a whole GraphStore and check every array."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.arrays import check_checksums, map_array
from graphmill.graph.edge_features import edge_features_problem, in_both_directions
from graphmill.graph.features import (
    DenseFeatures,
    Features,
    SparseFeatures,
    csr_problem,
    not_finite,
    unsorted_or_repeated,
)
from graphmill.graph.header import damaged
from graphmill.graph.metadata import GraphMetadata
from graphmill.graph.topology import (
    Topology,
    keys_from_topology,
    num_isolated,
    other_keys,
    self_loops,
    sorted_unique,
)
from graphmill.graph.typed import column_problem, neighbours_and_types


def verify_graph(folder: Path, metadata: GraphMetadata) -> dict[str, NDArray[Any]]:
    """Checksums first, so that a flipped bit is reported as one; then structure, which a checksum does not cover.

    Returns all arrays, also a task's own, whose checksums are right.
    """
    check_checksums(folder, metadata.arrays)
    arrays = {name: map_array(folder / f"{name}.npy", record) for name, record in metadata.arrays.items()}
    given = _topology(folder, arrays, metadata, prefix="")
    _verify_types(folder, metadata, given, arrays)
    undirected = given if metadata.is_symmetric else _topology(folder, arrays, metadata, prefix="undirected_")
    _verify_directions(folder, metadata, given, undirected)
    _verify_features(folder, metadata, arrays)
    if metadata.edge_features:
        _verify_edge_features(folder, metadata, given, arrays)
    return arrays


def _topology(folder: Path, arrays: dict[str, NDArray[Any]], metadata: GraphMetadata, *, prefix: str) -> Topology:
    topology = Topology(indptr=arrays[f"{prefix}indptr"], indices=arrays[f"{prefix}indices"])
    problem = csr_problem(topology.indptr, topology.indices, metadata.num_nodes)
    entries: NDArray[Any] = topology.indices
    if metadata.edge_types and not prefix:
        entries = neighbours_and_types(entries, arrays["edge_attr"][:, -1], len(metadata.edge_types))
    problem = problem or unsorted_or_repeated(topology.indptr, entries)
    if problem:
        raise damaged(folder / f"{prefix}indices.npy", problem)
    return topology


def _verify_types(folder: Path, metadata: GraphMetadata, given: Topology, arrays: dict[str, NDArray[Any]]) -> None:
    """Check the counts of each type against metadata.json, and that each edge joins nodes that its type joins."""
    if not metadata.edge_types:
        return
    node_type, column = arrays["node_type"], arrays["edge_attr"][:, -1]
    nodes = [each.num_nodes for each in metadata.node_types]
    outside = (node_type < 0) | (node_type >= len(nodes))
    if outside.any() or np.bincount(node_type, minlength=len(nodes)).tolist() != nodes:
        raise damaged(folder / "node_type.npy", f"its nodes of each type are not {nodes}")
    of_ends = np.stack([node_type[given.indices], np.repeat(node_type, np.diff(given.indptr))])
    relations = [each.relation for each in metadata.edge_types]
    problem = column_problem(relations, metadata.node_type_names, of_ends, column)
    edges = [each.num_edges for each in metadata.edge_types]
    if problem is None and np.bincount(column.astype(np.int64), minlength=len(edges)).tolist() != edges:
        problem = f"its edges of each type are not {edges}"
    if problem:
        raise damaged(folder / "edge_attr.npy", problem)


def _verify_directions(folder: Path, metadata: GraphMetadata, given: Topology, undirected: Topology) -> None:
    keys = keys_from_topology(given)
    keys = sorted_unique(keys) if metadata.edge_types else keys
    loops = self_loops(keys, metadata.num_nodes)
    both = other_keys(keys, metadata.num_nodes, given.num_edges)
    if metadata.is_symmetric != (both is None):
        raise damaged(folder / "indices.npy", f"is_symmetric is {metadata.is_symmetric}, and the edges say otherwise")
    if both is not None and not np.array_equal(both, keys_from_topology(undirected)):
        raise damaged(folder / "undirected_indices.npy", "it is not the union of both directions of indices.npy")
    counted = {
        "num_self_loops": len(loops),
        "num_undirected_edges": undirected.num_edges,
        "num_isolated_nodes": num_isolated(undirected, loops),
    }
    _compare_counts(folder, metadata, counted)


def _verify_features(folder: Path, metadata: GraphMetadata, arrays: dict[str, NDArray[Any]]) -> None:
    features: Features
    if metadata.has_sparse_features:
        features = SparseFeatures(arrays["x_indptr"], arrays["x_indices"], arrays["x_values"], metadata.num_features)
        problem = csr_problem(features.indptr, features.indices, features.num_features)
        problem = problem or unsorted_or_repeated(features.indptr, features.indices)
        if problem:
            raise damaged(folder / "x_indices.npy", problem)
    else:
        features = DenseFeatures(arrays["x"], metadata.feature_dtype)
    problem = not_finite(features)
    if problem:
        raise damaged(folder / ("x_values.npy" if metadata.has_sparse_features else "x.npy"), problem)


def _verify_edge_features(
    folder: Path, metadata: GraphMetadata, given: Topology, arrays: dict[str, NDArray[Any]]
) -> None:
    if problem := edge_features_problem(arrays["edge_attr"], metadata.num_edges):
        raise damaged(folder / "edge_attr.npy", problem)
    if metadata.is_symmetric or metadata.edge_types:
        return
    if not np.array_equal(in_both_directions(given)[1], arrays["undirected_edge_ids"]):
        raise damaged(folder / "undirected_edge_ids.npy", "it does not say which edge each direction is")


def _compare_counts(folder: Path, metadata: GraphMetadata, counted: dict[str, int]) -> None:
    for name, count in counted.items():
        said = getattr(metadata, name)
        if said != count:
            raise UserError(
                f"{folder}: metadata.json says {name} = {said}, and the edges say {count}",
                fix="prepare the dataset again: graphmill prepare NAME --force",
            )
