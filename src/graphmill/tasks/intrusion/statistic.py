"""What a window scores without a graph: how far counts and gaps of its ids are from those of benign windows.

Of every id two numbers: how many frames of the window it has, and the logarithm of the mean time between them, which is
the time of the window divided by that count. Each is measured in standard deviations from its mean over the benign
windows for training; the score of a window is the largest of them. An id that those windows lack has the mean count 0.
It is what a model has to beat: it reads neither payloads nor the order of frames.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.data.windows import Ids, WindowGraphs

_LEAST_COUNT_STD: Final = 0.5  # frames: a count is a whole number, and half of one is no deviation
_LEAST_GAP_STD: Final = 0.05  # of a logarithm: 5 per cent
_FEWEST: Final = 10  # windows with an id, before its gaps are judged
_AT_ONCE: Final = 2**12  # windows


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
