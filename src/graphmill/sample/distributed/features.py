"""Features of a batch's nodes: from the parts here, from rows that are held, and the rest from the ranks that own them.

One window of batches is fetched at a time: a row that several of them need travels once, and what the window before it
fetched is used again. A window is one batch unless the ranks look ahead: which nodes the next batches need is known,
because draws are keyed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures
from graphmill.graph.sampled import NodeIds
from graphmill.graph.topology import index_dtype
from graphmill.sample.distributed.rows import Taken, put_together, take
from graphmill.sample.distributed.shares import Located, Shares
from graphmill.sample.distributed.wire import Wire

Ids = NDArray[np.int64]


@dataclass(slots=True)
class FetchCounts:
    """Rows of features that batches needed so far, of one rank."""

    needed: int = 0
    local: int = 0  # of parts that the rank reads itself
    held: int = 0  # of other parts, in the cache
    reused: int = 0  # fetched for an earlier batch of the same or the preceding window
    fetched: int = 0  # from other ranks
    fetched_bytes: int = 0  # of these, features alone


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of other parts that a rank holds."""

    features: Features
    table: _native.NodeTable  # node → row

    @classmethod
    def of(cls, nodes: Ids, features: Features) -> "Held":
        """Row i of `features` is that of nodes[i]; the nodes are distinct."""
        return cls(features, _native.NodeTable(nodes))

    def find(self, nodes: Ids) -> Ids:
        """The row of each node; -1 for those that are not held."""
        places = np.empty(len(nodes), dtype=np.int64)
        self.table.find(nodes, places)
        return places


@dataclass(slots=True)
class FeatureFetcher:
    """Rows of any nodes of the graph. All ranks must fetch equally often, in the same order."""

    shares: Shares
    wire: Wire
    features: tuple[Features, ...]  # of this rank's parts, as its model reads them
    num_threads: int
    reuses: bool = False  # rows of the window before
    held: Held | None = None
    counts: FetchCounts = field(default_factory=FetchCounts)
    _latest: Held | None = field(default=None, init=False)  # what the latest window fetched

    def hold(self, nodes: Ids) -> None:
        """Fetch these nodes of other parts, once for all, and keep their rows. All ranks must call it."""
        fetched = self._fetched(nodes)
        self.held = Held.of(nodes, fetched)

    def fetch(self, batches: Sequence[NodeIds]) -> list[Features]:
        """Of each batch a table of rows, in the order of its nodes."""
        located = [self.shares.locate(nodes) for nodes in batches]
        remote = [np.flatnonzero(found.servers != self.shares.rank) for found in located]
        in_held = [self._rows_in(self.held, nodes[there]) for nodes, there in zip(batches, remote, strict=True)]
        missing = [nodes[there[rows < 0]] for nodes, there, rows in zip(batches, remote, in_held, strict=True)]
        window = self._window(missing)
        self._count(batches, remote, in_held, missing)
        tables = []
        for nodes, found, there, rows in zip(batches, located, remote, in_held, strict=True):
            pieces = self._local(found)
            if self.held is not None:
                pieces.append(Taken(self.held.features, rows[rows >= 0], there[rows >= 0]))
            absent = there[rows < 0]
            pieces.append(Taken(window.features, window.find(nodes[absent]), absent))
            tables.append(put_together(pieces, len(nodes), self.num_threads))
        return tables

    @staticmethod
    def _rows_in(held: Held | None, nodes: Ids) -> Ids:
        return np.full(len(nodes), -1, dtype=np.int64) if held is None else held.find(nodes)

    def _window(self, missing: Sequence[Ids]) -> Held:
        """The rows that the batches of a window lack, each fetched once, or kept from the window before."""
        nodes = np.unique(np.concatenate(missing)) if len(missing) > 1 else missing[0]
        kept = self._rows_in(self._latest if self.reuses else None, nodes)
        is_new = kept < 0
        fetched = self._fetched(nodes[is_new])
        self.counts.fetched += int(np.count_nonzero(is_new))
        if is_new.all():
            window = Held.of(nodes, fetched)
        else:
            assert self._latest is not None
            new, old = np.flatnonzero(is_new), np.flatnonzero(~is_new)
            pieces = [Taken(fetched, np.arange(len(new)), new), Taken(self._latest.features, kept[old], old)]
            window = Held.of(nodes, put_together(pieces, len(nodes), self.num_threads))
        self._latest = window if self.reuses else None
        return window

    def _count(
        self, batches: Sequence[NodeIds], remote: Sequence[Ids], in_held: Sequence[Ids], missing: Sequence[Ids]
    ) -> None:
        counts = self.counts
        needed, away = sum(map(len, batches)), sum(map(len, remote))
        counts.needed += needed
        counts.local += needed - away
        counts.held += sum(int(np.count_nonzero(rows >= 0)) for rows in in_held)
        counts.reused = counts.needed - counts.local - counts.held - counts.fetched

    def _local(self, found: Located) -> list[Taken]:
        mine = np.flatnonzero(found.servers == self.shares.rank)
        if len(self.features) == 1:
            return [Taken(self.features[0], found.rows[mine], mine)]
        first = self.shares.parts[0].number
        pieces = []
        for number, features in enumerate(self.features):
            here = mine[found.parts[mine] == first + number]
            pieces.append(Taken(features, found.rows[here], here))
        return pieces

    def _fetched(self, nodes: Ids) -> Features:
        """Rows of nodes of other ranks' parts, in the order of `nodes`: ids go to their owners, rows come back."""
        order, ends = self.shares.by_server(self.shares.locate(NodeIds(nodes)).servers)
        narrow = nodes[order].astype(index_dtype(self.shares.book.num_nodes))
        asked = self.wire.swap([narrow[begin:end] for begin, end in pairwise(ends)])
        answers = [self._serve(NodeIds(ids.astype(np.int64))) for ids in asked]
        counts = np.diff(ends).tolist()
        before = self.wire.received_bytes
        table = self._swap_sparse(answers, counts) if _are_sparse(answers) else self._swap_dense(answers, counts)
        self.counts.fetched_bytes += self.wire.received_bytes - before
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return take(table, back, self.num_threads)

    def _serve(self, nodes: NodeIds) -> Features:
        found = self.shares.locate(nodes)
        return put_together(self._local(found), len(nodes), self.num_threads)

    def _swap_dense(self, answers: Sequence[Features], counts: Sequence[int]) -> Features:
        first = self.features[0]
        assert isinstance(first, DenseFeatures)
        rows = self.wire.swap([_dense(answer) for answer in answers], counts)
        return DenseFeatures(np.concatenate(rows), first.dtype)

    def _swap_sparse(self, answers: Sequence[Features], counts: Sequence[int]) -> Features:
        sparse = [answer for answer in answers if isinstance(answer, SparseFeatures)]
        lengths = self.wire.swap([np.diff(answer.indptr).astype(np.int32) for answer in sparse], counts)
        totals = [int(lengths_of.sum(dtype=np.int64)) for lengths_of in lengths]
        indices = self.wire.swap([answer.indices for answer in sparse], totals)
        values = self.wire.swap([answer.values for answer in sparse], totals)
        indptr = np.zeros(sum(counts) + 1, dtype=np.int64)
        np.cumsum(np.concatenate(lengths), out=indptr[1:])
        return SparseFeatures(indptr, np.concatenate(indices), np.concatenate(values), self.features[0].num_features)


def _are_sparse(answers: Sequence[Features]) -> bool:
    return isinstance(answers[0], SparseFeatures)


def _dense(features: Features) -> NDArray[Any]:
    assert isinstance(features, DenseFeatures)
    return features.x
