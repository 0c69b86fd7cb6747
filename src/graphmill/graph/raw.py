"""What every source yields, and the checks that every graph passes before it is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.edge_features import EdgeRows, edge_features_problem
from graphmill.graph.features import STORED_AS, Features, SparseFeatures, csr_problem, not_finite, unsorted_or_repeated
from graphmill.graph.topology import MAX_NODES
from graphmill.graph.typed import RawTypes, raw_types_problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RawGraph:
    """A graph in memory, not yet checked.

    `origin` maps "edge_index", "features", "edge_features" and "types" to where each was read, for errors: file, key,
    column. A task's own class adds what it needs besides nodes, edges and features.
    """

    edge_index: NDArray[np.integer[Any]]  # [2, num_edges]: sources, then destinations
    features: Features
    name: str
    source: str
    synthetic: bool
    origin: Mapping[str, str] = field(default_factory=dict)
    edge_features: EdgeRows | None = None
    edge_feature_names: tuple[str, ...] = ()  # one per column; none if there are no edge features
    types: RawTypes | None = None

    @property
    def num_nodes(self) -> int:
        """As many as have features."""
        return self.features.num_nodes


def check_raw_graph(raw: RawGraph) -> None:
    """Refuse what no store can hold, with a `UserError` that says where it is and what to do."""
    num_nodes = raw.num_nodes
    if num_nodes == 0:
        raise refusal(raw, "features", "the graph has no nodes", fix="give at least one node")
    if num_nodes > MAX_NODES:
        raise refusal(raw, "features", f"{num_nodes} nodes, and a store holds 2^32", fix="split the graph")
    _check_edges(raw, num_nodes)
    _check_features(raw, num_nodes)
    _check_edge_features(raw)
    _check_types(raw)


def _check_edges(raw: RawGraph, num_nodes: int) -> None:
    edges = raw.edge_index
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise refusal(
            raw,
            "edge_index",
            f"its shape is {list(edges.shape)}",
            fix="give sources and destinations as [2, num_edges]",
        )
    if edges.dtype.kind not in "iu":
        raise refusal(raw, "edge_index", f"it holds {edges.dtype}", fix="give node ids as integers")
    if edges.shape[1] == 0:
        raise refusal(raw, "edge_index", "the graph has no edges", fix="give at least one edge")
    if edges.min() >= 0 and edges.max() < num_nodes:
        return
    column = int(np.flatnonzero(((edges < 0) | (edges >= num_nodes)).any(axis=0))[0])
    raise refusal(
        raw,
        "edge_index",
        f"edge {column} is {edges[0, column]} → {edges[1, column]}, and nodes run from 0 to {num_nodes - 1}",
        fix="correct or drop that edge, or add the missing nodes (features, label and split of each)",
    )


def _check_edge_features(raw: RawGraph) -> None:
    if raw.edge_features is None:
        return
    problem = edge_features_problem(raw.edge_features, raw.edge_index.shape[1])
    if problem:
        fix = "give every edge as many finite numbers as the others, as float32 [num_edges, num_edge_features]"
        raise refusal(raw, "edge_features", problem, fix=fix)


def _check_types(raw: RawGraph) -> None:
    if raw.types is not None and (problem := raw_types_problem(raw.types, raw.num_nodes, raw.edge_index)):
        raise refusal(raw, "types", problem, fix="give each node and each edge the number of one of the named types")


def _check_features(raw: RawGraph, num_nodes: int) -> None:
    features = raw.features
    if isinstance(features, SparseFeatures):
        problem = csr_problem(features.indptr, features.indices, features.num_features)
        problem = problem or unsorted_or_repeated(features.indptr, features.indices)
        if problem is None and len(features.values) != len(features.indices):
            problem = f"{len(features.values)} values for {len(features.indices)} indices"
        if problem:
            raise refusal(
                raw, "features", problem, fix="write the matrix as CSR with scipy.sparse, sum_duplicates() first"
            )
    elif features.x.ndim != 2 or features.x.dtype != np.dtype(STORED_AS[features.dtype]):
        problem = f"{features.x.dtype} {list(features.x.shape)} given as {features.dtype}"
        raise refusal(
            raw, "features", problem, fix="give [num_nodes, num_features] as float32, float16 or bfloat16 words"
        )
    if features.num_features == 0:
        raise refusal(
            raw, "features", "there are no features", fix="give at least one per node, for example its degree"
        )
    if features.num_nodes != num_nodes:
        raise refusal(
            raw,
            "features",
            f"{features.num_nodes} rows, and there are {num_nodes} nodes",
            fix="give one row per node",
        )
    problem = not_finite(features)
    if problem:
        raise refusal(
            raw, "features", problem, fix="replace NaN and infinite features, for example by 0, or drop the node"
        )


def refusal(raw: RawGraph, what: str, problem: str, *, fix: str) -> UserError:
    """The error of a raw graph, with the place where `what` was read."""
    place = raw.origin.get(what, what)
    return UserError(f"{raw.name} ({place}): {problem}", fix=fix)
