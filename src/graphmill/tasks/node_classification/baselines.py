"""What little learns: the majority class, and logistic regression on features, also on propagated ones (SGC)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.spec.kinds.node_classification import LOGISTIC, MAJORITY, PROPAGATED, NodeClassificationPlan
from graphmill.tasks.baselines import BaselineScore
from graphmill.tasks.classification import measures_of_guesses
from graphmill.tasks.node_classification.parts import PartedLabelledGraph, open_graph, open_labels
from graphmill.tasks.node_classification.store import LabelledGraphStore
from graphmill.tasks.task import Split

_LABELS_AT_A_TIME: Final = 1 << 16  # each rank scores beside its parts, and has no array of all nodes


def score(own: TaskPlan, names: Sequence[str], splits: Sequence[Split]) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of node classification."""
    assert isinstance(own, NodeClassificationPlan)
    reads_features = set(names) != {MAJORITY.name}
    store = (open_graph if reads_features else open_labels)(Path(own.dataset.path))
    for name in names:
        guesses = _guesses(own, store, name)
        for split in splits:
            nodes = store.nodes_in(split)
            yield BaselineScore(
                name, split, measures_of_guesses(guesses[nodes], store.labels[nodes], own.dataset.num_classes)
            )


def _guesses(
    own: NodeClassificationPlan, store: LabelledGraphStore | PartedLabelledGraph, name: str
) -> NDArray[np.int64]:
    """The class of every node by a baseline, [num_nodes]."""
    if name == MAJORITY.name:
        nodes, counts = store.nodes_in("train"), np.zeros(own.dataset.num_classes, dtype=np.int64)
        for ids in np.array_split(nodes, 1 + len(nodes) // _LABELS_AT_A_TIME):
            counts += np.bincount(store.labels[ids], minlength=len(counts))
        return np.broadcast_to(counts.argmax(), store.metadata.num_nodes)
    if isinstance(store, PartedLabelledGraph):
        raise UserError(
            f"{name} reads all features at once, and {store.path} is partitioned",
            fix="score it on the graph that was partitioned: --dataset NAME",
        )
    from graphmill.tasks.node_classification.regression import fit

    hops = {LOGISTIC.name: 0, PROPAGATED.name: len(own.num_neighbors)}[name]
    return fit(own, store, num_hops=hops)
