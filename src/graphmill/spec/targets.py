"""What is to be learnt of each node: its one class, or which of several labels it has."""

from typing import Final, Literal

TargetKind = Literal["class", "labels"]
"""class: one of several; labels: of each of several whether the node has it (multi-label)."""

TARGET: Final = "target_kind"
"""Key of prepared data that says which; absent: class, as all earlier data are. In a plan, `target` names code."""


def stored_target(target: TargetKind, num_nodes: int, num_classes: int) -> tuple[str, tuple[int, ...]]:
    """dtype and shape of the targets `y` at rest: int64 [num_nodes], or int8 [num_nodes, num_labels].

    >>> stored_target("class", 5, 3), stored_target("labels", 5, 3)
    (('int64', (5,)), ('int8', (5, 3)))
    """
    return ("int64", (num_nodes,)) if target == "class" else ("int8", (num_nodes, num_classes))
