"""What learns little, or nothing of the graph: the majority class, and the methods of `simple.py`."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.splits import Split
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import MOST_BYTES, MOST_OPERATIONS, BaselineScore, work_in_words
from graphmill.tasks.classification import measures_of_guesses
from graphmill.tasks.node_classification.checked_labels import refuse_unknown_classes
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.page import MAJORITY, NodeClassificationPlan
from graphmill.tasks.node_classification.parts import PartedLabelledGraph, open_graph, open_labels

_log = logging.getLogger(__name__)
_LABELS_AT_A_TIME: Final = 1 << 16  # each rank scores beside its parts, and has no array of all nodes


def score(own: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of node classification."""
    assert isinstance(own, NodeClassificationPlan)
    reads_features = set(names) != {MAJORITY.name}
    store = (open_graph if reads_features else open_labels)(Path(own.dataset.path))
    labels = store.labels
    refuse_unknown_classes(store.path, labels, store.nodes_in, own.dataset.num_classes)
    for name in names:
        guesses = _guesses(own, store, name, bounded=bounded)
        if isinstance(guesses, str):
            yield from (BaselineScore(name, split, None, guesses) for split in splits)
            continue
        for split in splits:
            nodes = store.nodes_in(split)
            yield BaselineScore(
                name, split, measures_of_guesses(guesses[nodes], labels[nodes], own.dataset.num_classes)
            )


def _guesses(
    own: NodeClassificationPlan, store: LabelledGraphStore | PartedLabelledGraph, name: str, *, bounded: bool
) -> NDArray[np.int64] | str:
    """The class of every node by a baseline, [num_nodes]; or why there is none."""
    if name == MAJORITY.name:
        nodes, labels = store.nodes_in("train"), store.labels
        counts = np.zeros(own.dataset.num_classes, dtype=np.int64)
        for ids in np.array_split(nodes, 1 + len(nodes) // _LABELS_AT_A_TIME):
            counts += np.bincount(labels[ids], minlength=len(counts))
        return np.broadcast_to(counts.argmax(), store.metadata.num_nodes)
    if isinstance(store, PartedLabelledGraph):
        return f"it reads the whole graph at once, and {store.path} is partitioned: graphmill baseline NAME scores it"
    from graphmill.tasks.node_classification.nn import simple

    cost = simple.cost_of(own, store, name)
    if cost.operations > MOST_OPERATIONS or cost.bytes > MOST_BYTES:
        work = work_in_words(cost.operations, cost.bytes)
        if bounded:
            return f"it would take {work}: graphmill baseline {own.dataset.name} --all scores it"
        _log.info(f"{name} takes {work}")
    return simple.guesses(own, store, name)
