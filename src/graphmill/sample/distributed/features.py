"""Features of a batch's nodes: from the parts here, from rows that are held, and the rest from the ranks that own them.

One window of batches is fetched at a time: a row that several of them need travels once. A window is one batch unless
the ranks look ahead (`LookaheadFetcher`). A fetch alone takes two collectives, ids to the owners and rows back; where
the next window is known, its ids travel with the rows of this one (`announced.py`). Dense rows are copied by nobody
before they are gathered into a batch: they are found, natively and in one pass, where they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures, StackedFeatures
from graphmill.graph.sampled import NodeIds, StorageIds
from graphmill.sample.distributed.messages import Bytes, Exchange, KnownRows, Received
from graphmill.sample.distributed.rows import all_rows, sparse_rows_of
from graphmill.sample.distributed.shares import Questions, Shares
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

    def gathered(self, num_threads: int) -> Features:
        """The rows in one table of their own."""
        if isinstance(self.tables, StackedFeatures):
            return self.tables.gather(self.rows, num_threads)
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
class CachedRows:
    """A `RowHolder` in the memory of the host."""

    features: Features
    table: _native.NodeTable  # node → row

    @classmethod
    def of(cls, nodes: Ids, features: Features) -> "CachedRows":
        """Row i of `features` is that of nodes[i]; the nodes are distinct."""
        return cls(features, _native.NodeTable(nodes))


@dataclass(frozen=True, slots=True)
class NewRows:
    """What the batches of a window needed, and the rank had not."""

    nodes: Ids  # [n]
    features: Features
    places: Ids  # [n]: of each node, its row in `features`


@dataclass(frozen=True, slots=True)
class RowsNeeded:
    """What the batches of a window need, and what of it a rank has."""

    rows_of: list[Ids]  # of each batch [num_nodes]: where its rows are
    lacking: Ids  # nodes whose rows are asked for, none twice
    holder: RowHolder | None
    num_local: int  # of rows that all batches need, those of parts that the rank reads itself
    num_held: int  # and by the holder


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
    _questions: Exchange = field(init=False, repr=False)
    _answers: Exchange = field(init=False, repr=False)

    def __post_init__(self) -> None:
        begin, end = self.shares.own_parts
        self._finder = _native.RowFinder(self.shares.book.storage, begin, end)
        self._questions, self._answers = Exchange(self.wire), Exchange(self.wire)

    def fetch(self, batches: Sequence[NodeIds]) -> list[RowsOfBatch]:
        """Find the rows of each batch."""
        found, _ = self.fetch_besides(batches, self.held)
        return found

    def fetch_besides(self, batches: Sequence[NodeIds], holder: RowHolder | None) -> tuple[list[RowsOfBatch], NewRows]:
        """Find the rows of each batch, and return those that had to be fetched: neither here nor held by `holder`.

        What another holder than `held` has was fetched for an earlier batch.
        """
        needs = self.look_up(batches, holder)
        new = NewRows(needs.lacking, *self.ask_owners(needs.lacking, len(batches)))
        return self.put_together(needs, new), new

    def look_up(self, batches: Sequence[NodeIds], holder: RowHolder | None) -> RowsNeeded:
        """What the batches of a window need, and what of it is here. No other rank is asked."""
        window, rows_of, num_local, num_held = _native.Window(), list[Ids](), 0, 0
        table = None if holder is None else holder.table
        for nodes in batches:
            rows = np.empty(len(nodes), dtype=np.int64)
            local, held = self._finder.find(nodes, table, window, rows)
            num_local += local
            num_held += held
            rows_of.append(rows)
        return RowsNeeded(rows_of, window.nodes, holder, num_local, num_held)

    def put_together(self, needs: RowsNeeded, new: NewRows) -> list[RowsOfBatch]:
        """Find the rows of each batch, once those that were not here have come."""
        holder = needs.holder
        self._count(needs)
        tables = (*self.features, *(() if holder is None else (holder.features,)))
        first = sum(features.num_nodes for features in tables)
        tables += (new.features,)
        for rows in needs.rows_of:
            _native.move_rows(rows, first, new.places)
        if isinstance(self.features[0], SparseFeatures):
            sparse = [sparse_rows_of(tables, rows) for rows in needs.rows_of]
            return [RowsOfBatch(features, all_rows(features.num_nodes)) for features in sparse]
        stacked = StackedFeatures.of(tables)
        return [RowsOfBatch(stacked, StorageIds(rows)) for rows in needs.rows_of]

    def _count(self, needs: RowsNeeded) -> None:
        num_needed = sum(map(len, needs.rows_of))
        self.counts.needed += num_needed
        self.counts.local += needs.num_local
        self.counts.fetched += len(needs.lacking)
        reused = num_needed - needs.num_local - needs.num_held - len(needs.lacking)
        if needs.holder is self.held:
            self.counts.held += needs.num_held
        else:
            reused += needs.num_held
        self.counts.reused += reused

    def ask_owners(self, nodes: Ids, num_batches: int = 1) -> tuple[Features, Ids]:
        """Rows of nodes of other ranks' parts, and which is whose: ids go to their owners, rows come back.

        All ranks must call it, for equally many batches.
        """
        questions = self.shares.questions(NodeIds(nodes))
        heard = self.heard(self._questions.swap(questions.ids, num_batches))
        rows, messages = self.answer(heard, questions)
        received = self._answers.swap_sections(rows, [messages], num_batches)
        return self.table(received, received.sections[0], questions)

    def heard(self, messages: Sequence[Bytes]) -> list[NDArray[Any]]:
        """The nodes that each rank asks for."""
        return [message.view(self.shares.book.id_dtype) for message in messages]

    def answer(self, heard: Sequence[NDArray[Any]], questions: Questions) -> tuple[KnownRows, list[Bytes]]:
        """The rows that each rank asks for, in front of a message or in it: sparse ones have a length each."""
        if self._is_sparse:
            return KnownRows.none(len(heard)), [self._sparse_message(ids) for ids in heard]
        stacked = StackedFeatures.of(self.features)
        dtype, width = stacked.tables[0].x.dtype, stacked.num_features

        def write(rank: int, memory: Bytes) -> None:
            rows = StorageIds(self._own_rows(heard[rank]))
            stacked.x.copy(rows, memory.view(dtype).reshape(-1, width), self.num_threads)

        rows = KnownRows(dtype.itemsize * width, [len(ids) for ids in heard], questions.counts, write)
        return rows, [np.empty(0, dtype=np.uint8)] * len(heard)

    def table(self, received: Received, messages: Sequence[Bytes], questions: Questions) -> tuple[Features, Ids]:
        """What has come of `answer`, and of each node that was asked for its row."""
        first = self.features[0]
        if isinstance(first, SparseFeatures):
            self.counts.fetched_bytes += sum(map(len, messages))
            table = _sparse_table(messages, questions.counts, first.num_features)
            return table, questions.places(np.arange(len(questions.order)))
        self.counts.fetched_bytes += sum(questions.counts) * received.table.shape[1]
        rows = [begin + np.arange(count) for begin, count in zip(received.first_rows, questions.counts, strict=True)]
        return DenseFeatures(received.table.view(first.x.dtype), first.dtype), questions.places(np.concatenate(rows))

    @property
    def _is_sparse(self) -> bool:
        """Whether rows are sparse, so that each has a length."""
        return isinstance(self.features[0], SparseFeatures)

    def _own_rows(self, nodes: NDArray[Any]) -> Ids:
        return self.shares.book.storage_of(NodeIds(nodes)) - self.shares.own_parts[0]

    def _sparse_message(self, nodes: NDArray[Any]) -> Bytes:
        """Rows of sparse features: the lengths of all, then their columns, then their values."""
        rows = sparse_rows_of(self.features, self._own_rows(nodes))
        parts = (np.diff(rows.indptr).astype(np.int32), rows.indices, rows.values)
        return np.concatenate([part.view(np.uint8) for part in parts])


def _sparse_table(messages: Sequence[Bytes], counts: Sequence[int], num_features: int) -> SparseFeatures:
    """Table of the rows in the ranks' messages, rank after rank; `counts` [world_size]: rows of each."""
    lengths, indices, values = [], [], []
    for message, count in zip(messages, counts, strict=True):
        words = message.view(np.int32)
        middle = count + (len(words) - count) // 2
        lengths.append(words[:count])
        indices.append(words[count:middle])
        values.append(words[middle:].view(np.float32))
    indptr = np.zeros(sum(counts) + 1, dtype=np.int64)
    np.cumsum(np.concatenate(lengths), out=indptr[1:])
    return SparseFeatures(indptr, np.concatenate(indices), np.concatenate(values), num_features)
