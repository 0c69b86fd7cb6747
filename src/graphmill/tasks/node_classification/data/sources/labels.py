"""Targets of nodes from the numbers of a file: one class per node, or 0 and 1 of each of several labels; or none.

The shape says which: [num_nodes] and [num_nodes, 1] are classes, more columns are labels.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.splits import SPLIT_CODES, random_codes
from graphmill.tasks.node_classification.data.labelled import is_labelled

_FIX = "give 1 where the node has the label and 0 where not; -1 in a whole row: unlabelled"


def targets_of(y: NDArray[Any], *, place: str) -> NDArray[np.integer[Any]]:
    """Classes int64 [num_nodes], as `integer_labels` has them; of several columns labels int8 [num_nodes, num_labels].

    Args:
        y: numbers [num_nodes], or a column for each label.
        place: where they were read, for errors.
    """
    return binary_labels(y, place=place) if y.ndim == 2 and y.shape[1] > 1 else integer_labels(y, place=place)


def integer_labels(y: NDArray[Any], *, place: str) -> NDArray[np.int64]:
    """Labels [num_nodes] as int64; [num_nodes, 1] is flattened, whole floats are taken, NaN means unlabelled."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "iuf":
        raise UserError(
            f"{place}: labels are {y.dtype} {list(y.shape)}",
            fix="give one integer class per node; -1: unlabelled; or a column of 0 and 1 for each of several labels",
        )
    if y.dtype.kind != "f":
        too_large = y > np.iinfo(np.int64).max  # of an unsigned one; the checks refuse -2 and name the node
        labels: NDArray[np.int64] = np.where(too_large, -2, y.astype(np.int64))
        return labels
    y = np.where(np.isnan(y), -1, y)
    broken = np.flatnonzero((y != np.floor(y)) | (np.abs(y) >= 2**53))
    if len(broken):
        raise UserError(
            f"{place}: row {broken[0]} has label {y[broken[0]]}",
            fix="number the classes from 0; numbers that are to be predicted: --task node_regression",
        )
    return y.astype(np.int64)


def binary_labels(y: NDArray[Any], *, place: str) -> NDArray[np.int8]:
    """Labels [num_nodes, num_labels] as int8: 0 and 1; -1 in rows of nodes without labels, which NaN means too."""
    if y.dtype.kind not in "iufb":
        raise UserError(f"{place}: labels are {y.dtype} {list(y.shape)}", fix=_FIX)
    is_missing = (y == -1) | np.isnan(y) if y.dtype.kind == "f" else y == -1
    strange = np.argwhere(~is_missing & (y != 0) & (y != 1))
    if len(strange):
        row, column = strange[0]
        raise UserError(
            f"{place}: it has {y.shape[1]} columns, a label each, and row {row}, column {column} has {y[row, column]}",
            fix=f"{_FIX}; of one class per node give one column, the number of the class",
        )
    return np.where(is_missing, -1, y).astype(np.int8)


def class_names_of(names: NDArray[Any] | None, *, place: str) -> tuple[str, ...]:
    """Names of classes, or of labels, as strings; none if the file has none."""
    if names is None:
        return ()
    if names.ndim != 1 or names.dtype.kind != "U":
        raise UserError(f"{place}: {names.dtype} {list(names.shape)}", fix="give one string per class")
    return tuple(map(str, names))


def random_split(labels: NDArray[np.integer[Any]], seed: int) -> tuple[NDArray[np.int8], str]:
    """60 % train, 20 % val, 20 % test of the labelled nodes, and the sentence that says so."""
    return random_codes(is_labelled(labels), seed)


def no_labels(num_nodes: int) -> tuple[NDArray[np.int64], NDArray[np.int8], str]:
    """Labels, split and the sentence on it of a graph whose source has neither."""
    labels, split = np.full(num_nodes, -1, np.int64), np.full(num_nodes, SPLIT_CODES["none"], np.int8)
    return labels, split, "none: there are no labels"
