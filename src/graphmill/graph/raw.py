"""What every source yields, and the checks that every graph passes before it is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.features import STORED_AS, Features, SparseFeatures, csr_problem, not_finite, unsorted_or_repeated
from graphmill.graph.metadata import SPLIT_CODES
from graphmill.graph.topology import MAX_NODES


@dataclass(frozen=True, slots=True, kw_only=True)
class RawGraph:
    """A graph in memory, not yet checked.

    `origin` maps "edge_index", "features", "labels" and "split" to where each was read, for errors: file, key, column.
    """

    edge_index: NDArray[np.integer[Any]]  # [2, num_edges]: sources, then destinations
    features: Features
    labels: NDArray[np.int64]  # [num_nodes]; -1: unlabelled
    split: NDArray[np.int8]  # [num_nodes]: 0 train, 1 val, 2 test, -1 none
    name: str
    source: str
    synthetic: bool
    class_names: tuple[str, ...] = ()
    split_note: str = "as given"
    origin: Mapping[str, str] = field(default_factory=dict)


def check_raw_graph(raw: RawGraph) -> None:
    """Refuse what cannot be trained on, with a `UserError` that says where it stands and what to do."""
    _check_label_array(raw)
    num_nodes = len(raw.labels)
    if num_nodes == 0:
        raise _refusal(raw, "labels", "the graph has no nodes", fix="give at least one node")
    if num_nodes > MAX_NODES:
        raise _refusal(raw, "labels", f"{num_nodes} nodes, and a store holds 2^32", fix="split the graph")
    _check_edges(raw, num_nodes)
    _check_features(raw, num_nodes)
    _check_split(raw, num_nodes)
    _check_labels(raw)


def _check_edges(raw: RawGraph, num_nodes: int) -> None:
    edges = raw.edge_index
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise _refusal(
            raw,
            "edge_index",
            f"its shape is {list(edges.shape)}",
            fix="give sources and destinations as [2, num_edges]",
        )
    if edges.dtype.kind not in "iu":
        raise _refusal(raw, "edge_index", f"it holds {edges.dtype}", fix="give node ids as integers")
    if edges.shape[1] == 0:
        raise _refusal(raw, "edge_index", "the graph has no edges", fix="give at least one edge")
    if edges.min() >= 0 and edges.max() < num_nodes:
        return
    column = int(np.flatnonzero(((edges < 0) | (edges >= num_nodes)).any(axis=0))[0])
    raise _refusal(
        raw,
        "edge_index",
        f"edge {column} is {edges[0, column]} → {edges[1, column]}, and nodes run from 0 to {num_nodes - 1}",
        fix="correct or drop that edge, or add the missing nodes (features, label and split of each)",
    )


def _check_features(raw: RawGraph, num_nodes: int) -> None:
    features = raw.features
    if isinstance(features, SparseFeatures):
        problem = csr_problem(features.indptr, features.indices, features.num_features)
        problem = problem or unsorted_or_repeated(features.indptr, features.indices)
        if problem is None and len(features.values) != len(features.indices):
            problem = f"{len(features.values)} values for {len(features.indices)} indices"
        if problem:
            raise _refusal(
                raw, "features", problem, fix="write the matrix as CSR with scipy.sparse, sum_duplicates() first"
            )
    elif features.x.ndim != 2 or features.x.dtype != np.dtype(STORED_AS[features.dtype]):
        problem = f"{features.x.dtype} {list(features.x.shape)} given as {features.dtype}"
        raise _refusal(
            raw, "features", problem, fix="give [num_nodes, num_features] as float32, float16 or bfloat16 words"
        )
    if features.num_features == 0:
        raise _refusal(
            raw, "features", "there are no features", fix="give at least one per node, for example its degree"
        )
    if features.num_nodes != num_nodes:
        raise _refusal(
            raw,
            "features",
            f"{features.num_nodes} rows, and there are {num_nodes} labels",
            fix="give one row and one label per node",
        )
    problem = not_finite(features)
    if problem:
        raise _refusal(
            raw, "features", problem, fix="replace NaN and infinite features, for example by 0, or drop the node"
        )


def _check_split(raw: RawGraph, num_nodes: int) -> None:
    split = raw.split
    if split.shape != (num_nodes,):
        raise _refusal(
            raw, "split", f"{list(split.shape)} entries, and there are {num_nodes} nodes", fix="give one per node"
        )
    known = np.array(sorted(SPLIT_CODES.values()))
    unknown = np.flatnonzero(~np.isin(split, known))
    if len(unknown):
        raise _refusal(
            raw, "split", f"node {unknown[0]} has {split[unknown[0]]}", fix="use 0 train, 1 val, 2 test, -1 none"
        )
    if not (split == SPLIT_CODES["train"]).any():
        raise _refusal(
            raw, "split", "no node is in the training split", fix="mark training nodes, or draw a split: --random-split"
        )


def _check_label_array(raw: RawGraph) -> None:
    labels = raw.labels
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise _refusal(
            raw, "labels", f"{labels.dtype} {list(labels.shape)}", fix="give one integer class per node, -1: unlabelled"
        )


def _check_labels(raw: RawGraph) -> None:
    labels = raw.labels
    largest = len(raw.class_names) - 1 if raw.class_names else len(labels) - 1
    outside = np.flatnonzero((labels < -1) | (labels > largest))
    if len(outside):
        node = int(outside[0])
        why = (
            f"there are {largest + 1} class names"
            if raw.class_names
            else f"{len(labels)} nodes cannot show more classes"
        )
        raise _refusal(
            raw,
            "labels",
            f"node {node} has label {labels[node]}, and {why}",
            fix="number classes from 0; -1: unlabelled",
        )
    bare = np.flatnonzero((labels == -1) & (raw.split != SPLIT_CODES["none"]))
    if len(bare):
        name = next(key for key, code in SPLIT_CODES.items() if code == raw.split[bare[0]])
        raise _refusal(
            raw,
            "labels",
            f"node {bare[0]} is in the {name} split and has no label ({len(bare)} such nodes)",
            fix="label it, or take it out of the split",
        )


def _refusal(raw: RawGraph, what: str, problem: str, *, fix: str) -> UserError:
    place = raw.origin.get(what, what)
    return UserError(f"{raw.name} ({place}): {problem}", fix=fix)
