"""What a window scores by a linear model: logistic regression on how often one id follows another.

It reads the order of frames, which `statistic.py` does not, and learns from labelled windows, as detectors do; a linear
model of these counts is what a practitioner would try first.
"""

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.intrusion.data.windows import WindowGraphs
from graphmill.tasks.regression import Csr, fit


def scores_by_pairs(
    graphs: WindowGraphs, labels: NDArray[np.int64], is_fitted: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Log-odds of an attack in each window [num_graphs], learnt from those that `is_fitted` selects, of both kinds.

    Pairs of ids that these windows lack are one column together.
    """
    rows = _counts(graphs, is_fitted)
    model = fit([rows.rows(np.flatnonzero(is_fitted))], labels[is_fitted], num_classes=2)
    logits = model.logits([rows]).numpy()
    return np.asarray(logits[:, 1] - logits[:, 0], dtype=np.float64)


def _counts(graphs: WindowGraphs, is_fitted: NDArray[np.bool_]) -> Csr:
    """How often each pair of ids is in each window, [num_graphs, num_pairs + 1]."""
    first_node = np.repeat(np.cumsum(graphs.num_nodes) - graphs.num_nodes, graphs.num_edges)
    ends = graphs.node_ids[graphs.edge_index + first_node].astype(np.uint64)
    pairs = ends[0] << np.uint64(32) | ends[1]
    known = np.unique(pairs[np.repeat(is_fitted, graphs.num_edges)])
    place = np.searchsorted(known, pairs)
    is_known = known[np.minimum(place, len(known) - 1)] == pairs
    columns = np.where(is_known, place, len(known)).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(graphs.num_edges)]).astype(np.int64)
    return Csr(indptr, columns, np.asarray(graphs.edge_attr[:, 0], dtype=np.float32), len(known) + 1)
