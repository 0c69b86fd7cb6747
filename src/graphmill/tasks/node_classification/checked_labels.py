"""Labels of splits against what the data say of them, before anything counts or indexes by them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.header import damaged
from graphmill.graph.splits import SPLITS, Split
from graphmill.partition.metadata import again
from graphmill.partition.parts import LabelsOfSplits, is_parts, read_parts_metadata
from graphmill.sample.collect import Labels
from graphmill.tasks.node_classification.targets import Classes, SeveralLabels

_AT_A_TIME: Final = 2**20  # nodes


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
    nodes: NDArray[np.int64], own: NDArray[np.integer[Any]] | None, labels: Labels
) -> Iterator[tuple[int, NDArray[np.integer[Any]]]]:
    for begin in range(0, len(nodes), _AT_A_TIME):
        block = slice(begin, begin + _AT_A_TIME)
        yield begin, labels[nodes[block]] if own is None else own[block]


def _refuse(path: Path, split: Split, problem: str) -> None:
    if not is_parts(path):
        raise damaged(path / "y.npy", problem)
    metadata = read_parts_metadata(path)
    raise UserError(f"{path / f'splits/{split}_y'}.npy: {problem}", fix=again(metadata, path))
