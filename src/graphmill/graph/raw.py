"""What every source yields, and the checks that every graph passes before it is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import InvalidInputError, UserError
from graphmill.graph.edge_features import EdgeRows, edge_features_problem
from graphmill.graph.features import STORED_AS, Features, SparseFeatures, csr_problem, not_finite, unsorted_or_repeated
from graphmill.graph.pages import evict
from graphmill.graph.topology import MAX_NODES
from graphmill.graph.typed import RawTypes, raw_types_problem

_EDGES_AT_A_TIME = 2**20  # that are checked: bounds the memory of a check over a mapped file


@dataclass(frozen=True, slots=True, kw_only=True)
class RawGraph:
    """A graph in memory, not yet checked.

    `origin` maps "edge_index", "features", "edge_features" and "types" to where each was read, for errors: file, key,
    column. A task's own class adds what it needs besides nodes, edges and features.
    """

    edge_index: NDArray[np.integer[Any]]  # [2, num_edges]: sources, then destinations
    features: Features  # may have no column: a task that needs one refuses that
    name: str
    source: str
    synthetic: bool
    origin: Mapping[str, str] = field(default_factory=dict)
    edge_features: EdgeRows | None = None
    edge_feature_names: tuple[str, ...] = ()  # one per column; none if there are no edge features
    types: RawTypes | None = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes: as many as have features."""
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
    found = edge_index_problem(raw.edge_index, num_nodes)
    if found is None and raw.edge_index.shape[1] == 0:
        found = ("the graph has no edges", "give at least one edge")
    if found is not None:
        problem, fix = found
        raise refusal(raw, "edge_index", problem, fix=fix)


def edge_index_problem(
    edges: NDArray[Any], num_nodes: int | None, num_targets: int | None = None
) -> tuple[str, str] | None:
    """What is wrong with `edge_index` [2, num_edges] and what to do, or None: of prepared data and of loaders alike.

    `num_nodes`: None where they are not known yet; `num_targets`: where targets are of another type than the sources.
    """
    if edges.ndim != 2 or edges.shape[0] != 2:
        how = ": transpose it, edge_index.T" if edges.ndim == 2 and edges.shape[1] == 2 else ""
        return f"its shape is {list(edges.shape)}", f"give sources and destinations as [2, num_edges]{how}"
    if edges.dtype.kind not in "iu":
        return f"it holds {edges.dtype}", "give node ids as integers"
    if num_nodes is None or edges.shape[1] == 0:
        return None
    ends = (num_nodes, num_nodes if num_targets is None else num_targets)
    column = _first_outside(edges, ends)
    if column is None:
        return None
    last = f"to {ends[0] - 1}" if ends[0] == ends[1] else f"to {ends[0] - 1} (sources) and {ends[1] - 1} (targets)"
    return (
        f"edge {column} is {edges[0, column]} → {edges[1, column]}, and nodes run from 0 {last}",
        "correct or drop that edge, or add the missing nodes (features, label and split of each)",
    )


def _first_outside(edges: NDArray[Any], ends: tuple[int, int]) -> int | None:
    """Number of the first edge that names a node below 0, or from `ends` (of sources, of targets) on."""
    for start in range(0, edges.shape[1], _EDGES_AT_A_TIME):
        block = edges[:, start : start + _EDGES_AT_A_TIME]
        if block.min() < 0 or block[0].max() >= ends[0] or block[1].max() >= ends[1]:
            wrong = (block < 0).any(axis=0) | (block[0] >= ends[0]) | (block[1] >= ends[1])
            return start + int(np.flatnonzero(wrong)[0])
        for row in block:
            evict(row)
    return None


def refuse_wrong_edges(edges: NDArray[Any], num_nodes: int) -> None:
    """An `edge_index` that a call from Python was given: `InvalidInputError` where it does not fit."""
    if found := edge_index_problem(edges, num_nodes):
        problem, fix = found
        raise InvalidInputError(f"edge_index: {problem}", fix=fix)


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


def refuse_no_features(raw: RawGraph) -> None:
    """Raise a `UserError` if nodes have no features: for tasks whose models read nothing else of a node."""
    if raw.features.num_features == 0:
        raise refusal(
            raw, "features", "there are no features", fix="give at least one per node, for example its degree"
        )


def refusal(raw: RawGraph, what: str, problem: str, *, fix: str) -> UserError:
    """The error of a raw graph, with the place where `what` was read."""
    place = raw.origin.get(what, what)
    return UserError(f"{raw.name} ({place}): {problem}", fix=fix)
