"""Labels of splits against the number of classes, before anything counts or indexes by them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.header import damaged
from graphmill.graph.splits import SPLITS, Split
from graphmill.partition.metadata import again
from graphmill.partition.parts import LabelsOfSplits, is_parts, read_parts_metadata
from graphmill.sample.collect import Labels

_AT_A_TIME: Final = 2**20  # nodes


def refuse_unknown_classes(
    path: Path, labels: Labels, nodes_in: Callable[[Split], NDArray[np.int64]], num_classes: int
) -> None:
    """Raise a `UserError` if a node of a split has a label that is none of 0 … num_classes - 1."""
    for number, split in enumerate(SPLITS):
        nodes = nodes_in(split)
        own = labels.splits[number][1] if isinstance(labels, LabelsOfSplits) else None
        for begin, found in _in_blocks(nodes, own, labels):
            wrong = np.flatnonzero((found < 0) | (found >= num_classes))
            if len(wrong):
                node, label = nodes[begin + wrong[0]], found[wrong[0]]
                _refuse(path, split, f"node {node} of the {split} split has label {label} of {num_classes} classes")


def _in_blocks(
    nodes: NDArray[np.int64], own: NDArray[np.int64] | None, labels: Labels
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    for begin in range(0, len(nodes), _AT_A_TIME):
        block = slice(begin, begin + _AT_A_TIME)
        yield begin, labels[nodes[block]] if own is None else own[block]


def _refuse(path: Path, split: Split, problem: str) -> None:
    if not is_parts(path):
        raise damaged(path / "y.npy", problem)
    metadata = read_parts_metadata(path)
    raise UserError(f"{path / f'splits/{split}_y'}.npy: {problem}", fix=again(metadata, path))
