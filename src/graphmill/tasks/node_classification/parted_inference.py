"""Exact inference over a partitioned graph: each rank computes the rows that it owns, layer by layer.

No rank holds an array of all nodes: of hidden layers it keeps its own rows, and asks the owners for those of its rows'
in-neighbours, a block at a time. Rows are computed as in `LayerwiseInference`, by the same kernels in the same order.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill import _native
from graphmill.graph.batch import Block, SparseRows
from graphmill.graph.features import DenseFeatures, SparseFeatures
from graphmill.graph.sampled import NodeIds
from graphmill.nn.graphsage import GraphSage, MeanLayer
from graphmill.nn.operators import RELU, Activation
from graphmill.sample.distributed.features import FeatureFetcher
from graphmill.sample.distributed.shares import Shares
from graphmill.sample.distributed.wire import Wire
from graphmill.tasks.node_classification.inference import in_edges
from graphmill.tasks.task import Pause

Ids = NDArray[np.int64]
_ROWS_AT_A_TIME = 8192  # rows whose inputs are in memory together


@dataclass(frozen=True, slots=True)
class PartedInference:
    """Logits of a GraphSage model without sampling, on the CPU. All ranks must call it together."""

    model: GraphSage
    shares: Shares
    wire: Wire
    fetcher: FeatureFetcher
    undirected: bool
    pause: Pause  # called by all ranks before every block of rows

    @torch.no_grad()
    def logits(self, nodes: Ids) -> tuple[Ids, Tensor]:
        """Those of `nodes` that this rank owns, ascending, and their logits [num_owned, num_classes]."""
        layers = [layer for layer in self.model.layers if isinstance(layer, MeanLayer)]
        mine = np.sort(nodes[self.shares.owner_of(NodeIds(nodes)) == self.shares.rank])
        wanted = self._wanted(mine, len(layers))
        h: Tensor | None = None
        for layer, rows in zip(layers[:-1], wanted[:-1], strict=True):
            result = torch.zeros(self.shares.num_owned, layer.out_channels)
            result[torch.from_numpy(self._own_row(rows))] = self._layer_rows(layer, h, rows, RELU)
            h = result
        return mine, self._layer_rows(layers[-1], h, mine, None)

    def _wanted(self, nodes: Ids, num_layers: int) -> list[Ids]:
        """For each layer which owned nodes the layers after it read, of all ranks; of the last, `nodes`."""
        wanted = [nodes]
        for _ in range(num_layers - 1):
            is_wanted = np.zeros(self.shares.num_owned, dtype=bool)
            is_wanted[self._own_row(wanted[0])] = True
            neighbours = np.unique(self._in_edges(wanted[0])[1]).astype(np.int64)
            owners = self.shares.owner_of(NodeIds(neighbours))
            order, ends = self.shares.by_server(owners)
            for asked in self.wire.swap([neighbours[order[begin:end]] for begin, end in pairwise(ends)]):
                is_wanted[self._own_row(asked)] = True
            wanted.insert(0, self.shares.owned_nodes(np.flatnonzero(is_wanted)))
        return wanted

    def _layer_rows(self, layer: MeanLayer, h: Tensor | None, nodes: Ids, activation: Activation | None) -> Tensor:
        """Rows of a layer's result; `h` [num_owned, …] is the result of the layer before it; None: the features."""
        rows = [torch.empty(0, layer.out_channels)]
        for begin in range(0, self.wire.largest(len(nodes)), _ROWS_AT_A_TIME):
            self.pause()
            rows.append(self._block(layer, h, nodes[begin : begin + _ROWS_AT_A_TIME], activation))
        return torch.cat(rows)

    def _block(self, layer: MeanLayer, h: Tensor | None, nodes: Ids, activation: Activation | None) -> Tensor:
        indptr, indices = self._in_edges(nodes)
        neighbours, local = np.unique(indices, return_inverse=True)
        ids = np.concatenate([nodes, neighbours.astype(np.int64)])
        shifted = (local + len(nodes)).astype(np.int32)
        if h is not None:
            return self._dense_block(layer, self._hidden_of(h, ids), len(nodes), indptr, shifted, activation)
        (found,) = self.fetcher.fetch([NodeIds(ids)])
        if not len(nodes):
            return torch.empty(0, layer.out_channels)
        table = found.together(torch.get_num_threads())
        if isinstance(table, SparseFeatures):
            return _sparse_block(layer, table, indptr, shifted, activation)
        return self._dense_block(layer, table, len(nodes), indptr, shifted, activation, of_features=True)

    def _dense_block(
        self,
        layer: MeanLayer,
        table: DenseFeatures,
        num_rows: int,
        indptr: Ids,
        indices: NDArray[np.int32],
        activation: Activation | None,
        *,
        of_features: bool = False,
    ) -> Tensor:
        x = torch.empty(num_rows, 2 * layer.in_channels)
        if not num_rows:
            return torch.empty(0, layer.out_channels)
        _native.gather_self_and_mean(table.x, None, None, indptr, indices, x, torch.get_num_threads())
        if of_features and self.model.standardise is not None:
            device = layer.weight.device
            x = self.model.standardise.of_self_and_mean(x.to(device), torch.from_numpy(indptr).to(device))
        return layer.on_self_and_mean(x.to(layer.weight.device), activation).cpu()

    def _hidden_of(self, h: Tensor, nodes: Ids) -> DenseFeatures:
        """Rows of a hidden layer, of any nodes: ids go to their owners, rows come back."""
        order, ends = self.shares.by_server(self.shares.owner_of(NodeIds(nodes)))
        asked = self.wire.swap([nodes[order[begin:end]] for begin, end in pairwise(ends)])
        own = h.numpy()
        answers = self.wire.swap([own[self._own_row(ids)] for ids in asked], np.diff(ends).tolist())
        received, rows = np.concatenate(answers), np.empty((len(nodes), own.shape[1]), dtype=np.float32)
        rows[order] = received
        return DenseFeatures(rows, "float32")

    def _own_row(self, nodes: Ids) -> Ids:
        """The rows of owned nodes among all that this rank owns."""
        return self.shares.book.storage_of(NodeIds(nodes)) - self.shares.owned[0]

    def _in_edges(self, nodes: Ids) -> tuple[Ids, Ids]:
        """The in-edges of owned nodes, ascending in each row: indptr [n + 1], sources [num_edges]."""
        found = self.shares.locate(NodeIds(nodes))
        lengths, pieces = np.zeros(len(nodes), dtype=np.int64), []
        for part in self.shares.parts:
            here = np.flatnonzero(found.parts == part.number)
            indptr, sources = in_edges(part.topology(undirected=self.undirected), found.rows[here])
            lengths[here] = np.diff(indptr)
            pieces.append((here, indptr, sources))
        offsets = np.zeros(len(nodes) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        all_sources = np.empty(offsets[-1], dtype=np.int64)
        for here, indptr, sources in pieces:
            shift = np.repeat(offsets[here] - indptr[:-1], np.diff(indptr))
            all_sources[np.arange(len(sources)) + shift] = sources
        return offsets, all_sources


def _sparse_block(
    layer: MeanLayer, table: SparseFeatures, indptr: Ids, indices: NDArray[np.int32], activation: Activation | None
) -> Tensor:
    device = layer.weight.device
    block = Block(torch.from_numpy(indptr).to(device), torch.from_numpy(indices).to(device))
    rows = SparseRows(
        torch.from_numpy(table.indptr),
        torch.from_numpy(table.indices),
        torch.from_numpy(table.values),
        table.num_features,
    )
    return layer.on_sparse(rows.to(device) if device.type != "cpu" else rows, block, activation).cpu()
