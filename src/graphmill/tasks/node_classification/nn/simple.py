"""Methods that need no graph network: regression on features, propagated or not, a perceptron, labels propagated.

Everything is in memory. What each takes is known before (`cost_of`), so that a run can leave out what is too much.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.access.propagated import step_rows
from graphmill.access.transform import transformed
from graphmill.graph.features import SparseFeatures
from graphmill.graph.statistics import statistics
from graphmill.graph.topology import Topology
from graphmill.tasks.label_propagation import ROUNDS, KnownLabels, label_shares
from graphmill.tasks.multilabel import predicted
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.page import (
    LABELS,
    LOGISTIC,
    PERCEPTRON,
    PROPAGATED,
    STACKED,
    NodeClassificationPlan,
)
from graphmill.tasks.perceptron import guesses as perceptron_guesses
from graphmill.tasks.regression import EVALUATIONS, Csr, Matrix, fit, in_blocks

_EPOCHS: Final = 40  # of the perceptron, about


@dataclass(frozen=True, slots=True)
class Cost:
    """What a method takes, roughly."""

    operations: float
    bytes: float


def cost_of(task_plan: NodeClassificationPlan, store: LabelledGraphStore, name: str) -> Cost:
    """Cost of a method by its name. Products of sparse matrices are most of it."""
    features, classes = store.features, task_plan.dataset.num_classes
    nodes, train = store.metadata.num_nodes, task_plan.dataset.num_train
    entries = len(features.indices) if isinstance(features, SparseFeatures) else nodes * features.num_features
    links = (1 + task_plan.undirected) * store.metadata.num_edges + nodes
    of_train = entries * train / max(1, nodes)
    held = 16.0 * entries + 16.0 * links + 8.0 * nodes * classes * 4
    hops = task_plan.hops
    match name:
        case LOGISTIC.name:
            return Cost(EVALUATIONS * 4 * of_train * classes, 3 * held)
        case PROPAGATED.name:
            return Cost(EVALUATIONS * 4 * (entries + hops * links) * classes, 3 * held)
        case STACKED.name:
            products = (hops + 1) * entries + hops * (links + hops * nodes)
            return Cost(EVALUATIONS * 4 * products * classes, 48.0 * products + 96.0 * nodes * classes)
        case PERCEPTRON.name:
            return Cost(_EPOCHS * 6 * of_train * 128, 8.0 * entries)
        case LABELS.name:
            return Cost(ROUNDS * 2 * links * classes, held)
    raise ValueError(name)


def guesses(task_plan: NodeClassificationPlan, store: LabelledGraphStore, name: str) -> NDArray[Any]:
    """The class of every node, [num_nodes], or its labels, [num_nodes, num_labels], by the method of that name."""
    train, labels, num_classes = store.nodes_in("train"), np.asarray(store.labels), task_plan.dataset.num_classes
    if name == LABELS.name:
        return _by_labels(task_plan, store)
    x = _features(task_plan, store)
    if name == PERCEPTRON.name:
        rows = x if isinstance(x, Csr) else x.float()
        return perceptron_guesses(rows, labels.astype(np.int64), train, store.nodes_in("val"), num_classes)
    factors: list[Matrix] = [x]
    if name != LOGISTIC.name:
        step, hops = _propagation(store.topology(undirected=task_plan.undirected)), task_plan.hops
        if isinstance(x, Csr):
            factors = [*[step] * hops, x] if name == PROPAGATED.name else _hop_factors(step, hops, x)
        else:  # a dense matrix is propagated once, and not at every evaluation
            by_hop = [x]
            for _ in range(hops):
                by_hop.append(step.tensor().double() @ by_hop[-1])
            factors = [by_hop[-1] if name == PROPAGATED.name else torch.cat(by_hop, dim=1)]
    first = factors[0]
    chosen = first.rows(train) if isinstance(first, Csr) else first[torch.from_numpy(train)]
    logits = fit([chosen, *factors[1:]], labels[train], num_classes).logits(factors)
    return _classes(logits) if task_plan.dataset.target_kind == "class" else np.asarray(predicted(logits).numpy())


def _hop_factors(step: Csr, hops: int, x: Csr) -> list[Matrix]:
    """[X, S X, S² X …] as a product of sparse matrices: Sʰ alone would be dense.

    [I | S] · diag(I, [I | S]) … diag(X, X …): each factor adds a hop.
    """
    size = step.num_rows
    one = Csr(np.arange(size + 1), np.arange(size), np.ones(size, np.float32), size)
    factors: list[Matrix] = []
    for hop in range(hops):
        kept = [(number * size, number * size, one) for number in range(hop + 1)]
        last = (hop * size, (hop + 1) * size, step)
        factors.append(in_blocks([*kept, last], (hop + 1) * size, (hop + 2) * size))
    wide = [(number * size, number * x.num_columns, x) for number in range(hops + 1)]
    return [*factors, in_blocks(wide, (hops + 1) * size, (hops + 1) * x.num_columns)]


def _classes(logits: Tensor) -> NDArray[np.int64]:
    return np.asarray(logits.argmax(dim=1).numpy())


def _by_labels(task_plan: NodeClassificationPlan, store: LabelledGraphStore) -> NDArray[Any]:
    """Label propagation: the class of most of what reaches a node, or the labels that more than half of it has."""
    train = store.nodes_in("train")
    known = KnownLabels(train, np.asarray(store.labels)[train], task_plan.dataset.num_classes)
    found = label_shares(store.topology(undirected=task_plan.undirected), known)
    shares, is_reached = found[:, :-1], found[:, -1] > 0  # what no label reaches: the majority
    if task_plan.dataset.target_kind == "labels":
        return np.where(is_reached[:, None], shares > 0.5, known.labels.mean(axis=0) > 0.5)
    return np.where(is_reached, shares.argmax(axis=1), np.bincount(known.labels).argmax())


def _features(task_plan: NodeClassificationPlan, store: LabelledGraphStore) -> Matrix:
    features = transformed(store.features, task_plan.features)
    if isinstance(features, SparseFeatures):
        return Csr(np.asarray(features.indptr), np.asarray(features.indices), features.values, features.num_features)
    stored = torch.from_numpy(np.array(features.x))
    x = (stored.view(torch.bfloat16) if features.dtype == "bfloat16" else stored).double()
    if task_plan.features == "standardised":
        mean, sd = (torch.from_numpy(each) for each in statistics(features, store.nodes_in("train")))
        x = (x - mean) / sd
    return x


def _propagation(topology: Topology) -> Csr:
    """S of `access.propagated`, whole."""
    rows = step_rows(topology, 0, topology.num_nodes)
    return Csr(rows.indptr, rows.sources, rows.values, topology.num_nodes)
