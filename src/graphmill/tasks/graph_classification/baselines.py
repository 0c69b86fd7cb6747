"""What learns little: the majority class, regressions on means and counts, and on counts of subtrees."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.graph.graph_set import GraphSet
from graphmill.graph.keys import keys_below
from graphmill.graph.splits import Split
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import MOST_BYTES, MOST_OPERATIONS, BaselineScore
from graphmill.tasks.classification import measures_of_guesses
from graphmill.tasks.graph_classification.data.store import GraphSetStore, ids_in
from graphmill.tasks.graph_classification.page import MAJORITY, MEANS, SUBTREES, GraphClassificationPlan
from graphmill.tasks.graph_classification.task import by_name, dataset_spec
from graphmill.tasks.regression import EVALUATIONS, Csr, fit

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
    return _stacked(found, graphs.num_graphs)


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


def _stacked(blocks: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]], num_graphs: int) -> Csr:
    first = np.cumsum([0, *(count for *_, count in blocks)])
    graph = np.concatenate([each[0] for each in blocks])
    label = np.concatenate([each[1] + start for each, start in zip(blocks, first, strict=False)])
    counts = np.concatenate([each[2] for each in blocks])
    order = np.argsort(graph, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(graph, minlength=num_graphs))])
    return Csr(indptr, label[order], np.log1p(counts[order]), int(first[-1]))


def score(
    task_plan: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool
) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of graph classification."""
    assert isinstance(task_plan, GraphClassificationPlan)
    store = GraphSetStore.open(Path(task_plan.dataset.path))
    codes, labels = store.split_codes(dataset_spec(task_plan)), np.asarray(store.labels)
    train, num_classes = ids_in(codes, "train"), task_plan.dataset.num_classes
    for name in names:
        if bounded and (_bytes_of(name, task_plan) > MOST_BYTES or _operations_of(name, task_plan) > MOST_OPERATIONS):
            known = task_plan.dataset
            why = f"it reads {known.num_nodes:,} nodes: graphmill baseline {known.name} --all scores it"
            yield from (BaselineScore(name, split, None, why) for split in splits)
            continue
        if name == MAJORITY.name:
            guesses = np.full(len(labels), np.bincount(labels[train], minlength=num_classes).argmax())
        elif name == MEANS.name:
            guesses = _by_means(store.graphs, labels, train, num_classes)
        else:
            counts = subtree_counts(store.graphs, train)
            regression = fit([counts.rows(train)], labels[train], num_classes)
            guesses = regression.logits([counts]).argmax(dim=1).numpy()
        for split in splits:
            ids = ids_in(codes, split)
            yield BaselineScore(name, split, by_name(measures_of_guesses(guesses[ids], labels[ids], num_classes)))


def _bytes_of(name: str, task_plan: GraphClassificationPlan) -> int:
    """What a baseline holds at a time: every node's features, and labels of nodes and edges."""
    known = task_plan.dataset
    features = known.num_nodes * known.num_features
    if name == SUBTREES.name:
        return 12 * features + 8 * (10 * known.num_nodes + 4 * known.num_edges)
    return 8 * features if name == MEANS.name else 0


def _operations_of(name: str, task_plan: GraphClassificationPlan) -> float:
    """Operations of a regression on counts of subtrees, of each node its label in each round; of others 0."""
    return (
        0.0
        if name != SUBTREES.name
        else EVALUATIONS * 4.0 * (ROUNDS + 1) * task_plan.dataset.num_nodes * task_plan.dataset.num_classes
    )


def _by_means(
    graphs: GraphSet, labels: NDArray[np.int64], train: NDArray[np.int64], num_classes: int
) -> NDArray[np.int64]:
    """The class of every graph [num_graphs], by what it is like as a whole."""
    x = torch.from_numpy(of_whole_graphs(graphs))
    mean, sd = x[train].mean(dim=0), x[train].std(dim=0, correction=0)
    x = (x - mean) / torch.where(sd > 0, sd, 1.0)
    found: NDArray[np.int64] = fit([x[train]], labels[train], num_classes).logits([x]).argmax(dim=1).numpy()
    return found


def of_whole_graphs(graphs: GraphSet) -> NDArray[np.float64]:
    """[num_graphs, num_features + 3]: mean features of the nodes; logarithms of the counts, and edges for each node."""
    num_nodes, num_edges = np.diff(graphs.node_offsets), np.diff(graphs.edge_offsets)
    graph_of_node = np.repeat(np.arange(graphs.num_graphs), num_nodes)
    sums = np.stack(
        [np.bincount(graph_of_node, column, minlength=graphs.num_graphs) for column in np.asarray(graphs.x).T], axis=1
    )
    some = np.maximum(num_nodes, 1)
    counts = np.stack([np.log1p(num_nodes), np.log1p(num_edges), num_edges / some], axis=1)
    return np.concatenate([sums / some[:, None], counts], axis=1)
