"""Counts of Weisfeiler-Lehman labels (Shervashidze et al. 2011, JMLR 12): how often each rooted subtree occurs."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.graph_set import GraphSet
from graphmill.graph.keys import keys_below
from graphmill.tasks.regression import Csr

ROUNDS: Final = 3
_FEW: Final = 64  # distinct whole numbers of a column that are taken for kinds of nodes
_OWN, _NEIGHBOUR = 1, 2  # keys of two hashes: alike, a label would cancel the same one of a neighbour


def subtree_counts(graphs: GraphSet, train: NDArray[np.int64], rounds: int = ROUNDS) -> Csr:
    """log(1 + count) of each label in each graph, [num_graphs, num_labels].

    A node's first label is its row of those features that are kinds, such as marks of a type: whole numbers, of which a
    column has few. Each round joins to it the labels of its in-neighbours. Labels that fewer than two of the graphs
    `train` have are left out: nothing can be learnt of them.
    """
    graph_of_node = np.repeat(np.arange(graphs.num_graphs), np.diff(graphs.node_offsets))
    edges_before = np.repeat(graphs.edge_offsets[:-1], np.diff(graphs.node_offsets))
    first_in = np.append(edges_before + graphs.first_in, graphs.edge_offsets[-1])
    sources = graphs.sources + np.repeat(graphs.node_offsets[:-1], np.diff(graphs.edge_offsets))
    is_train = np.zeros(graphs.num_graphs, np.bool_)
    is_train[train] = True
    labels, found = _first_labels(np.asarray(graphs.x)), []
    for number in range(rounds + 1):
        if number:
            hashed = keys_below(_NEIGHBOUR, labels)[sources]
            sums = np.append(np.uint64(0), np.cumsum(hashed))  # wraps: differences are right
            joined = keys_below(_OWN, labels) + (sums[first_in[1:]] - sums[first_in[:-1]])
            labels = np.unique(joined, return_inverse=True)[1].astype(np.int64)
        found.append(_counted(graph_of_node, labels, is_train))
    return _beside(found, graphs.num_graphs)


def _first_labels(x: NDArray[np.float32]) -> NDArray[np.int64]:
    kinds = [column for column in x.T if np.array_equal(column, np.floor(column)) and len(np.unique(column)) <= _FEW]
    if not kinds:
        return np.zeros(len(x), np.int64)
    return np.unique(np.stack(kinds, axis=1), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _counted(
    graph_of_node: NDArray[np.int64], labels: NDArray[np.int64], is_train: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
    """(graph, label, count) of the labels that are kept, renumbered from 0; and how many these are."""
    width = int(labels.max()) + 1
    pairs, counts = np.unique(graph_of_node * width + labels, return_counts=True)
    graph, label = np.divmod(pairs, width)
    kept = np.bincount(label[is_train[graph]], minlength=width) >= 2
    number = np.cumsum(kept) - 1
    chosen = kept[label]
    return graph[chosen], number[label[chosen]], counts[chosen], int(kept.sum())


def _beside(found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]], num_graphs: int) -> Csr:
    first = np.cumsum([0, *(count for *_, count in found)])
    graph = np.concatenate([each[0] for each in found])
    label = np.concatenate([each[1] + start for each, start in zip(found, first, strict=False)])
    counts = np.concatenate([each[2] for each in found])
    order = np.argsort(graph, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(graph, minlength=num_graphs))])
    return Csr(indptr, label[order], np.log1p(counts[order]), int(first[-1]))
