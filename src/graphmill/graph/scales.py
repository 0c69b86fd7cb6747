"""Whether the columns of dense features are of unlike scale, so that a model learns badly from them as they are."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.features import DenseFeatures, to_float32
from graphmill.graph.pages import forget

_ROWS: Final = 1 << 18  # looked at, evenly spaced: scales that differ tenfold show in fewer
_BLOCK: Final = 1 << 12  # of these rows at a time
_FOLD: Final = 10.0


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
        forget(block)
