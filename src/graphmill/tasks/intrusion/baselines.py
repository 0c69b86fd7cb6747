"""What detectors without a graph score: counts of ids and their gaps, a linear model of pairs of ids, and trees.

Rates: of every id two numbers: how many frames of the window it has, and the logarithm of the mean time between them,
which is the time of the window divided by that count. Each is measured in standard deviations from its mean over the
benign windows for training; the score of a window is the largest of them. An id that those windows lack has the mean
count 0. It is what a model has to beat: it reads neither payloads nor the order of frames.

Pairs: logistic regression on how often one id follows another. It reads the order of frames and learns from labelled
windows, as detectors do; a linear model of these counts is what a practitioner would try first.

Boosting: it reads counts, gaps and the mean payload, but not the order of frames, and learns from labelled windows.
scikit-learn's trees: an optional extra, for this baseline is the only one that asks for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.splits import Split
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import MOST_BYTES, MOST_OPERATIONS, BaselineScore, work_text
from graphmill.tasks.intrusion.data.splits import SPLITS
from graphmill.tasks.intrusion.data.store import CaptureStore
from graphmill.tasks.intrusion.data.windows import Ids, WindowGraphs
from graphmill.tasks.intrusion.page import BOOSTING, PAIRS, RATES, IntrusionPlan
from graphmill.tasks.intrusion.threshold import choose_threshold, measured
from graphmill.tasks.regression import Csr, fit

_LEAST_COUNT_STD: Final = 0.5  # frames: a count is a whole number, and half of one is no deviation
_LEAST_GAP_STD: Final = 0.05  # of a logarithm: 5 per cent
_FEWEST: Final = 10  # windows with an id, before its gaps are judged
_AT_ONCE: Final = 2**12  # windows
_BYTES: Final = 8
_TREES: Final = 100
_A_CELL: Final = 1.5e4  # operations of all trees; 1.7 µs on a core of 2026


@dataclass(frozen=True, slots=True)
class Frequencies:
    """Means and standard deviations over benign windows, by id."""

    ids: NDArray[np.uint32]
    """Rising [num_ids]; each array below has one more entry, of all ids that are not among them."""
    count_mean: NDArray[np.float64]
    count_std: NDArray[np.float64]
    gap_mean: NDArray[np.float64]
    """Of logarithms of seconds; NaN where too few windows have the id, or the captures have no times."""
    gap_std: NDArray[np.float64]

    @classmethod
    def fit(cls, graphs: WindowGraphs, is_fitted: NDArray[np.bool_]) -> "Frequencies":
        """Fit to the graphs that `is_fitted` [num_graphs] selects: benign ones for training. `UserError` if none is."""
        if not is_fitted.any():
            raise UserError("no window for training is benign", fix="give train a larger share, or a benign capture")
        senders = _senders(graphs)
        ids = np.unique(senders.id[is_fitted[senders.window] & (senders.count > 0)])
        blank = np.full(len(ids) + 1, np.nan)
        count_sum, count_squares, gap_sum, gap_squares, num_gaps = (np.zeros(len(ids) + 1) for _ in range(5))
        for begin in range(0, len(graphs), _AT_ONCE):
            rows = np.flatnonzero(is_fitted[begin : begin + _AT_ONCE])
            count, gap = (each[rows] for each in _table(cls(ids, *[blank] * 4), senders, begin, len(graphs)))
            count_sum += count.sum(axis=0)
            count_squares += (count**2).sum(axis=0)
            num_gaps += np.isfinite(gap).sum(axis=0)
            gap_sum += np.nansum(gap, axis=0)
            gap_squares += np.nansum(gap**2, axis=0)
        count_mean, count_std = _moments(count_sum, count_squares, np.full(len(ids) + 1, is_fitted.sum()))
        gap_mean, gap_std = _moments(gap_sum, gap_squares, np.where(num_gaps >= _FEWEST, num_gaps, np.nan))
        return cls(
            ids, count_mean, np.maximum(count_std, _LEAST_COUNT_STD), gap_mean, np.maximum(gap_std, _LEAST_GAP_STD)
        )

    def score(self, graphs: WindowGraphs) -> NDArray[np.float64]:
        """Score of each graph [num_graphs], zero or more."""
        senders = _senders(graphs)
        scores = np.zeros(len(graphs))
        for begin in range(0, len(graphs), _AT_ONCE):
            count, gap = _table(self, senders, begin, len(graphs))
            of_counts = np.abs(count - self.count_mean) / self.count_std
            of_gaps = np.abs(gap - self.gap_mean) / self.gap_std
            part = np.maximum(of_counts, np.nan_to_num(of_gaps, nan=0.0)).max(axis=1)
            scores[begin : begin + len(part)] = part
        return scores

    def tables(self, graphs: WindowGraphs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Counts and logarithms of gaps [num_graphs, num_ids + 1]; no gap is NaN."""
        senders = _senders(graphs)
        parts = [_table(self, senders, begin, len(graphs)) for begin in range(0, len(graphs), _AT_ONCE)]
        return np.concatenate([count for count, _ in parts]), np.concatenate([gap for _, gap in parts])


@dataclass(frozen=True, slots=True)
class _Senders:
    """A row for every node of every graph."""

    window: Ids
    id: NDArray[np.uint32]
    count: Ids
    seconds: NDArray[np.float64]  # [num_graphs]: of each window


def frames_sent(graphs: WindowGraphs) -> Ids:
    """Frames of each node [n]: the pairs that begin at it, its edges' counts; a last frame has none."""
    first_node = np.cumsum(graphs.num_nodes) - graphs.num_nodes
    source = graphs.edge_index[0] + np.repeat(first_node, graphs.num_edges)
    counts = np.bincount(source, weights=graphs.edge_attr[:, 0], minlength=len(graphs.node_ids))
    return counts.round().astype(np.int64)


def _senders(graphs: WindowGraphs) -> _Senders:
    window = np.repeat(np.arange(len(graphs)), graphs.num_nodes)
    return _Senders(window, graphs.node_ids, frames_sent(graphs), graphs.times[:, 1] - graphs.times[:, 0])


def _table(
    known: Frequencies, senders: _Senders, begin: int, num_windows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Counts and logarithms of gaps [n, num_ids + 1] of up to `_AT_ONCE` windows from `begin` on; no gap is NaN."""
    end = min(begin + _AT_ONCE, num_windows)
    rows = slice(*np.searchsorted(senders.window, [begin, end]))
    window, ids = senders.window[rows] - begin, senders.id[rows]
    at = np.searchsorted(known.ids, ids)
    column = np.where(known.ids[np.minimum(at, len(known.ids) - 1)] == ids, at, len(known.ids))
    width = len(known.ids) + 1
    flat = np.bincount(window * width + column, weights=senders.count[rows], minlength=(end - begin) * width)
    counts: NDArray[np.float64] = flat.reshape(end - begin, width).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = np.log(senders.seconds[begin:end, None] / counts)
    gaps[(counts == 0) | ~np.isfinite(gaps)] = np.nan
    return counts, gaps


def _moments(
    sums: NDArray[np.float64], squares: NDArray[np.float64], count: NDArray[np.float64] | Ids
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean = sums / count
    return mean, np.sqrt(np.maximum(squares / count - mean**2, 0))


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


def score(
    task_plan: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool
) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of intrusion detection. The threshold is chosen on the validation windows."""
    assert isinstance(task_plan, IntrusionPlan)
    store = CaptureStore.open(Path(task_plan.dataset.path))
    codes, labels = store.split_codes(task_plan.division), np.asarray(store.labels)
    is_train, is_val, windows = codes == SPLITS.index("train"), codes == SPLITS.index("val"), store.windows()
    for name in names:
        why_not = _why_not(name, labels[is_train], labels[is_val])
        if name == BOOSTING.name and bounded and not why_not:
            operations, num_bytes = boosting_cost(windows)
            if operations > MOST_OPERATIONS or num_bytes > MOST_BYTES:
                work = work_text(operations, num_bytes)
                why_not = f"it would take {work}: graphmill baseline {task_plan.dataset.name} --all scores it"
        if why_not:
            yield from (BaselineScore(name, split, None, why_not) for split in splits)
            continue
        scores = _scores(name, windows, labels, is_train)
        threshold = choose_threshold(scores[is_val], labels[is_val] == 1).value
        for split in splits:
            ids = np.flatnonzero(codes == SPLITS.index(split))
            yield BaselineScore(name, split, measured(store, ids, scores[ids], threshold))


def _why_not(name: str, train: NDArray[np.int64], val: NDArray[np.int64]) -> str:
    """Why a baseline cannot be scored with these labels; "": it can."""
    if len(np.unique(val)) < 2:
        return "the validation windows are all of one kind, and no threshold can be chosen"
    if name != RATES.name and len(np.unique(train)) < 2:
        return "the training windows are all of one kind"
    if name == BOOSTING.name and (why_not := why_no_boosting()):
        return why_not
    return "" if (train == 0).any() else "no training window is benign"


def _scores(
    name: str, windows: WindowGraphs, labels: NDArray[np.int64], is_train: NDArray[np.bool_]
) -> NDArray[np.float64]:
    if name == PAIRS.name:
        return scores_by_pairs(windows, labels, is_train)
    if name == BOOSTING.name:
        return scores_by_boosting(windows, labels, is_train)
    return Frequencies.fit(windows, is_train & (labels == 0)).score(windows)
