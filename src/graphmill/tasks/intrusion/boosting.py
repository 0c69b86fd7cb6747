"""What a window scores by gradient boosting on counts, gaps and payloads of its ids, as a practitioner would try it.

It reads what `statistic.py` does and the mean payload, but not the order of frames, and learns from labelled windows.
scikit-learn's trees: an optional extra, for this baseline is the only one that asks for it.
"""

from importlib.util import find_spec
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.intrusion.data.windows import WindowGraphs
from graphmill.tasks.intrusion.statistic import Frequencies, frames_sent

_BYTES: Final = 8
_TREES: Final = 100
_A_CELL: Final = 1.5e4  # operations of all trees; 1.7 µs on a core of 2026


def why_no_boosting() -> str:
    """Why it cannot be scored here; "": it can."""
    return "" if find_spec("sklearn") else "it needs scikit-learn: pip install 'graphmill[boosting]'"


def boosting_cost(graphs: WindowGraphs) -> tuple[float, float]:
    """Operations and bytes that it takes, about: bytes of its table, of copies of it, and of the trees' bins."""
    cells = float(2 + _BYTES) * len(graphs) * len(np.unique(graphs.node_ids))
    return _A_CELL * cells, 3 * 4 * cells


def scores_by_boosting(
    graphs: WindowGraphs, labels: NDArray[np.int64], is_fitted: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Log-odds of an attack in each window [num_graphs], learnt from those that `is_fitted` selects, of both kinds."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits  # comes with it

    rows = _of_ids(graphs, is_fitted, is_benign=is_fitted & (labels == 0))
    rows = rows[:, np.isfinite(rows[is_fitted]).any(axis=0)]  # such as gaps of captures without times
    trees = HistGradientBoostingClassifier(max_iter=_TREES, early_stopping=False, random_state=0)
    with threadpool_limits(limits=1):  # its threads spin: on a host that others use, two take ten times as long as one
        trees.fit(rows[is_fitted], labels[is_fitted])
    found: NDArray[np.float64] = trees.decision_function(rows)
    return found


def _of_ids(graphs: WindowGraphs, is_fitted: NDArray[np.bool_], *, is_benign: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Counts and gaps of the ids of benign windows and of all others together, mean payload bytes of each fitted id.

    [num_graphs, 2 * (num_benign_ids + 1) + 8 * num_fitted_ids]; NaN where a window has none.
    """
    frequencies = Frequencies.fit(graphs, is_benign)
    counts, gaps = frequencies.tables(graphs)
    window = np.repeat(np.arange(len(graphs)), graphs.num_nodes)
    known = np.unique(graphs.node_ids[is_fitted[window]])
    place = np.minimum(np.searchsorted(known, graphs.node_ids), len(known) - 1)
    is_known = known[place] == graphs.node_ids
    payloads = np.full((len(graphs), len(known), _BYTES), np.nan, np.float32)
    has_sent = is_known & (frames_sent(graphs) > 0)  # the id behind a window's end has sent nothing in it
    payloads[window[has_sent], place[has_sent]] = graphs.x[has_sent, :_BYTES]
    return np.concatenate([counts, gaps, payloads.reshape(len(graphs), -1)], axis=1, dtype=np.float32)
