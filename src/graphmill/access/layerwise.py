"""Exact inference: every node over all its neighbours, layer by layer, shared out over the ranks.

Layer by layer no neighbourhood is computed twice, and only the rows that the wanted nodes depend on are computed at
all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill import _native
from graphmill.access.graph import LayerwiseModel, MeanAggregation
from graphmill.graph.batch import Block, SparseRows, on_device
from graphmill.graph.edge_features import EdgeFeatures
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures
from graphmill.graph.sampled import NodeIds, stored_whole
from graphmill.graph.topology import Topology, relabelled
from graphmill.nn.layer_edges import WeightedBlock
from graphmill.nn.operators import RELU, Activation
from graphmill.sample.collect import gather_sparse
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause, never_pause

_ROWS_AT_A_TIME = 8192  # rows whose inputs are in memory together


class BlockRows(Protocol):
    """Who reads rows for a block and averages them, where that is not the CPU; and where hidden rows lie."""

    def zeros(self, num_rows: int, width: int, *, is_table: bool) -> Tensor:
        """Room for rows of a layer; a table is what `self_and_mean` reads."""

    def with_sources(self, ids: NDArray[np.int64], indptr: NDArray[np.int64]) -> NDArray[np.int64]:
        """Distinct `ids` [n] and their in-neighbours, ascending; `indptr` [n + 1] counts these."""

    def self_and_mean(self, h: Tensor | None, ids: NDArray[np.int64], indptr: NDArray[np.int64]) -> Tensor:
        """Rows of distinct `ids` [n], each beside the mean of its in-neighbours' → float32 [n, 2 * width].

        `h` [num_nodes, width]: of a hidden layer, or None: features. `indptr` [n + 1] counts in-neighbours.
        """


@dataclass(frozen=True, slots=True)
class LayerwiseInference:
    """What a model gives nodes without sampling."""

    model: LayerwiseModel
    topology: Topology
    features: Features
    group: Group
    pause: Pause = never_pause  # called by all ranks before every block of rows
    edge_weights: EdgeFeatures | None = None  # one column, by which means are taken; None: edges count alike
    blocks: BlockRows | None = None  # None: the CPU's, of mapped features or the rows of a hidden layer in memory

    @torch.no_grad()
    def logits(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], Tensor]:
        """This rank's share of `nodes` and their logits [num_share, num_classes]. All ranks must call it."""
        hidden, readout = self._hidden(nodes), self.model.readout
        last = self._last(hidden, nodes, None if readout is None else RELU)
        share = self._share(nodes)
        return share, (last if readout is None else _read(readout, hidden, last, share)).cpu()

    @torch.no_grad()
    def embeddings(self, nodes: NDArray[np.int64]) -> Tensor:
        """What the last layer, or the head, reads of each of `nodes` [num_nodes, num_channels].

        For two layers or more, or a head; of a head in one process.
        """
        hidden, readout = self._hidden(nodes), self.model.readout
        if readout is not None:
            return _read(readout.read, hidden, self._last(hidden, nodes, RELU), nodes)
        return hidden[-1][torch.from_numpy(nodes)]

    @property
    def _layers(self) -> Sequence[MeanAggregation]:
        return self.model.mean_layers

    def _hidden(self, nodes: NDArray[np.int64]) -> list[Tensor]:
        """What layers but the last give [all nodes, hidden_channels], filled in where `nodes` need it.

        Of each layer where a head reads them all, else of the last of these alone.
        """
        layers = self._layers
        wanted = wanted_rows(self.topology, nodes, len(layers), self.blocks)
        hidden: list[Tensor] = []
        for number, layer in enumerate(layers[:-1]):
            counts = [len(self._share(wanted[number], rank)) for rank in range(self.group.world_size)]
            read = hidden[-1] if hidden else None
            rows = self.group.gather_rows(self._layer_rows(layer, read, wanted[number], RELU), counts)
            h = self._zeros(self.topology.num_nodes, layer.out_channels, is_table=True)
            h[on_device(torch.from_numpy(wanted[number]), h.device)] = rows
            hidden = [h] if self.model.readout is None else [*hidden, h]
        return hidden

    def _last(self, hidden: list[Tensor], nodes: NDArray[np.int64], activation: Activation | None) -> Tensor:
        """This rank's share of the rows `nodes` of the last layer."""
        return self._layer_rows(self._layers[-1], hidden[-1] if hidden else None, nodes, activation)

    def _zeros(self, num_rows: int, width: int, *, is_table: bool) -> Tensor:
        if self.blocks is None:
            return torch.zeros(num_rows, width)
        return self.blocks.zeros(num_rows, width, is_table=is_table)

    def _share(self, nodes: NDArray[np.int64], rank: int | None = None) -> NDArray[np.int64]:
        return np.array_split(nodes, self.group.world_size)[self.group.rank if rank is None else rank]

    def _layer_rows(
        self, layer: MeanAggregation, h: Tensor | None, nodes: NDArray[np.int64], activation: Activation | None
    ) -> Tensor:
        """This rank's share of the rows `nodes` of a layer's result.

        `h` [num_nodes, …] is the result of the layer before it; None: the features.
        """
        ids = self._share(nodes)
        rows = self._zeros(len(ids), layer.out_channels, is_table=False)
        for begin in range(0, len(self._share(nodes, 0)), _ROWS_AT_A_TIME):  # rank 0's share is never the smaller
            self.pause()
            block = ids[begin : begin + _ROWS_AT_A_TIME]
            if len(block):
                rows[begin : begin + len(block)] = self._block(layer, h, block, activation)
        return rows

    def _block(
        self, layer: MeanAggregation, h: Tensor | None, ids: NDArray[np.int64], activation: Activation | None
    ) -> Tensor:
        if self.edge_weights is not None:
            return self._weighted_block(layer, h, ids, activation, self.edge_weights)
        if self.blocks is not None:
            indptr = row_ends(self.topology, ids)
            return self._of_means(layer, h, self.blocks.self_and_mean(h, ids, indptr), indptr, activation)
        indptr, indices = in_edges(self.topology, ids)
        if h is None and isinstance(self.features, SparseFeatures):
            return self._sparse_block(layer, self.features, ids, indptr, indices, activation)
        table = self.features.x if h is None and isinstance(self.features, DenseFeatures) else h
        x = torch.empty(len(ids), 2 * layer.in_channels)
        _native.gather_self_and_mean(table, ids, None, indptr, indices, x, torch.get_num_threads())
        return self._of_means(layer, h, x.to(layer.weight.device), indptr, activation)

    def _of_means(
        self,
        layer: MeanAggregation,
        h: Tensor | None,
        x: Tensor,
        indptr: NDArray[np.int64],
        activation: Activation | None,
    ) -> Tensor:
        """Result of a layer for [self ; mean] rows `x` on its device."""
        if h is None and self.model.standardise is not None:
            x = self.model.standardise.of_self_and_mean(x, on_device(torch.from_numpy(indptr), x.device))
        return layer.on_self_and_mean(x, activation)

    def _weighted_block(
        self,
        layer: MeanAggregation,
        h: Tensor | None,
        ids: NDArray[np.int64],
        activation: Activation | None,
        edge_weights: EdgeFeatures,
    ) -> Tensor:
        """Result of a layer for `ids` where edges have weights: rows of neighbours are written out, once each."""
        indptr, entries = in_entries(self.topology, ids)
        neighbours, local = relabelled(self.topology.indices[entries], self.topology.num_nodes)
        nodes, device = np.concatenate([ids, neighbours]), layer.weight.device
        weights = np.ascontiguousarray(edge_weights.values[edge_weights.rows_of(entries), 0])
        block = weighted_block(indptr, local + len(ids), weights, device)
        if h is None and isinstance(self.features, SparseFeatures):
            rows = gather_sparse(self.features, stored_whole(NodeIds(nodes)), torch.get_num_threads())
            return layer.on_sparse(rows_on(rows, device), block, activation)
        table = self.features.x if h is None and isinstance(self.features, DenseFeatures) else h
        x = torch.empty(len(nodes), layer.in_channels)
        _native.gather_rows(table, nodes, x, torch.get_num_threads())
        x = x.to(device)
        if h is None and self.model.standardise is not None:
            x = self.model.standardise(x)
        return layer.on_rows(x, block, activation)

    def _sparse_block(
        self,
        layer: MeanAggregation,
        features: SparseFeatures,
        ids: NDArray[np.int64],
        indptr: NDArray[np.int64],
        indices: NDArray[np.int32],
        activation: Activation | None,
    ) -> Tensor:
        # Local ids: the block's own rows first, then its neighbours, so that a row's features are read once per block.
        neighbours, local = relabelled(indices, self.topology.num_nodes)
        x = gather_sparse(features, stored_whole(NodeIds(np.concatenate([ids, neighbours]))), torch.get_num_threads())
        device = layer.weight.device
        shifted = torch.from_numpy((local + len(ids)).astype(np.int32))
        block = Block(torch.from_numpy(indptr).to(device), shifted.to(device))
        return layer.on_sparse(rows_on(x, device), block, activation)


def _read(
    head: Callable[[Sequence[Tensor]], Tensor], hidden: Sequence[Tensor], last: Tensor, ids: NDArray[np.int64]
) -> Tensor:
    """What a head makes of the rows of all layers, some at a time: of `hidden` those of `ids` [n]; `last` [n, …]."""
    found = []
    for begin in range(0, max(1, len(ids)), _ROWS_AT_A_TIME):
        some = torch.from_numpy(ids[begin : begin + _ROWS_AT_A_TIME])
        rows = last[begin : begin + _ROWS_AT_A_TIME]
        found.append(head([*(h[on_device(some, h.device)] for h in hidden), rows]))
    return torch.cat(found)


def rows_on(x: SparseRows, device: torch.device) -> SparseRows:
    """Sparse rows moved to `device`."""
    return SparseRows(x.indptr.to(device), x.indices.to(device), x.values.to(device), x.num_features)


def weighted_block(
    indptr: NDArray[np.int64], indices: NDArray[np.int64], weights: NDArray[np.float32], device: torch.device
) -> WeightedBlock:
    """Block of local ids `indices` [num_edges] and the weights of these edges [num_edges], on `device`."""
    block = Block(torch.from_numpy(indptr).to(device), torch.from_numpy(indices.astype(np.int32)).to(device))
    return WeightedBlock.of(block, torch.from_numpy(weights).to(device))


def wanted_rows(
    topology: Topology, nodes: NDArray[np.int64], num_layers: int, blocks: BlockRows | None = None
) -> list[NDArray[np.int64]]:
    """Ascending ids of the rows of each layer that later layers read; for the last layer, `nodes`."""
    wanted = [nodes]
    for _ in range(num_layers - 1):
        if blocks is not None:
            wanted.insert(0, blocks.with_sources(wanted[0], row_ends(topology, wanted[0])))
            continue
        is_wanted = np.zeros(topology.num_nodes, dtype=bool)
        is_wanted[wanted[0]] = True
        is_wanted[in_edges(topology, wanted[0])[1]] = True
        wanted.insert(0, np.flatnonzero(is_wanted))
    return wanted


def in_edges(topology: Topology, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The in-edges of `ids` in compressed sparse form, with global ids: indptr [n + 1], indices [num_edges]."""
    indptr, entries = in_entries(topology, ids)
    return indptr, topology.indices[entries].astype(np.int32, copy=False)


def in_entries(topology: Topology, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places in the topology of the in-edges of `ids`: indptr [n + 1], entries [num_edges]."""
    starts, indptr = topology.indptr[ids], row_ends(topology, ids)
    return indptr, np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], np.diff(indptr))


def row_ends(topology: Topology, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the in-edges of each of `ids` end if they stand together: indptr [n + 1]."""
    indptr = np.zeros(len(ids) + 1, dtype=np.int64)
    np.cumsum(topology.indptr[ids + 1] - topology.indptr[ids], out=indptr[1:])
    return indptr
