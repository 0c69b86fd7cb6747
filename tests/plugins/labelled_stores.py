"""Small prepared graphs with classes, or labels, of every form that a store may have, and how to split them."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np

from graphmill.graph.features import dense, sparse
from graphmill.graph.store import GraphStore
from graphmill.graph.typed import ANY, RawTypes, Relation
from graphmill.partition.parts import PartedGraph
from graphmill.partition.split import PartitionProgress, Wanted, choose, split_store
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store


def made_store(
    path: Path,
    *,
    num_nodes=60,
    num_edges=240,
    symmetric=False,
    is_sparse=False,
    edge_features=False,
    typed=False,
    several=False,
    busy=None,
    seed=0,
) -> LabelledGraphStore:
    """A random graph with self-loops, repeated edges and isolated nodes; every node has a row of its own.

    `busy`: so many nodes have edges; None: three in four. `typed`: with nodes of two types, and edges of three, many
    of them parallel. `several`: with four labels for each node, none in no split.
    """
    rng = np.random.default_rng(seed)
    busy = busy or max(2, num_nodes * 3 // 4)  # the others have no edge
    edges = rng.integers(0, busy, (2, num_edges))
    if symmetric:
        edges = np.concatenate([edges, edges[::-1]], axis=1)
    values = rng.random((num_nodes, 3), dtype=np.float32) + np.arange(num_nodes, dtype=np.float32)[:, None]
    features = dense(values)
    if is_sparse:
        width = rng.integers(0, 4, num_nodes)
        columns = np.concatenate([np.sort(rng.permutation(8)[:each]) for each in width]).astype(np.int64)
        features = sparse(np.concatenate([[0], np.cumsum(width)]), columns, rng.random(len(columns)), 8)
    split = rng.integers(-1, 3, num_nodes).astype(np.int8)
    split[0] = 0
    labels, names = rng.integers(0, 3, num_nodes), ("a", "b", "c")
    if several:
        labels, names = rng.integers(0, 2, (num_nodes, 4)).astype(np.int8), ("a", "b", "c", "d")
        labels[split == -1] = -1
    return write_store(
        LabelledGraph(
            edge_index=edges,
            features=features,
            labels=labels,
            split=split,
            name=path.name,
            source="random",
            synthetic=True,
            class_names=names,
            edge_features=rng.random((edges.shape[1], 2), dtype=np.float32) if edge_features else None,
            edge_feature_names=("first", "second") if edge_features else (),
            types=types_for(edges, num_nodes) if typed else None,
        ),
        path,
    )


def types_for(edges, num_nodes) -> RawTypes:
    """Nodes of two types in turn; edges of one between them, of two between any."""
    node_type, edge_type = np.arange(num_nodes) % 2, np.arange(edges.shape[1]) % 3
    edge_type[(edge_type == 0) & ((edges[0] % 2 == 1) | (edges[1] % 2 == 0))] = 1
    relations = (Relation("even", "crosses", "odd"), Relation(ANY, "one", ANY), Relation(ANY, "other", ANY))
    return RawTypes(node_type=node_type, node_names=("even", "odd"), edge_type=edge_type, relations=relations)


def no_ranking(topology, parts, seeds_by_part, fanouts):
    raise AssertionError("nothing asked for rankings")


SILENT = PartitionProgress(lambda title: nullcontext(), lambda title, num_bytes: nullcontext(lambda done: None))


def split_made(store: GraphStore, path: Path, rank=no_ranking, **wanted) -> PartedGraph:
    """Its parts, opened."""
    chosen, _ = choose(store, Wanted(**{"num_parts": 3, "method": "ldg", **wanted}), available_bytes=2**60)
    split_store(store, chosen, path, SILENT, rank)
    return PartedGraph.open(path)
