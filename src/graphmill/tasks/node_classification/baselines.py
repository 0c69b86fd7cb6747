"""What learns little, or nothing of the graph: the majority class, and the methods of `simple.py`."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.splits import Split
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import MOST_BYTES, MOST_OPERATIONS, BaselineScore, work_text
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.page import MAJORITY, NodeClassificationPlan
from graphmill.tasks.node_classification.parts import PartedLabelledGraph, open_graph, open_labels
from graphmill.tasks.node_classification.targets import refuse_unknown_targets, targets_in

_log = logging.getLogger(__name__)
_LABELS_AT_A_TIME: Final = 1 << 16  # each rank scores beside its parts, and has no array of all nodes


def score(
    task_plan: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool
) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of node classification."""
    assert isinstance(task_plan, NodeClassificationPlan)
    reads_features = set(names) != {MAJORITY.name}
    store = (open_graph if reads_features else open_labels)(Path(task_plan.dataset.path))
    labels, targets = store.labels, targets_in(task_plan.dataset)
    refuse_unknown_targets(store.path, labels, store.nodes_in, targets)
    for name in names:
        guesses = _guesses(task_plan, store, name, bounded=bounded)
        if isinstance(guesses, str):
            yield from (BaselineScore(name, split, None, guesses) for split in splits)
            continue
        for split in splits:
            nodes = store.nodes_in(split)
            yield BaselineScore(name, split, targets.measures_of_guesses(guesses[nodes], labels[nodes]))


def _guesses(
    task_plan: NodeClassificationPlan, store: LabelledGraphStore | PartedLabelledGraph, name: str, *, bounded: bool
) -> NDArray[Any] | str:
    """Class of each node [num_nodes] by a baseline, or labels [num_nodes, num_labels]; or why there are none."""
    targets = targets_in(task_plan.dataset)
    if name == MAJORITY.name:
        most = targets.most_frequent(store.nodes_in("train"), store.labels, _LABELS_AT_A_TIME)
        return np.broadcast_to(most, (store.metadata.num_nodes, *most.shape))
    if isinstance(store, PartedLabelledGraph):
        return f"it reads the whole graph at once, and {store.path} is partitioned: graphmill baseline NAME scores it"
    from graphmill.tasks.node_classification.nn import simple

    cost = simple.cost_of(task_plan, store, name)
    if cost.operations > MOST_OPERATIONS or cost.bytes > MOST_BYTES:
        work = work_text(cost.operations, cost.bytes)
        if bounded:
            return f"it would take {work}: graphmill baseline {task_plan.dataset.name} --all scores it"
        _log.info(f"{name} takes {work}")
    return simple.guesses(task_plan, store, name)
