"""Several labels for each node, in numbers: what `prepare` and `inspect` say of such a graph."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.splits import SPLIT_CODES

_NAMED: Final = 5  # labels that a remark names
_AT_A_TIME: Final = 2**20  # nodes
_SPLITS: Final = ("train", "val", "test")

LabelCounts = dict[str, tuple[int, NDArray[np.int64]]]
"""split → its nodes, and how many of them have each label [num_labels]."""


def label_counts(labels: NDArray[np.integer[Any]], split: NDArray[np.int8]) -> LabelCounts:
    """How many nodes of each split have each label; of `labels` [num_nodes, num_labels]."""
    nodes = {name: np.flatnonzero(split == SPLIT_CODES[name]) for name in _SPLITS}
    return {name: (len(ids), _positives(labels, ids)) for name, ids in nodes.items()}


def _positives(labels: NDArray[np.integer[Any]], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    counts = np.zeros(labels.shape[1], dtype=np.int64)
    for begin in range(0, len(ids), _AT_A_TIME):
        counts += np.count_nonzero(labels[ids[begin : begin + _AT_A_TIME]] == 1, axis=0)
    return counts


def label_facts(counts: LabelCounts) -> Iterator[tuple[str, str]]:
    """Rows for a table: how often each split has the labels."""
    for name, (num_nodes, of_label) in counts.items():
        shares = of_label / max(1, num_nodes)
        spread = f"{100 * shares.min():.1f} to {100 * shares.max():.1f} % of the nodes each, {shares.sum():.2f} a node"
        yield f"labels in {name}", f"{np.count_nonzero(of_label)} of {len(of_label)}, {spread}"


def notes(counts: LabelCounts, labels: NDArray[np.integer[Any]], names: Sequence[str]) -> Iterator[str]:
    """What a person should know before a model is trained on them: how they were read, and labels that say nothing."""
    num_labels = labels.shape[1]
    yield (
        f"y has {num_labels} columns of 0 and 1: several labels for each node (multi-label), learnt with binary"
        " cross-entropy"
    )
    if is_one_hot(labels):
        yield "each node has exactly one label: if these are classes, one-hot, prepare them as such: -o target=class"
    for name in ("val", "test"):
        if not counts[name][0]:
            yield f"no node is in the {name} split: nothing will be measured on it"
    num_train, of_train = counts["train"]
    judged = counts["val"][1] + counts["test"][1]
    for chosen, says in (
        ((of_train == 0) & (judged > 0), "have no training node with them, and are judged: a model cannot learn them"),
        ((of_train == 0) & (judged == 0), "are had by no node of a split"),
        (of_train == num_train, "are had by every training node: a model learns nothing of them"),
    ):
        if num_train and chosen.any():
            numbers = np.flatnonzero(chosen).tolist()
            shown = [names[number] if names else str(number) for number in numbers[:_NAMED]]
            more = ", …" if len(numbers) > _NAMED else ""
            yield f"{len(numbers)} of {num_labels} labels {says} ({', '.join(shown)}{more})"


def is_one_hot(labels: NDArray[np.integer[Any]]) -> bool:
    """Whether each labelled node has exactly one of the labels [num_nodes, num_labels]."""
    return bool(((labels == 1).sum(axis=1) == 1)[labels[:, 0] >= 0].all())
