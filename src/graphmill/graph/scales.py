"""Whether the columns of dense features are of unlike scale, so that a model learns badly from them as they are."""

from typing import Final

import numpy as np

from graphmill.graph.features import DenseFeatures, to_float32

_ROWS: Final = 1 << 18  # looked at, evenly spaced: scales that differ tenfold show in fewer
_FOLD: Final = 10.0


def scales_differ(features: DenseFeatures) -> bool:
    """Whether standard deviations differ more than tenfold, or a mean is further than ten of them from 0.

    Of whole numbers from 0 on never: they are counts or marks, and their zeros say something. Columns that are
    constant do not count.
    """
    step = max(1, -(-features.num_nodes // _ROWS))
    rows = to_float32(DenseFeatures(np.asarray(features.x[::step]), features.dtype)).astype(np.float64)
    if bool((rows >= 0).all()) and np.array_equal(rows, np.floor(rows)):
        return False
    mean, sd = rows.mean(axis=0), rows.std(axis=0)
    varies = sd > 1e-6 * np.maximum(1e-30, np.abs(mean))  # more than rounding in float32 makes of a constant
    mean, sd = np.abs(mean[varies]), sd[varies]
    return len(sd) > 0 and bool(sd.max() > _FOLD * sd.min() or (mean > _FOLD * sd).any())
