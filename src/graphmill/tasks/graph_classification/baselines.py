"""What learns little: the majority class, regressions on means and counts, and on counts of subtrees."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.graph.graph_set import GraphSet
from graphmill.graph.splits import Split
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import MOST_BYTES, MOST_OPERATIONS, BaselineScore
from graphmill.tasks.classification import measures_of_guesses
from graphmill.tasks.graph_classification.data.store import GraphSetStore, ids_in
from graphmill.tasks.graph_classification.page import MAJORITY, MEANS, SUBTREES, GraphClassificationPlan
from graphmill.tasks.graph_classification.subtrees import ROUNDS, subtree_counts
from graphmill.tasks.graph_classification.task import asked_of, by_name
from graphmill.tasks.regression import EVALUATIONS, fit


def score(own: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of graph classification."""
    assert isinstance(own, GraphClassificationPlan)
    store = GraphSetStore.open(Path(own.dataset.path))
    codes, labels = store.split_codes(asked_of(own)), np.asarray(store.labels)
    train, num_classes = ids_in(codes, "train"), own.dataset.num_classes
    for name in names:
        if bounded and (_bytes_of(name, own) > MOST_BYTES or _operations_of(name, own) > MOST_OPERATIONS):
            why = f"it reads {own.dataset.num_nodes:,} nodes: graphmill baseline {own.dataset.name} --all scores it"
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


def _bytes_of(name: str, own: GraphClassificationPlan) -> int:
    """What a baseline holds at a time: every node's features, and labels of nodes and edges."""
    known = own.dataset
    features = known.num_nodes * known.num_features
    if name == SUBTREES.name:
        return 12 * features + 8 * (10 * known.num_nodes + 4 * known.num_edges)
    return 8 * features if name == MEANS.name else 0


def _operations_of(name: str, own: GraphClassificationPlan) -> float:
    """Operations of a regression on counts of subtrees, of each node its label in each round; of others 0."""
    return (
        0.0
        if name != SUBTREES.name
        else EVALUATIONS * 4.0 * (ROUNDS + 1) * own.dataset.num_nodes * own.dataset.num_classes
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
