"""Graphs divided into training, validation and test: stratified, and a function of (labels, seed) alone."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.keys import Purpose, key_of, keys_below
from graphmill.tasks.graph_classification.page import TRAIN_SHARE, VAL_SHARE

SPLIT_CODES: Final = {"train": 0, "val": 1, "test": 2}


def in_folds(labels: NDArray[np.int64], folds: int, fold: int, seed: int) -> NDArray[np.int8]:
    """Split of every graph [num_graphs]: fold `fold` is the test split, the next one (cyclically) for validation.

    Every fold has as many graphs of each class as the others, or one more or less, and the same holds for all graphs.
    """
    number = _dealt(labels, seed) % folds
    codes = np.full(len(labels), SPLIT_CODES["train"], np.int8)
    codes[number == fold] = SPLIT_CODES["test"]
    codes[number == (fold + 1) % folds] = SPLIT_CODES["val"]
    return codes


def at_random(labels: NDArray[np.int64], seed: int) -> NDArray[np.int8]:
    """80 % of the graphs for training, 10 % for validation, 10 % for the test, of each class."""
    share = (_dealt(labels, seed) % _PARTS) / _PARTS
    return np.select(
        [share < TRAIN_SHARE, share < TRAIN_SHARE + VAL_SHARE],
        [SPLIT_CODES["train"], SPLIT_CODES["val"]],
        SPLIT_CODES["test"],
    ).astype(np.int8)


_PARTS: Final = 10


def _dealt(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Places in the order in which graphs are dealt out, class after class, each class shuffled [num_graphs]."""
    keys = keys_below(key_of(seed, Purpose.SPLIT), np.arange(len(labels), dtype=np.int64))
    places = np.empty(len(labels), np.int64)
    places[np.lexsort((keys, labels))] = np.arange(len(labels))
    return places
