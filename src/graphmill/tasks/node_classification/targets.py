"""What the targets of nodes are to a run, classes or labels: its loss, its measures, what `predict` writes; checked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.base.errors import UserError
from graphmill.graph.header import damaged
from graphmill.graph.splits import SPLITS, Split
from graphmill.partition.metadata import again
from graphmill.partition.parts import LabelsOfSplits, is_parts, read_parts_metadata
from graphmill.sample.collect import Labels
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks import classification, multilabel
from graphmill.tasks.classification import ClassifierLoss
from graphmill.tasks.multilabel import LabelsLoss
from graphmill.tasks.node_classification.page import GraphInfo, NodeClassificationPlan
from graphmill.tasks.task import Measures

_AT_A_TIME: Final = 2**20  # nodes


def targets_in(known: GraphInfo) -> "Classes | SeveralLabels":
    """What the nodes of a graph have."""
    match known.target_kind:
        case "class":
            return Classes(known.num_classes)
        case "labels":
            return SeveralLabels(known.num_classes)
        case _:
            assert_never(known.target_kind)


@dataclass(frozen=True, slots=True)
class Classes:
    """One class per node: logits [n, num_classes], labels int64 [n]."""

    number: int  # of classes

    def loss(self, plan: Plan, task_plan: NodeClassificationPlan, group: Group, labels: Tensor) -> ClassifierLoss:
        """What is trained on; `labels`: of all training nodes."""
        return ClassifierLoss.of(plan, task_plan.loss, group, num_classes=self.number, labels=labels)

    def tally(self, logits: Tensor, labels: Tensor) -> Tensor:
        """One rank's sums, the loss first."""
        return classification.tally(logits, labels)

    def measures(self, total: Tensor) -> Measures:
        """Measures of tallies added up over the ranks."""
        return classification.measures(total, self.number)

    def measures_of_guesses(self, guesses: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
        """Measures of predicted classes [n] where the true ones are `labels` [n]."""
        return classification.measures_of_guesses(guesses, labels, self.number)

    def predictions(self, logits: Tensor) -> dict[str, NDArray[Any]]:
        """What `predict` writes of logits."""
        return {"prediction": logits.argmax(dim=1).numpy(), "logit": logits.numpy()}

    def most_frequent(self, nodes: NDArray[np.int64], labels: Labels, at_a_time: int) -> NDArray[Any]:
        """The class of most of `nodes`, []; at most `at_a_time` are read together."""
        counts = np.zeros(self.number, dtype=np.int64)
        for ids in np.array_split(nodes, 1 + len(nodes) // at_a_time):
            counts += np.bincount(labels[ids], minlength=self.number)
        return np.asarray(counts.argmax())

    def are_wrong(self, labels: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Whether each of `labels` [n] is not a class."""
        return (labels < 0) | (labels >= self.number)

    def check_judgement(self, plan: Plan, task_plan: NodeClassificationPlan) -> None:
        """`UserError` if a loss or a measure of the user's own does not fit."""
        classification.check_judgement(plan, task_plan.loss, self.number)


@dataclass(frozen=True, slots=True)
class SeveralLabels:
    """Several labels for each node: logits [n, num_labels], labels 0 and 1, int8 [n, num_labels]."""

    number: int  # of labels

    def loss(self, plan: Plan, task_plan: NodeClassificationPlan, group: Group, labels: Tensor) -> LabelsLoss:
        """What is trained on; `labels`: of all training nodes."""
        return LabelsLoss.of(plan, task_plan.loss, group, labels=labels)

    def tally(self, logits: Tensor, labels: Tensor) -> Tensor:
        """One rank's sums, the loss first."""
        return multilabel.tally(logits, labels)

    def measures(self, total: Tensor) -> Measures:
        """Measures of tallies added up over the ranks."""
        return multilabel.measures(total)

    def measures_of_guesses(self, guesses: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
        """Measures of predicted labels [n, num_labels] where the true ones are `labels`."""
        return multilabel.measures_of_guesses(guesses, labels)

    def predictions(self, logits: Tensor) -> dict[str, NDArray[Any]]:
        """What `predict` writes of logits: a column for each label."""
        found = multilabel.predicted(logits).to(torch.int8)
        return {"prediction": found.numpy(), "probability": logits.sigmoid().numpy()}

    def most_frequent(self, nodes: NDArray[np.int64], labels: Labels, at_a_time: int) -> NDArray[Any]:
        """Whether more than half of `nodes` have each label, bool [num_labels]; at most `at_a_time` read together."""
        counts = np.zeros(self.number, dtype=np.int64)
        for ids in np.array_split(nodes, 1 + len(nodes) // at_a_time):
            counts += np.count_nonzero(labels[ids] == 1, axis=0)
        return 2 * counts > len(nodes)

    def are_wrong(self, labels: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Whether a node's labels [n, num_labels] are others than 0 and 1, [n]."""
        return np.asarray(((labels < 0) | (labels > 1)).any(axis=1))

    def check_judgement(self, plan: Plan, task_plan: NodeClassificationPlan) -> None:
        """`UserError` if a loss or a measure of the user's own does not fit."""
        multilabel.check_judgement(plan, task_plan.loss, self.number)


def refuse_unknown_targets(
    path: Path, labels: Labels, nodes_in: Callable[[Split], NDArray[np.int64]], targets: Classes | SeveralLabels
) -> None:
    """Raise a `UserError` if a node of a split has a label that is no class, or labels other than 0 and 1."""
    what = "classes" if isinstance(targets, Classes) else "labels"
    for number, split in enumerate(SPLITS):
        nodes = nodes_in(split)
        own = labels.splits[number][1] if isinstance(labels, LabelsOfSplits) else None
        for begin, found in _in_blocks(nodes, own, labels):
            wrong = np.flatnonzero(targets.are_wrong(found))
            if len(wrong):
                node, label = nodes[begin + wrong[0]], found[wrong[0]]
                _refuse(path, split, f"node {node} of the {split} split has label {label} of {targets.number} {what}")


def _in_blocks(
    nodes: NDArray[np.int64], true_labels: NDArray[np.integer[Any]] | None, labels: Labels
) -> Iterator[tuple[int, NDArray[np.integer[Any]]]]:
    for begin in range(0, len(nodes), _AT_A_TIME):
        block = slice(begin, begin + _AT_A_TIME)
        yield begin, labels[nodes[block]] if true_labels is None else true_labels[block]


def _refuse(path: Path, split: Split, problem: str) -> None:
    if not is_parts(path):
        raise damaged(path / "y.npy", problem)
    metadata = read_parts_metadata(path)
    raise UserError(f"{path / f'splits/{split}_y'}.npy: {problem}", fix=again(metadata, path))
