"""Mean and standard deviation of features, as scikit-learn's StandardScaler has them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.features import DenseFeatures, to_float32

_ROWS_AT_A_TIME = 65_536


def statistics(features: DenseFeatures, nodes: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of every column over `nodes`; 1 for a constant column, as scikit-learn has it.

    In two passes over blocks of rows, in float64. Of no nodes: 0 and 1.
    """
    return statistics_of(lambda block: DenseFeatures(features.x[block], features.dtype), nodes, features.num_features)


def statistics_of(
    rows_of: Callable[[NDArray[np.int64]], DenseFeatures], nodes: NDArray[np.int64], num_features: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and deviation of rows that `rows_of` brings in blocks; len(nodes) alone decides how often it is called."""
    blocks = np.array_split(nodes, max(1, -(-len(nodes) // _ROWS_AT_A_TIME)))
    mean = np.zeros(num_features)
    for block in blocks:
        mean += _as_float64(rows_of(block)).sum(axis=0) / max(1, len(nodes))
    variance = np.zeros(num_features)
    for block in blocks:
        variance += np.square(_as_float64(rows_of(block)) - mean).sum(axis=0) / max(1, len(nodes))
    return mean, np.where(_is_constant(mean, variance, len(nodes)), 1.0, np.sqrt(variance))


def _is_constant(mean: NDArray[np.float64], variance: NDArray[np.float64], num_nodes: int) -> NDArray[np.bool_]:
    """Whether a variance is at most what rounding makes of a constant column (scikit-learn's bound)."""
    eps = np.finfo(np.float64).eps
    found: NDArray[np.bool_] = variance <= num_nodes * eps * variance + (num_nodes * mean * eps) ** 2
    return found


def _as_float64(rows: DenseFeatures) -> NDArray[np.float64]:
    return to_float32(rows).astype(np.float64)
