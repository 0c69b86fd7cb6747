"""Mean and deviation of features, as scikit-learn's StandardScaler has them, and whether their scales are unlike."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.features import DenseFeatures, to_float32
from graphmill.graph.pages import evict

_ROWS_AT_A_TIME = 65_536
_ROWS: Final = 1 << 18  # looked at, evenly spaced: scales that differ tenfold show in fewer
_BLOCK: Final = 1 << 12  # of these rows at a time
_FOLD: Final = 10.0


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


def scales_differ(features: DenseFeatures) -> bool:
    """Whether standard deviations differ more than tenfold, or a mean is further than ten of them from 0.

    Of whole numbers from 0 on never: they are counts or marks, and their zeros say something. Columns that are
    constant do not count.
    """
    are_counts, num_rows = True, 0
    total = np.zeros(features.num_features)
    for rows in _looked_at(features):
        are_counts = are_counts and bool((rows >= 0).all()) and np.array_equal(rows, np.floor(rows))
        total += rows.sum(axis=0)
        num_rows += len(rows)
    if are_counts:
        return False
    mean = total / num_rows
    squares = sum(np.square(rows - mean).sum(axis=0) for rows in _looked_at(features))
    sd = np.sqrt(squares / num_rows)
    varies = sd > 1e-6 * np.maximum(1e-30, np.abs(mean))  # more than rounding in float32 makes of a constant
    mean, sd = np.abs(mean[varies]), sd[varies]
    return len(sd) > 0 and bool(sd.max() > _FOLD * sd.min() or (mean > _FOLD * sd).any())


def _looked_at(features: DenseFeatures) -> Iterator[NDArray[np.float64]]:
    """Blocks of the rows that are looked at; rows of a mapped file are in memory no longer than a block."""
    step = max(1, -(-features.num_nodes // _ROWS))
    for start in range(0, features.num_nodes, step * _BLOCK):
        block = features.x[start : start + step * _BLOCK]
        yield to_float32(DenseFeatures(np.asarray(block[::step]), features.dtype)).astype(np.float64)
        evict(block)
