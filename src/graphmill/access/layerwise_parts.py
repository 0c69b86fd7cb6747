"""Exact inference over a partitioned graph: each rank computes the rows that it owns, layer by layer.

No rank holds an array of all nodes: of hidden layers it keeps its own rows, on a disk if they are many, and asks the
owners for those of its rows' in-neighbours, a block at a time. Rows are computed as in `LayerwiseInference`, by the
same kernels in the same order.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill import _native
from graphmill.access.graph import LayerwiseModel, MeanAggregation
from graphmill.access.hidden_rows import HiddenRows
from graphmill.access.layerwise import in_entries, weighted_block
from graphmill.graph.batch import Block, SparseRows
from graphmill.graph.features import DenseFeatures, SparseFeatures, StackedFeatures
from graphmill.graph.pages import evict
from graphmill.graph.sampled import NodeIds, StorageIds
from graphmill.graph.topology import relabelled, sorted_unique
from graphmill.nn.layer_edges import WeightedBlock
from graphmill.nn.operators import RELU, Activation
from graphmill.partition.parts import Part
from graphmill.runtime.machine import return_free_memory
from graphmill.sample.distributed.features import FeatureFetcher, RowsOfBatch
from graphmill.sample.distributed.rows import row_bytes_of
from graphmill.sample.distributed.shares import Shares
from graphmill.sample.distributed.wire import Wire
from graphmill.spec.parted_memory import BLOCK_BYTES
from graphmill.sync.pause import Pause

Ids = NDArray[np.int64]
_ROWS_OF_ITS_OWN: Final = 3  # of inputs that a row has beside those of its neighbours: its own, twice as wide a result
_BYTES_OF_AN_EDGE: Final = 64  # of arrays of ids while neighbours are found


@dataclass(frozen=True, slots=True)
class PartedInference:
    """What a model gives nodes without sampling, on the CPU. All ranks must call it together."""

    model: LayerwiseModel
    shares: Shares
    wire: Wire
    fetcher: FeatureFetcher
    undirected: bool
    weight_column: int | None  # of the edges' features: means are by it; None: edges count alike
    pause: Pause  # called by all ranks before every block of rows

    @torch.no_grad()
    def logits(self, nodes: Ids) -> tuple[Ids, Tensor]:
        """Nodes of `nodes` that this rank owns, ascending, and their logits [num_owned, num_classes]."""
        layers, readout = self.model.mean_layers, self.model.readout
        return_free_memory()  # of training, whose batches are made by another thread: this one would not reuse it
        mine = np.sort(nodes[self.shares.owner_of(NodeIds(nodes)) == self.shares.rank])
        wanted = self._wanted(mine, len(layers))
        hidden: list[HiddenRows] = []  # of all layers where a head reads them, else of the last one
        for layer, rows in zip(layers[:-1], wanted[:-1], strict=True):
            h = hidden[-1] if hidden else None
            result = HiddenRows.of(self._own_row(rows), self.shares.num_owned, layer.out_channels, self.wire)
            for begin, found in self._blocks_of(layer, h, rows, RELU):
                result.write(begin, found.numpy())
            if h is None:
                self._evict_features()
            hidden = [result] if readout is None else [*hidden, result]
        logits = torch.empty(len(mine), layers[-1].out_channels if readout is None else readout.out_channels)
        h, activation = hidden[-1] if hidden else None, None if readout is None else RELU
        for begin, found in self._blocks_of(layers[-1], h, mine, activation):
            end = begin + len(found)
            if readout is not None:
                found = readout([*(self._stored(h, mine[begin:end]) for h in hidden), found])
            logits[begin:end] = found
        return mine, logits

    def _stored(self, h: HiddenRows, nodes: Ids) -> Tensor:
        """Rows of a hidden layer, of owned nodes [n]."""
        return torch.from_numpy(h.table.x[h.find(self._own_row(nodes))])

    def _evict_features(self) -> None:
        """Drop mapped pages of the features: they were read once through, and hidden rows take their place."""
        for features in self.fetcher.features:
            for array in (features.x,) if isinstance(features, DenseFeatures) else (features.indices, features.values):
                evict(array)

    def _wanted(self, nodes: Ids, num_layers: int) -> list[Ids]:
        """Owned nodes whose rows of each layer are read by later layers, of any rank; for the last layer, `nodes`."""
        wanted = [nodes]
        for _ in range(num_layers - 1):
            is_wanted = np.zeros(self.shares.num_owned, dtype=bool)
            is_wanted[self._own_row(wanted[0])] = True
            for begin, end in self._cuts(wanted[0], _BYTES_OF_AN_EDGE):
                neighbours = sorted_unique(self._in_edges(wanted[0][begin:end])[1].astype(np.int64))
                for request in self._ask(neighbours)[1]:
                    is_wanted[self._own_row(request)] = True
            wanted.insert(0, self.shares.owned_nodes(np.flatnonzero(is_wanted)))
        return wanted

    def _blocks_of(
        self, layer: MeanAggregation, h: HiddenRows | None, nodes: Ids, activation: Activation | None
    ) -> Iterator[tuple[int, Tensor]]:
        """Rows of a layer's result, some at a time, and where they begin; `h`: of the layer before; None: features."""
        row_bytes = row_bytes_of(self.fetcher.features[0] if h is None else h.table)
        for begin, end in self._cuts(nodes, max(_BYTES_OF_AN_EDGE, row_bytes)):
            self.pause()
            yield begin, self._block(layer, h, nodes[begin:end], activation)

    def _cuts(self, nodes: Ids, bytes_of_input: float) -> list[tuple[int, int]]:
        """Where nodes [n] are cut, so that what their rows are made of fills no more than `BLOCK_BYTES`.

        As many pieces on every rank; the last ones may be empty. A row that alone has more makes a piece of its own.
        """
        sizes = np.cumsum(self._degrees(nodes) + _ROWS_OF_ITS_OWN) * bytes_of_input
        ends = [0]
        while ends[-1] < len(nodes):
            before = sizes[ends[-1] - 1] if ends[-1] else 0
            ends.append(max(ends[-1] + 1, int(np.searchsorted(sizes, before + BLOCK_BYTES, side="right"))))
        ends += [len(nodes)] * (self.wire.largest(len(ends)) - len(ends))
        return list(pairwise(ends))

    def _block(self, layer: MeanAggregation, h: HiddenRows | None, nodes: Ids, activation: Activation | None) -> Tensor:
        indptr, indices = self._in_edges(nodes)
        neighbours, local = relabelled(indices, self.shares.book.num_nodes)
        ids = np.concatenate([nodes, neighbours])
        (found,) = self.fetcher.fetch([NodeIds(ids)]) if h is None else (self._hidden_of(h, ids),)
        if not len(nodes):
            return torch.empty(0, layer.out_channels)
        if self.weight_column is not None:
            weights, device = self._weights_of(nodes), layer.weight.device
            block = weighted_block(indptr, local + len(nodes), weights, device)
            return self._weighted_block(layer, h, found, block, activation)
        shifted = (local + len(nodes)).astype(np.int32)
        if isinstance(found.tables, SparseFeatures):
            return _sparse_block(layer, found.tables, indptr, shifted, activation)
        assert isinstance(found.tables, StackedFeatures)
        x = torch.empty(len(nodes), 2 * layer.in_channels)
        own = found.rows[: len(nodes)]
        _native.gather_self_and_mean(found.tables.x, own, found.rows, indptr, shifted, x, torch.get_num_threads())
        if h is None and self.model.standardise is not None:
            device = layer.weight.device
            x = self.model.standardise.of_self_and_mean(x.to(device), torch.from_numpy(indptr).to(device))
        return layer.on_self_and_mean(x.to(layer.weight.device), activation).cpu()

    def _weighted_block(
        self,
        layer: MeanAggregation,
        h: HiddenRows | None,
        fetched: RowsOfBatch,
        block: WeightedBlock,
        activation: Activation | None,
    ) -> Tensor:
        """Rows of a layer's result, of the rows that it reads; `h` None: these are features."""
        if isinstance(fetched.tables, SparseFeatures):
            return layer.on_sparse(_sparse_rows(fetched.tables, layer.weight.device), block, activation).cpu()
        assert isinstance(fetched.tables, StackedFeatures)
        x = torch.empty(len(fetched.rows), layer.in_channels)
        _native.gather_rows(fetched.tables.x, fetched.rows, x, torch.get_num_threads())
        x = x.to(layer.weight.device)
        if h is None and self.model.standardise is not None:
            x = self.model.standardise(x)
        return layer.on_rows(x, block, activation).cpu()

    def _hidden_of(self, h: HiddenRows, nodes: Ids) -> RowsOfBatch:
        """Rows of a hidden layer, of any nodes: ids go to their owners, rows come back; own ones stay in place."""
        order, requests, counts = self._ask(nodes)
        rank, num_threads = self.shares.rank, torch.get_num_threads()
        begin, end = sum(counts[:rank]), sum(counts[: rank + 1])
        theirs = [ids if number != rank else ids[:0] for number, ids in enumerate(requests)]
        own = StackedFeatures.of([h.table])
        answers = own.gather(StorageIds(h.find(self._own_row(np.concatenate(theirs)))), num_threads)
        expected = [count if number != rank else 0 for number, count in enumerate(counts)]
        received = self.wire.swap_joined(answers.x, [len(ids) for ids in theirs], expected)
        rows = np.empty(len(nodes), dtype=np.int64)
        rows[order[begin:end]] = h.find(self._own_row(nodes[order[begin:end]]))
        rows[np.concatenate([order[:begin], order[end:]])] = h.table.num_nodes + np.arange(len(received))
        return RowsOfBatch(StackedFeatures.of([h.table, DenseFeatures(received, "float32")]), StorageIds(rows))

    def _ask(self, nodes: Ids) -> tuple[Ids, list[Ids], list[int]]:
        """Ask the owners of `nodes` [n]: positions by owner, what each rank asks for, how many each is asked for."""
        order, ends = self.shares.by_rank(self.shares.owner_of(NodeIds(nodes)))
        requests = self.wire.swap([nodes[order[begin:end]] for begin, end in pairwise(ends)])
        return order, requests, np.diff(ends).tolist()

    def _own_row(self, nodes: Ids) -> Ids:
        """The rows of owned nodes among all that this rank owns."""
        return self.shares.book.storage_of(NodeIds(nodes)) - self.shares.owned[0]

    def _degrees(self, nodes: Ids) -> Ids:
        """In-edges of owned nodes [n]."""
        found, degrees = self.shares.locate(NodeIds(nodes)), np.zeros(len(nodes), dtype=np.int64)
        for part in self.shares.parts:
            here = np.flatnonzero(found.parts == part.number)
            indptr, rows = part.topology(undirected=self.undirected).indptr, found.rows[here]
            degrees[here] = indptr[rows + 1] - indptr[rows]
        return degrees

    def _in_edges(self, nodes: Ids) -> tuple[Ids, Ids]:
        """The in-edges of owned nodes, ascending in each row: indptr [n + 1], sources [num_edges]."""
        return self._of_in_edges(nodes, self._sources, np.dtype(np.int64))

    def _sources(self, part: Part, entries: Ids) -> NDArray[Any]:
        return part.topology(undirected=self.undirected).indices[entries]

    def _weights_of(self, nodes: Ids) -> NDArray[np.float32]:
        """The weights of the in-edges of owned nodes, in the same order [num_edges]."""

        def weights(part: Part, entries: Ids) -> NDArray[Any]:
            return part.edge_attr(undirected=self.undirected)[entries, self.weight_column]

        found: NDArray[np.float32] = self._of_in_edges(nodes, weights, np.dtype(np.float32))[1]
        return found

    def _of_in_edges(
        self, nodes: Ids, read: Callable[[Part, Ids], NDArray[Any]], dtype: np.dtype[Any]
    ) -> tuple[Ids, NDArray[Any]]:
        """The in-edges of owned nodes, row after row: indptr [n + 1], and what `read` says of entries [num_edges]."""
        found = self.shares.locate(NodeIds(nodes))
        lengths, pieces = np.zeros(len(nodes), dtype=np.int64), []
        for part in self.shares.parts:
            here = np.flatnonzero(found.parts == part.number)
            indptr, entries = in_entries(part.topology(undirected=self.undirected), found.rows[here])
            lengths[here] = np.diff(indptr)
            pieces.append((here, indptr, read(part, entries)))
        offsets = np.zeros(len(nodes) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        values = np.empty(offsets[-1], dtype=dtype)
        for here, indptr, its in pieces:
            shift = np.repeat(offsets[here] - indptr[:-1], np.diff(indptr))
            values[np.arange(len(its)) + shift] = its
        return offsets, values


def _sparse_block(
    layer: MeanAggregation,
    table: SparseFeatures,
    indptr: Ids,
    indices: NDArray[np.int32],
    activation: Activation | None,
) -> Tensor:
    device = layer.weight.device
    block = Block(torch.from_numpy(indptr).to(device), torch.from_numpy(indices).to(device))
    return layer.on_sparse(_sparse_rows(table, device), block, activation).cpu()


def _sparse_rows(table: SparseFeatures, device: torch.device) -> SparseRows:
    rows = SparseRows(
        torch.from_numpy(table.indptr),
        torch.from_numpy(table.indices),
        torch.from_numpy(table.values),
        table.num_features,
    )
    return rows.to(device) if device.type != "cpu" else rows
