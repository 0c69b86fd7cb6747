"""Features of a batch's nodes: from the parts here, from rows that are held, and the rest from the ranks that own them.

One window of batches is fetched at a time: a row that several of them need travels once. A window is one batch unless
the ranks look ahead (`ahead.py`). A fetch alone takes two collectives, ids to the owners and rows back; where the next
window is known, its ids travel with the rows of this one (`pipelined.py`). Dense rows are copied by nobody before they
are gathered into a batch: they are found, natively and in one pass, where they are.
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
from graphmill.sample.distributed.letters import Bytes, KnownRows, Letters, Received
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


@dataclass(frozen=True, slots=True)
class RowsNeeded:
    """What the batches of a window need, and what of it a rank has."""

    rows_of: list[Ids]  # of each batch [num_nodes]: where its rows are
    lacking: Ids  # nodes whose rows are asked for, none twice
    holder: RowHolder | None
    num_local: int  # of rows that all batches need, those of parts that the rank reads itself
    num_held: int  # and by the holder


@dataclass(frozen=True, slots=True)
class RowsAsked:
    """Whom a window's rows are asked of."""

    order: Ids  # [n]: of the nodes, by the rank that owns them
    counts: list[int]  # [world_size]: how many each is asked for
    questions: list[NDArray[Any]]  # [world_size]: their ids

    @property
    def in_turn(self) -> Ids:
        """Of each node its row in a table that has one rank's rows after another's."""
        return self.places(np.arange(len(self.order)))

    def places(self, rows: Ids) -> Ids:
        """The same of a table where those of the nodes in `order` are `rows`."""
        places = np.empty_like(self.order)
        places[self.order] = rows
        return places


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
        needs = self.look_up(batches, holder)
        new = NewRows(needs.lacking, *self.ask_owners(needs.lacking, len(batches)))
        return self.put_together(needs, new), new

    def look_up(self, batches: Sequence[NodeIds], holder: RowHolder | None) -> RowsNeeded:
        """What the batches of a window need, and what of it is here. Nobody is asked."""
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
        """Of each batch where its rows are, once those that were not here are."""
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
        asked = self.ask(nodes)
        heard = self.heard(self._asked.swap(asked.questions, num_batches))
        before = self.wire.received_bytes
        table: Features
        if self.is_sparse:
            table = self.sparse_table(self._answers.swap(self.sparse_rows(heard), num_batches), asked.counts)
        else:
            table = self._serve_dense(heard, asked.counts)
        self.counts.fetched_bytes += self.wire.received_bytes - before
        return table, asked.in_turn

    def ask(self, nodes: Ids) -> RowsAsked:
        """What to ask the ranks for, who own these nodes: none is of the rank itself."""
        order, ends = self.shares.by_server(self.shares.locate(NodeIds(nodes)).servers)
        narrow = nodes[order].astype(self._id_dtype)
        return RowsAsked(order, np.diff(ends).tolist(), [narrow[begin:end] for begin, end in pairwise(ends)])

    def heard(self, letters: Sequence[Bytes]) -> list[NDArray[Any]]:
        """The nodes that each rank asks for."""
        return [letter.view(self._id_dtype) for letter in letters]

    def dense_rows(self, heard: Sequence[NDArray[Any]], asked: RowsAsked) -> KnownRows:
        """The rows of dense features that go to and come from each rank."""
        stacked = StackedFeatures.of(self.features)
        dtype, width = stacked.tables[0].x.dtype, stacked.num_features

        def write(rank: int, memory: Bytes) -> None:
            rows = StorageIds(self._own_rows(heard[rank]))
            stacked.x.copy(rows, memory.view(dtype).reshape(-1, width), self.num_threads)

        return KnownRows(dtype.itemsize * width, [len(nodes) for nodes in heard], asked.counts, write)

    def dense_table(self, received: Received, asked: RowsAsked) -> tuple[DenseFeatures, Ids]:
        """What has come of `dense_rows`, and which row is whose."""
        first = self.features[0]
        assert isinstance(first, DenseFeatures)
        own = [begin + np.arange(n) for begin, n in zip(received.first_rows, asked.counts, strict=True)]
        self.counts.fetched_bytes += sum(asked.counts) * received.table.shape[1]
        return DenseFeatures(received.table.view(first.x.dtype), first.dtype), asked.places(np.concatenate(own))

    @property
    def is_sparse(self) -> bool:
        """Whether rows have a length each."""
        return isinstance(self.features[0], SparseFeatures)

    @property
    def _id_dtype(self) -> np.dtype[Any]:
        return np.dtype(index_dtype(self.shares.book.num_nodes))

    def _own_rows(self, nodes: NDArray[Any]) -> Ids:
        return self.shares.book.storage_of(NodeIds(nodes)) - self.shares.own_parts[0]

    def _serve_dense(self, asked: Sequence[NDArray[Any]], counts: Sequence[int]) -> DenseFeatures:
        stacked = StackedFeatures.of(self.features)
        answers = stacked.take(StorageIds(self._own_rows(np.concatenate(asked))), self.num_threads)
        return DenseFeatures(self.wire.swap_joined(answers.x, [len(ids) for ids in asked], counts), stacked.dtype)

    def sparse_rows(self, heard: Sequence[NDArray[Any]]) -> list[Bytes]:
        """The rows of sparse features that each rank asks for: their lengths, then their columns, then their values."""
        answers = [sparse_rows_of(self.features, self._own_rows(ids)) for ids in heard]
        parts = ((np.diff(a.indptr).astype(np.int32), a.indices, a.values) for a in answers)
        return [np.concatenate([part.view(np.uint8) for part in of]) for of in parts]

    def sparse_table(self, letters: Sequence[Bytes], counts: Sequence[int]) -> SparseFeatures:
        """What has come of `sparse_rows`, rank after rank."""
        words = [letter.view(np.int32) for letter in letters]
        lengths = [word[:count] for word, count in zip(words, counts, strict=True)]
        halves = [(len(word) - count) // 2 for word, count in zip(words, counts, strict=True)]
        indices = [word[count : count + half] for word, count, half in zip(words, counts, halves, strict=True)]
        values = [
            word[count + half :].view(np.float32) for word, count, half in zip(words, counts, halves, strict=True)
        ]
        indptr = np.zeros(sum(counts) + 1, dtype=np.int64)
        np.cumsum(np.concatenate(lengths), out=indptr[1:])
        return SparseFeatures(indptr, np.concatenate(indices), np.concatenate(values), self.features[0].num_features)
