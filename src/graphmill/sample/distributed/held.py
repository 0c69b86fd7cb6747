"""Rows of other parts that stay: all the time, or from window to window for as long as a batch in sight needs them.

Each of the ranks of a host fetches a share of them, and all map the one table. Its memory has no name: it goes with the
last process that maps it, whoever is killed.
"""

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures, StackedFeatures
from graphmill.graph.sampled import NodeIds
from graphmill.sample.distributed.features import CachedRows, FeatureFetcher, RowsOfBatch
from graphmill.sample.distributed.rows import rows_of, sparse_rows_of
from graphmill.sample.hot.lookahead import Lookahead, LookaheadCache
from graphmill.sample.service.memory import SharedMemory

Ids = NDArray[np.int64]
Form = tuple[tuple[int, ...], np.dtype[Any]]  # of an array: its shape, and the format of its numbers
_AT_A_TIME: Final = 8 << 20  # bytes of rows that are asked for together
_SPARSE_AT_A_TIME: Final = 1 << 14  # such rows
_ALIGNED: Final = 64  # bytes; in front of the first array stands what the memory is known by


def hold(fetcher: FeatureFetcher, nodes: Ids) -> None:
    """Fetch these nodes of other parts, once for all, and keep their rows. All ranks must call it.

    `nodes`: distinct. What the first of the ranks that share parts gives is what all of them hold.
    """
    host_ranks, wire = fetcher.shares.host_ranks, fetcher.wire
    first = host_ranks.start == wire.rank
    given = wire.swap([nodes if first and rank in host_ranks else nodes[:0] for rank in range(wire.world_size)])
    nodes = given[host_ranks.start]
    bounds = np.linspace(0, len(nodes), len(host_ranks) + 1).astype(np.int64)
    mine = slice(*bounds[wire.rank - host_ranks.start :][:2])
    fill = _dense if isinstance(fetcher.features[0], DenseFeatures) else _sparse
    fetcher.held = CachedRows.of(nodes, fill(fetcher, nodes, mine))


def _dense(fetcher: FeatureFetcher, nodes: Ids, mine: slice) -> Features:
    """Dense rows of `nodes`, of which this rank fetches the share `mine`."""
    first = fetcher.features[0]
    assert isinstance(first, DenseFeatures)
    (x,) = _arrays(fetcher, [((len(nodes), first.num_features), first.x.dtype)])
    step, rows = max(1, _AT_A_TIME // (first.num_features * x.itemsize)), x[mine]
    for begin, fetched, places in _in_steps(fetcher, nodes[mine], step):
        StackedFeatures.of([fetched]).x.copy(places, rows[begin : begin + step], fetcher.num_threads)
    fetcher.wire.largest(0)  # all have written theirs
    return DenseFeatures(x, first.dtype)


def _sparse(fetcher: FeatureFetcher, nodes: Ids, mine: slice) -> Features:
    """Sparse rows of `nodes`, of which this rank fetches the share `mine`; lengths are known once they are here."""
    pieces = [sparse_rows_of([got], places) for _, got, places in _in_steps(fetcher, nodes[mine], _SPARSE_AT_A_TIME)]
    own = sparse_rows_of(pieces or fetcher.features, np.arange(mine.stop - mine.start))
    wire, host_ranks = fetcher.wire, fetcher.shares.host_ranks
    heard = wire.swap([np.array([len(own.values)])] * wire.world_size, [1] * wire.world_size)
    ends = np.cumsum([0, *(int(heard[rank][0]) for rank in host_ranks)])
    entries = slice(*ends[wire.rank - host_ranks.start :][:2])
    forms: list[Form] = [((len(nodes),), np.dtype(np.int64))]
    forms += [((int(ends[-1]),), array.dtype) for array in (own.indices, own.values)]
    lengths, indices, values = _arrays(fetcher, forms)
    lengths[mine], indices[entries], values[entries] = np.diff(own.indptr), own.indices, own.values
    wire.largest(0)
    indptr = np.zeros(len(nodes) + 1, dtype=np.int64)
    np.cumsum(lengths, out=indptr[1:])
    return SparseFeatures(indptr, indices, values, own.num_features)


def _in_steps(fetcher: FeatureFetcher, nodes: Ids, step: int) -> Iterator[tuple[int, Features, Ids]]:
    """Fetch rows in steps: messages for all at once would take several times the memory of the rows."""
    for begin in range(0, fetcher.wire.largest(len(nodes)), step):
        yield begin, *fetcher.ask_owners(nodes[begin : begin + step])


def _arrays(fetcher: FeatureFetcher, forms: Sequence[Form]) -> list[NDArray[Any]]:
    """Arrays that all ranks of a place write and read; what is in them is not defined."""
    wire, host_ranks = fetcher.wire, fetcher.shares.host_ranks
    if len(host_ranks) == 1:
        return [np.empty(shape, dtype) for shape, dtype in forms]
    sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in forms]
    begins = _ALIGNED * np.cumsum([1, *(-(-size // _ALIGNED) for size in sizes)])
    memory, secret = SharedMemory.make(), np.frombuffer(secrets.token_bytes(16), dtype=np.int64)
    if wire.rank == host_ranks.start:
        os.posix_fallocate(memory.fd, 0, int(begins[-1]))  # memory that is not there is an error now
        memory.bytes(int(begins[-1])).numpy()[:16] = secret.view(np.uint8)
    said = np.array([os.getpid(), memory.fd, *secret])
    heard = wire.swap([said] * wire.world_size, [len(said)] * wire.world_size)[host_ranks.start]
    if wire.rank != host_ranks.start:
        memory.close()
        memory = opened_memory(heard, host_ranks.start)
    content = memory.bytes(int(begins[-1])).numpy()
    wire.largest(0)  # all have it open
    memory.close()
    return [
        content[begin : begin + size].view(dtype).reshape(shape)
        for begin, size, (shape, dtype) in zip(begins[:-1], sizes, forms, strict=True)
    ]


def opened_memory(heard: Ids, rank: int) -> SharedMemory:
    """The memory of another process, which has said its id, its descriptor and what stands in the memory first."""
    pid, descriptor, *secret = heard.tolist()
    try:
        memory = SharedMemory(os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC))
        if memory.bytes(16).numpy().view(np.int64).tolist() == secret:
            return memory
        memory.close()
        reason = "it is another process"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    raise UserError(
        f"rank {rank} holds rows for all ranks of this host, and its memory (process {pid}) cannot be opened: {reason}",
        fix="start the ranks of a host in one container and as one user, or set partition.placement=per_rank",
    )


@dataclass(slots=True)
class LookaheadFetcher:
    """Rows of the windows of one rank, in the order of its batches. All ranks must fetch equally often.

    What stays is decided when the next window comes, not when the one before has been used: by then it has been
    sampled, and at the end of an epoch no guess is needed. Other fetches of the same `fetcher` change nothing here.
    """

    fetcher: FeatureFetcher
    planner: Lookahead
    _cache: LookaheadCache = field(init=False)
    _tables: tuple[Features, ...] = field(init=False)
    _rows: NDArray[np.int64] = field(init=False)  # of each node in cache, its row in the tables

    def __post_init__(self) -> None:
        self._cache = LookaheadCache(self.planner)
        self._tables, self._rows = self.fetcher.features, np.empty(0, dtype=np.int64)

    def fetch(self, window: Sequence[NodeIds], following: Sequence[Sequence[NodeIds]]) -> list[RowsOfBatch]:
        """Find the rows of each batch of a window. `following`: what the windows after it will need."""
        held = self._held_for([window, *following])
        found, new = self.fetcher.fetch_besides(window, held)
        self._cache.add(new.nodes)
        self._tables = (held.features, new.features)
        self._rows = np.concatenate([np.arange(held.features.num_nodes), new.places + held.features.num_nodes])
        return found

    def _held_for(self, coming: Sequence[Sequence[NodeIds]]) -> CachedRows:
        """What stays, in a table of its own; that of the window before is let go, before anything is fetched."""
        stays = self._cache.keep(coming)
        features = rows_of(self._tables, self._rows[stays], self.fetcher.num_threads)
        self._tables = (features,)
        return CachedRows.of(self._cache.nodes, features)
