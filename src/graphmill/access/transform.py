"""What a plan asks to be done to sparse features when they are read."""

from dataclasses import replace

import numpy as np

from graphmill.graph.features import Features, SparseFeatures
from graphmill.spec.transform import FeatureTransform


def transformed(features: Features, transform: FeatureTransform) -> Features:
    """Sparse features as the plan wants them; dense ones are as stored, for a model standardises them itself."""
    if not isinstance(features, SparseFeatures) or transform == "as_stored":
        return features
    if transform == "standardised":
        raise ValueError("sparse features are not standardised: their zeros would be filled in")
    if transform == "binary":
        return replace(features, values=np.ones_like(features.values))
    lengths = np.diff(features.indptr)
    sums = np.zeros(len(lengths), dtype=np.float32)
    np.add.at(sums, np.repeat(np.arange(len(lengths)), lengths), features.values)
    sums[sums == 0] = 1
    return replace(features, values=np.divide(features.values, np.repeat(sums, lengths), dtype=np.float32))
