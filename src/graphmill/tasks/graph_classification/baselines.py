"""What little learns: the majority class."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from graphmill.spec.kinds.graph_classification import GraphClassificationPlan
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import BaselineScore
from graphmill.tasks.classification import measures_of_guesses
from graphmill.tasks.graph_classification.store import GraphSetStore, ids_in
from graphmill.tasks.graph_classification.task import asked_of, by_name
from graphmill.tasks.task import Split


def score(own: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of graph classification."""
    del bounded  # all of it is little work
    assert isinstance(own, GraphClassificationPlan)
    store = GraphSetStore.open(Path(own.dataset.path))
    codes, labels = store.split_codes(asked_of(own)), np.asarray(store.labels)
    most = np.bincount(labels[ids_in(codes, "train")], minlength=own.dataset.num_classes).argmax()
    for name in names:
        for split in splits:
            truth = labels[ids_in(codes, split)]
            found = measures_of_guesses(np.full(len(truth), most), truth, own.dataset.num_classes)
            yield BaselineScore(name, split, by_name(found))
