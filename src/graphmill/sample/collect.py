"""Collect what a step computes on: features and labels of a sampled neighbourhood."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill import _native
from graphmill.graph.batch import Block, DenseRows, InputForm, Inputs, MiniBatch, SelfAndMean, SparseRows
from graphmill.graph.edge_features import EdgeFeatures, EdgeRows
from graphmill.graph.features import Features, SparseFeatures, StackedFeatures
from graphmill.graph.graph_set import Allocate
from graphmill.graph.sampled import AnySeeds, Sampled, StorageIds, stored_whole

Array = TypeVar("Array", Tensor, NDArray[Any])
# Batches that can be alive at once besides those in the queue: being made, being copied to a GPU, computed on.
_BATCHES_IN_MAKING_AND_USE = 3
_DTYPES_OF_A_CUT = (torch.float32, torch.int32, torch.int64)
_ARRAYS_OF_A_DTYPE = 2  # of each of them in a batch of whole graphs


@dataclass(slots=True)
class BufferRing(Generic[Array]):
    """Arrays that are reused after `size` later calls: fresh memory costs more than what is written to it."""

    size: int
    make: Callable[[int], Array]
    """Makes a flat one of so many values."""
    _slots: list[Array] = field(default_factory=list, init=False, repr=False)
    _next: int = field(default=0, init=False, repr=False)

    def allocate(self, *shape: int) -> Array:
        """Uninitialised, of this shape."""
        wanted = math.prod(shape)
        if self._next == len(self._slots):
            self._slots.append(self.make(0))
        if len(self._slots[self._next]) < wanted:
            self._slots[self._next] = self.make(wanted + wanted // 8)
        taken = self._slots[self._next][:wanted].reshape(shape)
        self._next = (self._next + 1) % self.size
        return taken

    def release(self) -> None:
        """Free what is not read any longer; the next calls take fresh memory."""
        self._slots.clear()
        self._next = 0


def tensor_ring(size: int, dtype: torch.dtype, *, pinned: bool = False) -> BufferRing[Tensor]:
    """Ring of tensors. `pinned`: page-locked, so that a GPU copies from it while the step computes."""
    return BufferRing(size, lambda number: torch.empty(number, dtype=dtype, pin_memory=pinned and number > 0))


def reused_buffers(prefetch: int, *, pinned: bool = False) -> Allocate:
    """Memory for `GraphSet.cut`: that of a batch is reused `prefetch` + 3 batches later, so use them in order."""
    size = _ARRAYS_OF_A_DTYPE * (prefetch + _BATCHES_IN_MAKING_AND_USE)

    def ring(dtype: torch.dtype) -> BufferRing[NDArray[Any]]:  # of numpy's, whose views cost a tenth of a tensor's
        return BufferRing(
            size, lambda number: torch.empty(number, dtype=dtype, pin_memory=pinned and number > 0).numpy()
        )

    rings = {np.dtype(str(dtype).removeprefix("torch.")): ring(dtype) for dtype in _DTYPES_OF_A_CUT}

    def allocate(shape: Any, dtype: np.dtype[Any]) -> NDArray[Any]:  # noqa: ANN401  # as numpy's: a number, or a tuple
        return rings[dtype].allocate(*shape) if isinstance(shape, tuple) else rings[dtype].allocate(shape)

    return allocate


class Labels(Protocol):
    """Targets by the ids of seeds: classes, or 0 and 1 of each of several labels."""

    def __getitem__(self, ids: NDArray[np.int64], /) -> NDArray[np.integer[Any]]:
        """Targets of each of `ids` [n]: int64 [n], or int8 [n, num_labels]."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a sampled neighbourhood reads, within this rank's reach: tables, and the rows of its nodes and edges."""

    features: Features | StackedFeatures
    rows: StorageIds  # [num_nodes]
    edge_values: EdgeRows = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))
    edge_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """[num_edges]; [0] if features of edges are not read."""


class NeighbourSource(Protocol):
    """Gives the neighbourhoods of seeds."""

    def sample(self, seeds: AnySeeds) -> Sampled:
        """The neighbourhood of `seeds`, which must be distinct."""


@runtime_checkable
class WindowSource(Protocol):
    """Gives the neighbourhoods of several batches for little more than the waiting of one."""

    def sample_window(self, window: Sequence[AnySeeds]) -> list[Sampled]:
        """Neighbourhoods of the batches of a window."""


def sample_window(source: NeighbourSource, window: Sequence[AnySeeds]) -> list[Sampled]:
    """The neighbourhoods of some consecutive batches."""
    if isinstance(source, WindowSource):
        return source.sample_window(window)
    return [source.sample(seeds) for seeds in window]


class FeatureSource(Protocol):
    """Brings what sampled neighbourhoods read within reach."""

    def fetch(self, window: Sequence[Sampled], following: Sequence[Sequence[Sampled]] | None = None) -> list[Fetched]:
        """Fetch what consecutive batches read. `following`: the windows in sight; None: no part of an epoch."""


@dataclass(frozen=True, slots=True)
class WholeTables:
    """Features of a graph that is stored whole: nothing has to be fetched."""

    features: Features
    edge_features: EdgeFeatures | None  # None: the model reads none

    def fetch(self, window: Sequence[Sampled], following: Sequence[Sequence[Sampled]] | None = None) -> list[Fetched]:
        """The tables themselves, and the rows in them."""
        return [self._of(sampled) for sampled in window]

    def _of(self, sampled: Sampled) -> Fetched:
        rows = stored_whole(sampled.node_ids)
        if self.edge_features is None:
            return Fetched(self.features, rows)
        return Fetched(self.features, rows, self.edge_features.values, self.edge_features.rows_of(sampled.edge_ids))


@dataclass(frozen=True, slots=True)
class Collector:
    """Features and labels for sampled neighbourhoods.

    The feature memory of a batch is reused `prefetch` + 3 batches later: use batches in order, and do not keep them.
    """

    labels: Labels
    form: InputForm
    dtype: torch.dtype  # of dense inputs: float32 or bfloat16
    num_threads: int
    prefetch: int
    pinned: bool = False
    edge_columns: int = 0  # features of an edge that the model reads
    node_types: NDArray[np.integer[Any]] | None = None  # of all nodes, by id; None: the model reads none
    _ring: BufferRing[Tensor] = field(init=False, repr=False)
    _edge_ring: BufferRing[Tensor] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        size = self.prefetch + _BATCHES_IN_MAKING_AND_USE
        object.__setattr__(self, "_ring", tensor_ring(size, self.dtype, pinned=self.pinned))
        object.__setattr__(self, "_edge_ring", tensor_ring(size, torch.float32, pinned=self.pinned))

    def collect(self, sampled: Sampled, fetched: Fetched) -> MiniBatch:
        """The mini-batch of a sampled neighbourhood and what was fetched for it, on the CPU."""
        return MiniBatch(
            seeds=sampled.seeds,
            node_ids=torch.from_numpy(sampled.node_ids),
            blocks=tuple(Block(torch.from_numpy(b.indptr), torch.from_numpy(b.indices)) for b in sampled.blocks),
            edge_attr=self._edge_attr(fetched),
            num_nodes_per_hop=sampled.num_nodes_per_hop,
            num_edges_per_hop=sampled.num_edges_per_hop,
            inputs=collect_inputs(
                fetched, sampled, form=self.form, allocate=self._ring.allocate, num_threads=self.num_threads
            ),
            labels=torch.from_numpy(self.labels[sampled.seeds.ids]),
            node_types=self.types_of(sampled),
        )

    def release(self) -> None:
        """Free the memory of batches that are done with, between epochs."""
        self._ring.release()
        self._edge_ring.release()

    def types_of(self, sampled: Sampled) -> Tensor:
        """Types of the nodes of a neighbourhood: int64 [num_nodes]; [0] if the model reads none."""
        if self.node_types is None:
            return torch.empty(0, dtype=torch.int64)
        return torch.from_numpy(self.node_types[sampled.node_ids].astype(np.int64))

    def _edge_attr(self, fetched: Fetched) -> Tensor:
        if not self.edge_columns:
            return torch.empty(0, 0)
        out = self._edge_ring.allocate(len(fetched.edge_rows), self.edge_columns)
        _native.gather_rows(fetched.edge_values, fetched.edge_rows, out, self.num_threads)
        return out


def collect_inputs(
    fetched: Fetched, sampled: Sampled, *, form: InputForm, allocate: Callable[[int, int], Tensor], num_threads: int
) -> Inputs:
    """The features of a neighbourhood in the form that the model's first layer reads.

    `allocate(num_rows, num_columns)` gives the memory for dense ones, and with it their number format.
    """
    features, ids = fetched.features, fetched.rows
    if isinstance(features, SparseFeatures):
        return gather_sparse(features, ids, num_threads)
    if form == "self_and_mean":
        block = sampled.blocks[0]
        x = allocate(block.num_rows, 2 * features.num_features)
        _native.gather_self_and_mean(
            features.x, ids[: block.num_rows], ids, block.indptr, block.indices, x, num_threads
        )
        return SelfAndMean(x)
    x = allocate(len(ids), features.num_features)
    _native.gather_rows(features.x, ids, x, num_threads)
    return DenseRows(x)


def gather_sparse(features: SparseFeatures, ids: StorageIds, num_threads: int) -> SparseRows:
    """The sparse features of the nodes stored in rows `ids` [n]."""
    table = features.indptr
    indptr = np.zeros(len(ids) + 1, dtype=np.int64)
    np.cumsum(table[ids + 1] - table[ids], out=indptr[1:])
    indices = np.empty(indptr[-1], dtype=np.int32)
    values = np.empty(indptr[-1], dtype=np.float32)
    _native.gather_sparse_rows(table, features.indices, features.values, ids, indptr, indices, values, num_threads)
    return SparseRows(
        torch.from_numpy(indptr), torch.from_numpy(indices), torch.from_numpy(values), features.num_features
    )
