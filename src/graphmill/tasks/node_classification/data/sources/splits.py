"""Splits and labels of graphs whose source has none: drawn at random, or none at all."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.given_splits import random_codes
from graphmill.graph.splits import SPLIT_CODES
from graphmill.tasks.node_classification.data.labelled import is_labelled


def random_split(labels: NDArray[np.integer[Any]], seed: int) -> tuple[NDArray[np.int8], str]:
    """60 % train, 20 % val, 20 % test of the labelled nodes, and the sentence that says so."""
    return random_codes(is_labelled(labels), seed)


def no_labels(num_nodes: int) -> tuple[NDArray[np.int64], NDArray[np.int8], str]:
    """Labels, split and the sentence on it of a graph whose source has neither."""
    labels, split = np.full(num_nodes, -1, np.int64), np.full(num_nodes, SPLIT_CODES["none"], np.int8)
    return labels, split, "none: there are no labels"
