"""What every source of node classification yields: a graph with a class and a split for each node; and its checks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.raw import RawGraph, check_raw_graph, refusal, refuse_no_features
from graphmill.graph.splits import SPLIT_CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledGraph(RawGraph):
    """A graph in memory whose nodes have classes, not yet checked. `origin` may also have "labels" and "split"."""

    labels: NDArray[np.int64]  # [num_nodes]; -1: unlabelled
    split: NDArray[np.int8]  # [num_nodes]: SPLIT_CODES
    class_names: tuple[str, ...] = ()
    split_note: str = "as given"

    @property
    def has_labels(self) -> bool:
        """Whether any node has a class: else it can be partitioned and sampled, and nothing be learnt of classes."""
        return bool((self.labels >= 0).any())

    @property
    def num_nodes(self) -> int:
        """As many as have a label."""
        return len(self.labels)


def check_labelled(raw: LabelledGraph) -> None:
    """Refuse what cannot be trained on, with a `UserError` that says where it is and what to do."""
    _check_label_array(raw)
    check_raw_graph(raw)
    refuse_no_features(raw)
    _check_split(raw, raw.num_nodes)
    _check_labels(raw)


def _check_split(raw: LabelledGraph, num_nodes: int) -> None:
    split = raw.split
    if split.shape != (num_nodes,):
        raise refusal(
            raw, "split", f"{list(split.shape)} entries, and there are {num_nodes} nodes", fix="give one per node"
        )
    known = np.array(sorted(SPLIT_CODES.values()))
    unknown = np.flatnonzero(~np.isin(split, known))
    if len(unknown):
        raise refusal(
            raw, "split", f"node {unknown[0]} has {split[unknown[0]]}", fix="use 0 train, 1 val, 2 test, -1 none"
        )
    if raw.has_labels and not (split == SPLIT_CODES["train"]).any():
        raise refusal(
            raw,
            "split",
            "no node is in the training split",
            fix="mark training nodes, or split at random: --random-split",
        )


def _check_label_array(raw: LabelledGraph) -> None:
    labels = raw.labels
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise refusal(
            raw, "labels", f"{labels.dtype} {list(labels.shape)}", fix="give one integer class per node, -1: unlabelled"
        )


def _check_labels(raw: LabelledGraph) -> None:
    labels = raw.labels
    largest = len(raw.class_names) - 1 if raw.class_names else len(labels) - 1
    outside = np.flatnonzero((labels < -1) | (labels > largest))
    if len(outside):
        node = int(outside[0])
        why = (
            "no negative number is a class"
            if labels[node] < 0
            else f"there are {largest + 1} class names"
            if raw.class_names
            else f"{len(labels)} nodes cannot show more classes"
        )
        raise refusal(
            raw,
            "labels",
            f"node {node} has label {labels[node]}, and {why}",
            fix="number classes from 0; -1: unlabelled",
        )
    bare = np.flatnonzero((labels == -1) & (raw.split != SPLIT_CODES["none"]))
    if len(bare):
        name = next(key for key, code in SPLIT_CODES.items() if code == raw.split[bare[0]])
        raise refusal(
            raw,
            "labels",
            f"node {bare[0]} is in the {name} split and has no label ({len(bare)} such nodes)",
            fix="label it, or take it out of the split",
        )
