"""Features of a batch's nodes: from the parts here, from rows that are held, and the rest from the ranks that own them.

One window of batches is fetched at a time: a row that several of them need travels once. A window is one batch unless
the ranks look ahead (`ahead.py`). Dense rows are copied by nobody before they are gathered into a batch: they are
found, natively and in one pass, where they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures
from graphmill.graph.sampled import NodeIds, StorageIds
from graphmill.graph.stacked import StackedFeatures
from graphmill.graph.topology import index_dtype
from graphmill.sample.distributed.letters import Letters
from graphmill.sample.distributed.rows import all_rows, sparse_rows_of
from graphmill.sample.distributed.shares import Shares
from graphmill.sample.distributed.wire import Wire

Ids = NDArray[np.int64]


@dataclass(slots=True)
class FetchCounts:
    """Rows of features that batches needed so far, of one rank."""

    needed: int = 0
    local: int = 0  # of parts that the rank reads itself
    held: int = 0  # of other parts, in the cache
    reused: int = 0  # fetched for an earlier batch: of the same window, or of one before
    fetched: int = 0  # from other ranks
    fetched_bytes: int = 0  # of these, features alone


@dataclass(frozen=True, slots=True)
class RowsOfBatch:
    """Tables, and which rows of them are those of a batch's nodes, in the order of the nodes."""

    tables: Features | StackedFeatures
    rows: StorageIds  # [num_nodes]

    def together(self, num_threads: int) -> Features:
        """The rows in one table of their own."""
        if isinstance(self.tables, StackedFeatures):
            return self.tables.take(self.rows, num_threads)
        return self.tables  # sparse ones were put together when they were fetched


class RowHolder(Protocol):
    """Rows of other parts that a rank holds, wherever they are: what a `FeatureFetcher` asks of a cache.

    A batch's rows are numbered through: the rank's own, then the holder's, then what the window fetched. So which rows
    of a batch the holder has can be read from their numbers, before anything is gathered.
    """

    @property
    def table(self) -> _native.NodeTable:
        """Node → row."""

    @property
    def features(self) -> Features:
        """The rows [len(table), num_features], as gathers on the host read them."""


@dataclass(frozen=True, slots=True)
class Held:
    """A `RowHolder` in the memory of the host."""

    features: Features
    table: _native.NodeTable  # node → row

    @classmethod
    def of(cls, nodes: Ids, features: Features) -> "Held":
        """Row i of `features` is that of nodes[i]; the nodes are distinct."""
        return cls(features, _native.NodeTable(nodes))


@dataclass(frozen=True, slots=True)
class NewRows:
    """What the batches of a window needed, and the rank had not."""

    nodes: Ids  # [n]
    features: Features
    places: Ids  # [n]: of each node, its row in `features`


@dataclass(slots=True)
class FeatureFetcher:
    """Rows of any nodes of the graph. All ranks must fetch equally often, in the same order."""

    shares: Shares
    wire: Wire
    features: tuple[Features, ...]  # of this rank's parts, as its model reads them
    num_threads: int
    held: RowHolder | None = None
    counts: FetchCounts = field(default_factory=FetchCounts)
    _finder: _native.RowFinder = field(init=False, repr=False)
    _asked: Letters = field(init=False, repr=False)
    _answers: Letters = field(init=False, repr=False)  # of sparse rows: nobody knows how long they are

    def __post_init__(self) -> None:
        begin, end = self.shares.own_parts
        self._finder = _native.RowFinder(self.shares.book.storage, begin, end)
        self._asked, self._answers = Letters(self.wire), Letters(self.wire)

    def fetch(self, batches: Sequence[NodeIds]) -> list[RowsOfBatch]:
        """Of each batch where its rows are."""
        found, _ = self.fetch_besides(batches, self.held)
        return found

    def fetch_besides(self, batches: Sequence[NodeIds], holder: RowHolder | None) -> tuple[list[RowsOfBatch], NewRows]:
        """Of each batch where its rows are, and what had to be fetched: what is neither here nor held by `holder`.

        What another holder than `held` has was fetched for an earlier batch.
        """
        window, rows_of, lacking, num_held = _native.Window(), list[Ids](), 0, 0
        table = None if holder is None else holder.table
        for nodes in batches:
            rows = np.empty(len(nodes), dtype=np.int64)
            local, held = self._finder.find(nodes, table, window, rows)
            self.counts.needed += len(nodes)
            self.counts.local += local
            num_held += held
            lacking += len(nodes) - local - held
            rows_of.append(rows)
        needed = window.nodes
        self.counts.fetched += len(needed)
        self.counts.reused += lacking - len(needed)
        if holder is self.held:
            self.counts.held += num_held
        else:
            self.counts.reused += num_held
        fetched, places = self.ask_owners(needed)
        tables = (*self.features, *(() if holder is None else (holder.features,)))
        first = sum(features.num_nodes for features in tables)
        tables += (fetched,)
        for rows in rows_of:
            _native.move_rows(rows, first, places)
        new = NewRows(needed, fetched, places)
        if isinstance(self.features[0], SparseFeatures):
            sparse = [sparse_rows_of(tables, rows) for rows in rows_of]
            return [RowsOfBatch(features, all_rows(features.num_nodes)) for features in sparse], new
        stacked = StackedFeatures.of(tables)
        return [RowsOfBatch(stacked, StorageIds(rows)) for rows in rows_of], new

    def ask_owners(self, nodes: Ids) -> tuple[Features, Ids]:
        """Rows of nodes of other ranks' parts, and which is whose: ids go to their owners, rows come back.

        All ranks must call it.
        """
        order, ends = self.shares.by_server(self.shares.locate(NodeIds(nodes)).servers)
        narrow = nodes[order].astype(index_dtype(self.shares.book.num_nodes))
        letters = self._asked.swap([narrow[begin:end] for begin, end in pairwise(ends)])
        asked = [letter.view(narrow.dtype) for letter in letters]
        before = self.wire.received_bytes
        serve = self._serve_sparse if isinstance(self.features[0], SparseFeatures) else self._serve_dense
        table = serve(asked, np.diff(ends).tolist())
        self.counts.fetched_bytes += self.wire.received_bytes - before
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return table, places

    def _own_rows(self, nodes: NDArray[Any]) -> Ids:
        return self.shares.book.storage_of(NodeIds(nodes)) - self.shares.own_parts[0]

    def _serve_dense(self, asked: Sequence[NDArray[Any]], counts: Sequence[int]) -> DenseFeatures:
        stacked = StackedFeatures.of(self.features)
        answers = stacked.take(StorageIds(self._own_rows(np.concatenate(asked))), self.num_threads)
        return DenseFeatures(self.wire.swap_joined(answers.x, [len(ids) for ids in asked], counts), stacked.dtype)

    def _serve_sparse(self, asked: Sequence[NDArray[Any]], counts: Sequence[int]) -> SparseFeatures:
        answers = [sparse_rows_of(self.features, self._own_rows(ids)) for ids in asked]
        parts = ((np.diff(a.indptr).astype(np.int32), a.indices, a.values) for a in answers)
        letters = self._answers.swap([np.concatenate([part.view(np.uint8) for part in of]) for of in parts])
        words = [letter.view(np.int32) for letter in letters]  # lengths of rows, then their columns, then their values
        lengths = [word[:count] for word, count in zip(words, counts, strict=True)]
        halves = [(len(word) - count) // 2 for word, count in zip(words, counts, strict=True)]
        indices = [word[count : count + half] for word, count, half in zip(words, counts, halves, strict=True)]
        values = [
            word[count + half :].view(np.float32) for word, count, half in zip(words, counts, halves, strict=True)
        ]
        indptr = np.zeros(sum(counts) + 1, dtype=np.int64)
        np.cumsum(np.concatenate(lengths), out=indptr[1:])
        return SparseFeatures(indptr, np.concatenate(indices), np.concatenate(values), self.features[0].num_features)
