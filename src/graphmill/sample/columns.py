"""Edges of one type in columns, as the native sampler reads them: with their times and weights, if they have any."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.base.errors import InvalidInputError

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The in-edges of every node, row after row; rows ascend by source, or by time where edges have times."""

    indptr: Ints  # [num_targets + 1]
    indices: NDArray[np.int32] | Ints  # [num_edges]: sources
    order: Ints | None = None  # [num_edges]: the caller's number of each edge; None: as they stand
    times: Ints | None = None  # [num_edges], ascending in each row
    weights: NDArray[np.float64] | None = None  # [num_edges]: summed up in each row
    ascends: bool = False  # every row by source

    @classmethod
    def of_edges(
        cls, sources: NDArray[Any], targets: NDArray[Any], num_sources: int, num_targets: int, num_threads: int
    ) -> "Columns":
        """Columns of edges [num_edges], int32 or int64, in range; by counting sort, unless they are sorted already."""
        num_edges = len(sources)
        indptr, indices = np.empty(num_targets + 1, np.int64), np.empty(num_edges, np.int32)
        order = np.empty(num_edges, np.int64)
        sources, targets = np.ascontiguousarray(sources), np.ascontiguousarray(targets)
        stayed = _native.compress(sources, targets, num_sources, indptr, indices, order, num_threads)
        return cls(indptr=indptr, indices=indices, order=None if stayed else order, ascends=True)

    @property
    def num_edges(self) -> int:
        """Entries, parallel edges counted each."""
        return len(self.indices)

    def numbers(self) -> Ints:
        """The caller's number of each edge."""
        return np.arange(self.num_edges) if self.order is None else self.order

    def ends(self) -> Ints:
        """[2, num_edges]: neighbours, then the nodes of the rows."""
        rows = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        return np.stack([self.indices.astype(np.int64), rows])

    def in_order(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values [num_edges] by the caller's numbers, as the edges stand here."""
        return values if self.order is None else values[self.order]

    def with_times(self, times: Ints, num_threads: int) -> "Columns":
        """Rows sorted by the times [num_edges] of the edges, as they stand here; edges of one time stay as they are."""
        order, indices, times = self.numbers().copy(), self.indices.astype(np.int32), times.copy()
        _native.sort_rows_by_time(self.indptr, indices, order, times, num_threads)
        return replace(self, indices=indices, order=order, times=times, ascends=False)

    def with_weights(self, weights: NDArray[np.float64]) -> "Columns":
        """Add weights [num_edges] in the order of the edges here, not negative; edges of weight 0 are left out."""
        kept = self
        if not weights.all():
            is_kept = weights > 0
            before = np.concatenate([[0], np.cumsum(is_kept)])
            kept = Columns(
                indptr=before[self.indptr],
                indices=self.indices[is_kept],
                order=self.numbers()[is_kept],
                times=None if self.times is None else self.times[is_kept],
            )
            weights = weights[is_kept]
        sums = np.empty(len(weights))
        _native.accumulate_weights(kept.indptr, weights, sums)
        return replace(kept, weights=sums)

    def relation(self, source: int, target: int) -> _native.Relation:
        """What the native sampler takes; `source` and `target` number types of nodes."""
        return _native.Relation(source, target, self.indptr, self.indices, self.order, self.weights, self.times)


def checked_columns(indptr: Ints, indices: NDArray[Any], num_sources: int, num_targets: int, of: str) -> None:
    """Refuse columns that were given (of a graph store, or a sparse matrix) and fit no graph."""
    fits = len(indptr) == num_targets + 1 and indptr[0] == 0 and indptr[-1] == len(indices)
    fits = fits and bool((np.diff(indptr) >= 0).all())
    if not fits:
        raise InvalidInputError(
            f"the columns of {of} do not fit {num_targets} nodes and {len(indices)} edges",
            fix="give offsets [num_nodes + 1] that begin at 0, do not fall, and end at the number of edges",
        )
    if len(indices) and not 0 <= indices.min() <= indices.max() < num_sources:
        raise InvalidInputError(
            f"the edges of {of} come from nodes {indices.min()} to {indices.max()}, and there are {num_sources}",
            fix="correct or drop those edges, or set the number of nodes",
        )
