"""A PyG `HeteroData` as a typed graph: one space of node ids, types one after the other, as its `to_homogeneous`.

Features of a type stand in columns of their own, so that a first layer has weights of its own for each type, whatever
their widths. A type without features has one column, which is 1: its rows would be empty otherwise.
"""

import logging
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.edge_features import EdgeRows, edge_columns
from graphmill.graph.features import Features, SparseFeatures, sparse, to_float32
from graphmill.graph.splits import SPLIT_CODES, SplitName, first_columns, split_from_masks
from graphmill.graph.tensors import as_numpy, edge_index_of, features_of
from graphmill.graph.typed import RawTypes, Relation
from graphmill.graph.unused import tell_unused
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.sources.labels import random_split, targets_of

_log = logging.getLogger(__name__)

_SPLITS: tuple[SplitName, ...] = ("train", "val", "test")
_EDGE_FEATURES = ("edge_weight", "edge_attr")


def from_hetero(
    data: Any,  # noqa: ANN401  # a torch_geometric.data.HeteroData
    *,
    name: str,
    source: str,
    synthetic: bool = False,
    split_seed: int | None = None,
) -> LabelledGraph:
    """A typed graph; the nodes of one type have classes, or labels: that with `y`, or with `train_mask` of several.

    With `split_seed` the split is drawn at random among them, whatever the masks say.
    """
    counts = [int(data[each].num_nodes) for each in data.node_types]
    starts = [0, *accumulate(counts)]
    labelled = _labelled_type(data)
    begin, count = starts[data.node_types.index(labelled)], int(data[labelled].num_nodes)
    own = targets_of(as_numpy(data[labelled].y), place=f"data[{labelled!r}].y")
    labels = np.full((starts[-1], *own.shape[1:]), -1, own.dtype)
    split = np.full(starts[-1], SPLIT_CODES["none"], np.int8)
    labels[begin : begin + count] = own
    if split_seed is None:
        split[begin : begin + count], note = _split(data[labelled], labelled, count)
    else:
        split, note = random_split(labels, split_seed)
    edges = [_edges_of(data, each, dict(zip(data.node_types, starts, strict=False))) for each in data.edge_types]
    features, columns = _features(data, counts)
    of_edges, names = _edge_features(data, [each.shape[1] for each in edges])
    return LabelledGraph(
        edge_index=np.concatenate(edges, axis=1),
        features=features,
        edge_features=of_edges,
        edge_feature_names=names,
        types=RawTypes(
            node_type=np.repeat(np.arange(len(counts)), counts),
            node_names=tuple(data.node_types),
            edge_type=np.repeat(np.arange(len(edges)), [each.shape[1] for each in edges]),
            relations=tuple(Relation(*each) for each in data.edge_types),
            columns=columns,
        ),
        labels=labels,
        split=split,
        name=name,
        source=source,
        synthetic=synthetic,
        split_note=note,
        origin={"edge_index": "edge_index of the edge types", "features": "x", "labels": f"data[{labelled!r}].y"},
    )


def _labelled_type(data: Any) -> str:  # noqa: ANN401
    """The type of nodes that are classified."""
    with_y = [each for each in data.node_types if "y" in data[each]]
    chosen = with_y if len(with_y) == 1 else [each for each in with_y if "train_mask" in data[each]]
    if len(chosen) != 1:
        raise UserError(
            f"the HeteroData has y for {', '.join(with_y) or 'no node type'}, and the nodes of one type are classified",
            fix="set y for one type of nodes; where several have it, train_mask for the one that is meant",
        )
    if len(with_y) > 1:
        tell_unused("the HeteroData", [f"y of {each}" for each in with_y if each != chosen[0]])
    return str(chosen[0])


def _split(store: Any, labelled: str, count: int) -> tuple[NDArray[np.int8], str]:  # noqa: ANN401
    given = {name: as_numpy(store[f"{name}_mask"]) for name in _SPLITS if f"{name}_mask" in store}
    masks, note = first_columns(given)
    if "train" not in masks:
        raise UserError(
            f"the {labelled} nodes of the HeteroData have no train_mask",
            fix="set it (and val_mask, test_mask), or split at random: --random-split",
        )
    return split_from_masks(masks, count, place=f"data[{labelled!r}].*_mask"), f"as given by the masks{note}"


def _edges_of(data: Any, relation: tuple[str, str, str], starts: dict[str, int]) -> NDArray[np.int64]:  # noqa: ANN401
    """[2, num_edges] in the one space of ids. An edge outside its types is refused here: there it would be another."""
    found = edge_index_of(data[relation]).astype(np.int64)
    for row, kind in ((0, relation[0]), (1, relation[2])):
        count = int(data[kind].num_nodes)
        if found.shape[1] and not 0 <= found[row].min() <= found[row].max() < count:
            raise UserError(
                f"edges {relation} name {kind} nodes {found[row].min()} to {found[row].max()}, and there are {count}",
                fix="correct edge_index, or num_nodes of that type",
            )
    shifted: NDArray[np.int64] = found + np.array([[starts[relation[0]]], [starts[relation[2]]]])
    return shifted


def _features(data: Any, counts: Sequence[int]) -> tuple[SparseFeatures, tuple[tuple[int, int], ...]]:  # noqa: ANN401
    """Features with each type in columns of its own, and which columns these are."""
    indptr, indices, values, first = [np.zeros(1, np.int64)], [], [], 0
    bare, of_types = [], []
    for kind, count in zip(data.node_types, counts, strict=True):
        if "x" in data[kind]:
            block = _as_sparse(features_of(data[kind].x))
        else:
            bare.append(kind)
            block = sparse(np.arange(count + 1), np.zeros(count, np.int32), np.ones(count, np.float32), 1)
        if block.num_nodes != count:
            raise UserError(
                f"data[{kind!r}].x has {block.num_nodes} rows for {count} nodes", fix="give one row per node"
            )
        indptr.append(block.indptr[1:] + indptr[-1][-1])
        indices.append(block.indices + np.int32(first))
        values.append(block.values)
        of_types.append((first, first + block.num_features))
        first += block.num_features
    if bare:
        _log.info(f"nodes of type {', '.join(bare)} have no features: each has one, which is 1")
    return sparse(np.concatenate(indptr), np.concatenate(indices), np.concatenate(values), first), tuple(of_types)


def _as_sparse(features: Features) -> SparseFeatures:
    if isinstance(features, SparseFeatures):
        return features
    x = to_float32(features)
    rows, columns = np.nonzero(x)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(x)))])
    return sparse(indptr, columns, x[rows, columns], x.shape[1])


def _edge_features(data: Any, counts: Sequence[int]) -> tuple[EdgeRows | None, tuple[str, ...]]:  # noqa: ANN401
    """Edge features that all types have, in equally many columns; others are reported as not used."""
    found: list[NDArray[np.float32]] = []
    names: set[tuple[str, ...]] = set()
    for relation, count in zip(data.edge_types, counts, strict=True):
        given = {name: as_numpy(data[relation][name]) for name in _EDGE_FEATURES if name in data[relation]}
        columns, of_type = edge_columns(given, place=f"edges {relation}:")
        names.add(of_type)
        found.append(np.empty((count, 0), np.float32) if columns is None else columns)
    if len(names) == 1:
        (common,) = names
        return (np.concatenate(found) if common else None), common
    tell_unused("the HeteroData", ["features of edges, which differ between types"])
    return None, ()
