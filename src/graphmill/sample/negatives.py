"""Negatives that are right: pairs of nodes that no known edge joins, each drawn by a key of its own.

PyG's loaders draw pairs and never look whether they are edges (its issue 6004). Here every pair is checked against the
edges of the graph and those that the loader learns from; of temporal graphs, against the edges until the time of the
pair, and with nodes that exist then.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill import _native
from graphmill.base.errors import InvalidInputError
from graphmill.sample.columns import Columns, Ints

_TRIES: Final = 32  # draws for a pair; in a graph with half of all pairs, one of 4 billion needs more


@dataclass(slots=True)
class KnownEdges:
    """Edges of one type that no negative may be, rows ascending by source, then by time."""

    columns: Columns
    num_sources: int
    _lookup: _native.EdgeLookup | None = field(default=None, init=False, repr=False)
    _by_time: tuple[Ints, Ints] | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, edges: NDArray[np.int64], times: Ints | None, num_sources: int, num_targets: int) -> "KnownEdges":
        """Sort edges [2, num_edges], which may stand twice; `times` [num_edges]: since when each exists."""
        if times is not None:
            by_time = np.argsort(times, kind="stable")
            edges, times = edges[:, by_time], times[by_time]
        columns = Columns.of_edges(edges[0], edges[1], num_sources, num_targets, torch.get_num_threads())
        if times is None:
            return cls(columns, num_sources)
        times = columns.in_order(times)
        return cls(Columns(indptr=columns.indptr, indices=columns.indices, times=times), num_sources)

    def __getstate__(self) -> tuple[Columns, int]:
        return self.columns, self.num_sources

    def __setstate__(self, state: tuple[Columns, int]) -> None:
        self.columns, self.num_sources = state
        self._lookup = self._by_time = None

    @property
    def lookup(self) -> _native.EdgeLookup:
        """The native form, made when first asked for, in each process."""
        if self._lookup is None:
            columns = self.columns
            self._lookup = _native.EdgeLookup(columns.indptr, columns.indices, columns.times, self.num_sources)
        return self._lookup

    def are_edges(self, sources: Ints, targets: Ints, times: Ints | None) -> NDArray[np.bool_]:
        """Whether each pair [n] is one of them, until the pair's time where times are given."""
        found = np.empty(len(sources), np.bool_)
        self.lookup.find(sources, targets, times, found, torch.get_num_threads())
        return found

    def are_edges_among(self, sources: Ints, targets: Ints) -> NDArray[np.bool_]:
        """Whether each source [n] has an edge to each target [m] at any time, [n, m]: the targets' edges are read."""
        begins = self.columns.indptr[targets]
        counts = self.columns.indptr[targets + 1] - begins
        column = np.repeat(np.arange(len(targets)), counts)
        first = np.cumsum(counts) - counts  # of each target, in `known`
        known = self.columns.indices[np.arange(len(column)) + (begins - first)[column]]
        order = np.argsort(sources, kind="stable")
        low, high = (np.searchsorted(sources[order], known, side=side) for side in ("left", "right"))
        found = np.zeros((len(sources), len(targets)), np.bool_)
        while len(column):  # a source stands several times: one of its places in each round
            is_left = low < high
            low, high, column = low[is_left], high[is_left], column[is_left]
            found[order[low], column] = True
            low = low + 1
        return found

    @property
    def by_time(self) -> tuple[Ints, Ints]:
        """Times [num_edges], ascending, and the targets of the edges in that order; made when first asked for."""
        if self._by_time is None:
            times = self.columns.times
            if times is None:
                raise InvalidInputError("the edges have no times", fix="name them: time_attr='time'")
            order = np.argsort(times, kind="stable")
            self._by_time = times[order], self.columns.ends()[1][order]
        return self._by_time

    def sources_of(self, target: int, time: int | None) -> Ints:
        """Sources of the edges into a node, until a time."""
        row = slice(self.columns.indptr[target], self.columns.indptr[target + 1])
        sources = self.columns.indices[row].astype(np.int64)
        if time is None or self.columns.times is None:
            return sources
        return sources[self.columns.times[row] <= time]

    def targets_of(self, source: int, time: int | None) -> Ints:
        """Targets of the edges out of a node, until a time; all edges are looked at."""
        is_there = self.columns.indices == source
        if time is not None and self.columns.times is not None:
            is_there &= self.columns.times <= time
        return np.searchsorted(self.columns.indptr, np.flatnonzero(is_there), side="right") - 1


@dataclass(frozen=True, slots=True)
class Ends:
    """Nodes that one end of a negative is drawn from."""

    count: int
    weights: NDArray[np.float64] | None  # [count], or all alike
    times: Ints | None  # [count] since when each exists
    sums: NDArray[np.float64] | None = None  # cumulative weights

    @classmethod
    def of(cls, count: int, weight: Tensor | None, times: Ints | None) -> "Ends":
        """Check the weights [count] of PyG's `NegativeSampling`, which need not sum to one, and draw by them."""
        if weight is None:
            return cls(count, None, times)
        weights = np.asarray(weight.detach().cpu().numpy(), dtype=np.float64).reshape(-1)
        if len(weights) != count:
            raise InvalidInputError(
                f"there are {len(weights)} weights of negatives, and {count} nodes", fix="give one for each node"
            )
        if not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
            raise InvalidInputError(
                "weights of negatives are negative, not finite or all zero",
                fix="give finite weights, one of which is above 0",
            )
        return cls(count, weights, times, np.cumsum(weights))

    def drawn(self, count: int, rng: np.random.Generator) -> Ints:
        """Nodes [count], which may stand twice."""
        if self.sums is None:
            return rng.integers(self.count, size=count)
        last = np.searchsorted(self.sums, self.sums[-1])  # that has a weight
        found: Ints = np.minimum(np.searchsorted(self.sums, rng.random(count) * self.sums[-1], side="right"), last)
        return found

    def exist(self, nodes: Ints, times: Ints) -> NDArray[np.bool_]:
        """Whether each node [n] may be drawn at a time [n]."""
        exist = np.ones(len(nodes), np.bool_) if self.weights is None else self.weights[nodes] > 0
        return exist if self.times is None else exist & (self.times[nodes] <= times)

    def allowed(self, time: int | None) -> NDArray[np.float64]:
        """The weight of each node at a time: 0 where it does not exist yet."""
        weights = np.ones(self.count) if self.weights is None else self.weights
        return weights if time is None or self.times is None else np.where(self.times <= time, weights, 0.0)


@dataclass(frozen=True, slots=True)
class Negatives:
    """What a batch asks for: pairs, or targets of given sources."""

    known: KnownEdges
    sources: Ends
    targets: Ends

    def draw(
        self, count: int, given: Ints | None, times: Ints | None, key: int, *, numbers: Ints | None = None
    ) -> tuple[Ints, Ints]:
        """Sources and targets [count] that no known edge joins, until `times` [count] where they are given.

        Args:
            count: how many.
            given: sources [count], or None: both ends are drawn.
            times: of each pair.
            key: of the batch.
            numbers: [count] of the draws, below the key; None: their places.

        Raises:
            InvalidInputError: every pair that may be drawn is an edge.
        """
        sources, targets = np.empty(count, np.int64), np.empty(count, np.int64)
        if count == 0:
            return sources, targets
        num_failed = _native.draw_negatives(
            known=self.known.lookup,
            num_sources=self.sources.count,
            num_targets=self.targets.count,
            source_weights=self.sources.sums,
            target_weights=self.targets.sums,
            source_times=self.sources.times,
            target_times=self.targets.times,
            given=given,
            at=times,
            numbers=numbers,
            key=key,
            tries=_TRIES,
            source_out=sources,
            target_out=targets,
            num_threads=torch.get_num_threads(),
        )
        for at in np.flatnonzero(targets < 0) if num_failed else ():
            time, number = None if times is None else int(times[at]), int(at if numbers is None else numbers[at])
            rng = np.random.Generator(np.random.PCG64(_native.subkey(_native.subkey(key, number), 2 * _TRIES)))
            if given is None:
                targets[at] = self._target_of_any(time, rng)
                sources[at] = _one_of(self._sources_left(int(targets[at]), time), rng)
            else:
                targets[at] = _one_of(self._targets_left(int(given[at]), time), rng)
        return sources, targets

    def _sources_left(self, target: int, time: int | None) -> NDArray[np.float64]:
        left = self.sources.allowed(time).copy()
        left[self.known.sources_of(target, time)] = 0
        return left

    def _targets_left(self, source: int, time: int | None) -> NDArray[np.float64]:
        left = self.targets.allowed(time).copy()
        left[self.known.targets_of(source, time)] = 0
        if not left.any():
            raise InvalidInputError(
                f"node {source} has edges to all nodes that could be its negatives",
                fix="leave its edges out of edge_label_index, or ask for no negatives",
            )
        return left

    def _target_of_any(self, time: int | None, rng: np.random.Generator) -> int:
        """A target in proportion to the sources that are left for it, so that every pair has its chance."""
        weights = self.targets.allowed(time)
        left = np.array(
            [
                weight * self._sources_left(target, time).sum() if weight else 0.0
                for target, weight in enumerate(weights)
            ]
        )
        if not left.any():
            raise InvalidInputError(
                "every pair of nodes is an edge: there is no negative", fix="ask for none: neg_sampling=None"
            )
        return _one_of(left, rng)


def _one_of(weights: NDArray[np.float64], rng: np.random.Generator) -> int:
    sums = np.cumsum(weights)
    place = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    return min(place, int(np.flatnonzero(weights)[-1]))
