"""What every source of node classification yields: a graph with a target and a split for each node; and its checks."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.raw import RawGraph, check_raw_graph, refusal, refuse_no_features
from graphmill.graph.splits import SPLIT_CODES
from graphmill.spec.targets import TargetKind


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledGraph(RawGraph):
    """A graph in memory whose nodes have targets, not yet checked. `origin` may also have "labels" and "split"."""

    labels: NDArray[np.integer[Any]]
    """Classes int64 [num_nodes]; or 0 and 1 of labels, int8 [num_nodes, num_labels]. -1, in a whole row: unlabelled."""
    split: NDArray[np.int8]  # [num_nodes]: SPLIT_CODES
    class_names: tuple[str, ...] = ()  # or of the labels
    split_note: str = "as given"

    @property
    def target_kind(self) -> TargetKind:
        """What is to be learnt of each node."""
        return "class" if self.labels.ndim == 1 else "labels"

    @property
    def has_labels(self) -> bool:
        """Whether any node has a class: else it can be partitioned and sampled, and nothing be learnt of classes."""
        return bool(is_labelled(self.labels).any())

    @property
    def num_nodes(self) -> int:
        """Number of nodes, which is that of the labels."""
        return len(self.labels)


def is_labelled(labels: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Whether each node has its class [num_nodes], or its labels [num_nodes, num_labels]; bool [num_nodes]."""
    return labels >= 0 if labels.ndim == 1 else labels[:, 0] >= 0


def with_target(raw: LabelledGraph, target_kind: TargetKind | None) -> LabelledGraph:
    """Return the graph if targets are of `target_kind`; rows with a single 1 become classes, if classes are asked for.

    None: whatever they are by their shape. `UserError` where they are others.
    """
    if target_kind in (None, raw.target_kind):
        return raw
    labels, shape = raw.labels, list(raw.labels.shape)
    if target_kind == "labels":
        raise refusal(
            raw,
            "labels",
            f"one number for each node, {shape}: a class; and target=labels asks for several labels",
            fix="give y [num_nodes, num_labels] of 0 and 1 with two columns at least; one label alone is the classes 0"
            " and 1: leave target out",
        )
    is_known = is_labelled(labels)
    if ((labels == 1).sum(axis=1)[is_known] != 1).any():
        raise refusal(
            raw,
            "labels",
            f"several labels for some nodes, {shape}; and target=class asks for one class of each",
            fix="leave target out, or learn one of the labels: give its column as y",
        )
    return replace(raw, labels=np.where(is_known, (labels == 1).argmax(axis=1), -1).astype(np.int64))


def check_labelled(raw: LabelledGraph) -> None:
    """Refuse what cannot be trained on, with a `UserError` that says where it is and what to do."""
    _check_label_array(raw)
    check_raw_graph(raw)
    refuse_no_features(raw)
    _check_split(raw, raw.num_nodes)
    if raw.target_kind == "class":
        _check_classes(raw)
    else:
        _check_labels(raw)
    _refuse_bare(raw)


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
    is_wide = labels.ndim == 2 and labels.shape[1] > 1 and labels.dtype == np.int8
    if not is_wide and (labels.ndim != 1 or labels.dtype.kind not in "iu"):
        raise refusal(
            raw,
            "labels",
            f"{labels.dtype} {list(labels.shape)}",
            fix="give one integer class per node, -1: unlabelled; or int8 [num_nodes, num_labels], two labels at least",
        )


def _check_labels(raw: LabelledGraph) -> None:
    """Refuse labels that are not 0 and 1, or -1 in whole rows."""
    labels, names = raw.labels, raw.class_names
    fix = "give 1 where the node has the label and 0 where not; -1 in a whole row: unlabelled"
    outside = np.argwhere((labels < -1) | (labels > 1))
    if len(outside):
        node, label = outside[0]
        raise refusal(raw, "labels", f"node {node} has {labels[node, label]} for label {label}", fix=fix)
    partly = np.flatnonzero((labels == -1).any(axis=1) & (labels != -1).any(axis=1))
    if len(partly):
        node = int(partly[0])
        raise refusal(
            raw,
            "labels",
            f"node {node} lacks {np.count_nonzero(labels[node] == -1)} of its {labels.shape[1]} labels and has the"
            f" others ({len(partly)} such nodes)",
            fix=fix,
        )
    if not raw.has_labels:
        raise refusal(raw, "labels", "no node has labels", fix="leave y out: it is a graph without labels then")
    if names and (len(names) != labels.shape[1] or len(set(names)) != len(names)):
        raise refusal(
            raw,
            "labels",
            f"{len(names)} names, {len(set(names))} of them different, for {labels.shape[1]} labels",
            fix="give each label a name of its own in class_names, or leave the names out",
        )


def _check_classes(raw: LabelledGraph) -> None:
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


def _refuse_bare(raw: LabelledGraph) -> None:
    """Refuse nodes without a target in a split that is learned from, or judged by."""
    bare = np.flatnonzero(~is_labelled(raw.labels) & (raw.split != SPLIT_CODES["none"]))
    if len(bare):
        name = next(key for key, code in SPLIT_CODES.items() if code == raw.split[bare[0]])
        raise refusal(
            raw,
            "labels",
            f"node {bare[0]} is in the {name} split and has no label ({len(bare)} such nodes)",
            fix="label it, or take it out of the split",
        )
