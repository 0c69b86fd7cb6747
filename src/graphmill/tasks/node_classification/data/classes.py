"""Classes by split, and how often an edge joins two of one class: what `prepare` and `inspect` say of a graph."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.pages import evict
from graphmill.graph.splits import SPLIT_CODES
from graphmill.graph.topology import Topology

_BLOCK = 2**22
_NAMED = 5  # classes that a remark names
_SPLITS: Final = ("train", "val", "test")

Counts = dict[str, NDArray[np.int64]]  # split → nodes of each class [num_classes]


def class_counts(labels: NDArray[np.integer[Any]], split: NDArray[np.int8], num_classes: int) -> Counts:
    """Nodes of each class in each split."""
    return {name: np.bincount(labels[split == SPLIT_CODES[name]], minlength=num_classes) for name in _SPLITS}


def class_facts(counts: Counts) -> Iterator[tuple[str, str]]:
    """Rows for a table: how many classes each split has, and how unequal they are."""
    for name, of_class in counts.items():
        present = of_class[of_class > 0]
        spread = f", {present.min():,} to {present.max():,} nodes each" if len(present) else ""
        yield f"classes in {name}", f"{len(present)} of {len(of_class)}{spread}"


def notes(counts: Counts, labels: NDArray[np.integer[Any]], class_names: Sequence[str]) -> Iterator[str]:
    """What a person should know before a model is judged by these splits: classes that are empty somewhere."""
    train, judged = counts["train"], counts["val"] + counts["test"]
    for name in ("val", "test"):
        if not counts[name].any():
            yield f"no node is in the {name} split: nothing will be measured on it"
    used = np.bincount(labels[labels >= 0], minlength=len(train)) > 0
    for empty, says in (
        (~used, "have no node at all: gaps in the numbers"),
        (used & (train == 0) & (judged > 0), "have no training node, and are judged: a model cannot learn them"),
        (used & (train == 0) & (judged == 0), "are in no split"),
        (
            used & (train > 0) & (counts["test"] == 0) & counts["test"].any(),
            "have no test node, and do not count in its measures",
        ),
    ):
        if empty.any():
            numbers = np.flatnonzero(empty)
            yield f"{len(numbers)} of {len(train)} classes {says} ({_names(numbers, class_names)})"


def edge_homophily(topology: Topology, labels: NDArray[np.integer[Any]]) -> float | None:
    """Share of the edges between labelled nodes whose ends agree (self-loops among them); None without such edges."""
    num_same = num_edges = 0
    for start in range(0, topology.num_edges, _BLOCK):
        stop = min(start + _BLOCK, topology.num_edges)
        first = int(np.searchsorted(topology.indptr, start, side="right")) - 1
        last = int(np.searchsorted(topology.indptr, stop, side="left"))
        bounds = np.clip(topology.indptr[first : last + 1], start, stop)
        own = np.repeat(labels[first:last], bounds[1:] - bounds[:-1])
        ends = labels[topology.indices[start:stop]]
        evict(topology.indices[start:stop])
        labelled = (ends >= 0) & (own >= 0)
        num_edges += int(np.count_nonzero(labelled))
        num_same += int(np.count_nonzero(labelled & (ends == own)))
    return num_same / num_edges if num_edges else None


def _names(classes: NDArray[np.int64], class_names: Sequence[str]) -> str:
    shown = [class_names[number] if class_names else str(number) for number in classes[:_NAMED].tolist()]
    return ", ".join([*shown, *(["…"] if len(classes) > _NAMED else [])])
