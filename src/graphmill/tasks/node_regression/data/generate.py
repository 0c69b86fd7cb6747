"""A synthetic graph whose nodes have values, for tests and timings. Every record of it says `synthetic`."""

import numpy as np

from graphmill.graph.features import DenseFeatures
from graphmill.graph.given_splits import random_codes
from graphmill.tasks.node_regression.data.values import ValuedGraph
from graphmill.tasks.node_regression.page.data import ValuesPrepareOptions

_NODES, _DEGREE, _FEATURES, _NOISE = 2000, 6, 8, 0.1


def generate(name: str, options: ValuesPrepareOptions) -> ValuedGraph:
    """Values of a node: a linear map of its features, one of the mean of its neighbours', and noise.

    They are far from 0 and of unlike scale, so that a model which does not standardise them learns little.
    """
    count, targets = options.num_nodes or _NODES, options.targets or 1
    rng = np.random.default_rng(options.seed or 0)
    x = rng.normal(size=(count, _FEATURES)).astype(np.float32)
    ends = rng.integers(0, count, (2, count * _DEGREE // 2))
    ends = ends[:, ends[0] != ends[1]]
    edges = np.unique(np.concatenate([ends, ends[::-1]], axis=1), axis=1)
    total = np.zeros((count, _FEATURES))
    np.add.at(total, edges[1], x[edges[0]])
    mean = total / np.bincount(edges[1], minlength=count).clip(min=1)[:, None]
    own, of_neighbours = rng.normal(size=(2, _FEATURES, targets))
    scale, offset = 10.0 ** np.arange(1, targets + 1), 100.0 * np.arange(1, targets + 1)
    y = x @ own + 2 * mean @ of_neighbours + _NOISE * rng.normal(size=(count, targets))
    split, note = random_codes(np.ones(count, dtype=np.bool_), options.split_seed)
    return ValuedGraph(
        edge_index=edges,
        features=DenseFeatures(x, "float32"),
        values=(offset + scale * y).astype(np.float32),
        split=split,
        name=name,
        source=f"generated: values num_nodes={count} targets={targets} seed={options.seed or 0}",
        synthetic=True,
        split_note=note,
    )
