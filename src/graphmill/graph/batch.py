"""The types that flow from a sampled neighbourhood to a step. One type per stage, no optional fields (house rule 3)."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from graphmill.base.errors import InvalidInputError
from graphmill.graph.raw import refuse_wrong_edges
from graphmill.graph.sampled import AnySeeds, EvaluationSeeds, SeedIds

InputForm = Literal["rows", "self_and_mean"]  # how a model wants dense features: see DenseRows and SelfAndMean


@dataclass(frozen=True, slots=True)
class DenseRows:
    """Features of all nodes of the batch."""

    x: Tensor  # [num_nodes, num_features]

    def to(self, device: torch.device) -> "DenseRows":
        """Copy the features to `device`."""
        return DenseRows(copied(self.x, device))


@dataclass(frozen=True, slots=True)
class SelfAndMean:
    """Features of a mean layer's rows next to the mean over their sampled in-neighbours.

    Made straight from the store: neither the neighbours' rows nor one message per edge is ever written.
    """

    x: Tensor  # [num_rows, 2 * num_features]

    def to(self, device: torch.device) -> "SelfAndMean":
        """Copy the rows and means to `device`."""
        return SelfAndMean(copied(self.x, device))


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Sparse features of all nodes of the batch, in compressed sparse row form."""

    indptr: Tensor  # int64 [num_nodes + 1]
    indices: Tensor  # int32 [num_values]
    values: Tensor  # float32 [num_values]
    num_features: int

    def to(self, device: torch.device) -> "SparseRows":
        """Copy the sparse features to `device`."""
        indptr, indices, values = (copied(tensor, device) for tensor in (self.indptr, self.indices, self.values))
        return SparseRows(indptr, indices, values, self.num_features)


Inputs = DenseRows | SelfAndMean | SparseRows


@dataclass(frozen=True, slots=True)
class Block:
    """A `SampledBlock` as tensors, on the rank's device."""

    indptr: Tensor  # int64 [num_rows + 1]
    indices: Tensor  # int32

    @property
    def num_rows(self) -> int:
        """Rows of the layer's result."""
        return len(self.indptr) - 1

    def whole_to(self, device: torch.device) -> "Block":
        """Copy a block that shares its edges with no other block to `device`."""
        return Block(copied(self.indptr, device), copied(self.indices, device))

    def to(self, device: torch.device) -> "Block":
        """Copy the block's own edges alone to `device`: on the CPU all blocks share one array of them."""
        first, last = int(self.indptr[0]), int(self.indptr[-1])
        return Block(copied(self.indptr - first, device), copied(self.indices[first:last], device))


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """What one step computes on."""

    seeds: AnySeeds
    node_ids: Tensor  # int64 [num_nodes], on the CPU
    blocks: tuple[Block, ...]  # of the first layer first
    edge_attr: Tensor  # float32 [num_edges, num_edge_features], of all hops' edges in order; [0, 0]: none are read
    num_nodes_per_hop: tuple[int, ...]
    num_edges_per_hop: tuple[int, ...]
    inputs: Inputs
    labels: Tensor  # int64 [num_seeds]; of several labels int8 [num_seeds, num_labels]
    node_types: Tensor  # int64 [num_nodes]; [0]: they are not read

    @property
    def num_seeds(self) -> int:
        """Nodes to classify; 0 if the rank has no share of the step."""
        return len(self.seeds.ids)

    def to(self, device: torch.device) -> "MiniBatch":
        """Copy to `device`, without waiting if the memory allows it; a batch made there is returned as it is."""
        if self.labels.device.type == device.type:  # made there
            return self
        blocks = tuple(block.to(device) for block in self.blocks)
        labels, edge_attr = copied(self.labels, device), copied(self.edge_attr, device)
        return replace(
            self,
            blocks=blocks,
            edge_attr=edge_attr,
            labels=labels,
            inputs=self.inputs.to(device),
            node_types=copied(self.node_types, device),
        )


@dataclass(frozen=True, slots=True)
class GraphBatch:
    """Whole graphs as one graph of `n` nodes and `e` edges, with no path between them: see `graph_set.CutGraphs`."""

    seeds: AnySeeds  # `ids`: the graphs, in the order of the batch
    node_offsets: Tensor  # int64 [num_graphs + 1]: the nodes of each graph
    block: Block  # edges by target: `indptr` int64 [n + 1], `indices` int32 [e] their sources
    by_source: Block  # edges by source: `indices` are places in `block.indices`
    x: Tensor  # float32 [n, num_features]
    edge_attr: Tensor  # float32 [e, num_edge_features]
    labels: Tensor  # int64 [num_graphs]

    @property
    def num_seeds(self) -> int:
        """Graphs to classify; 0 if the rank has no share of the step."""
        return len(self.seeds.ids)

    @property
    def edge_index(self) -> Tensor:
        """The edges as PyG writes them: int64 [2, e], row 0 the source, row 1 the target."""
        degrees = self.block.indptr.diff()
        nodes = torch.arange(len(degrees), device=degrees.device)
        targets = torch.repeat_interleave(nodes, degrees, output_size=len(self.block.indices))
        return torch.stack([self.block.indices.long(), targets])

    def to(self, device: torch.device) -> "GraphBatch":
        """Copy the batch to `device`, without waiting if the memory allows it."""
        if device.type == "cpu":
            return self
        return GraphBatch(
            seeds=self.seeds,
            node_offsets=copied(self.node_offsets, device),
            block=self.block.whole_to(device),
            by_source=self.by_source.whole_to(device),
            x=copied(self.x, device),
            edge_attr=copied(self.edge_attr, device),
            labels=copied(self.labels, device),
        )


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor on the device of a step, which is not waited for."""
    return tensor if device.type == "cpu" else copied(tensor, device)


def copied(tensor: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor on a GPU, on the current stream; the copy is under way when this returns."""
    return (tensor if tensor.is_pinned() else tensor.pin_memory()).to(device, non_blocking=True)


def flat_batch(x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor | None) -> GraphBatch:
    """Batch of features `x` [n, num_features], edges [2, e], the graph of each node [n], and edge features, if any.

    It has no labels and no order by source: nothing is trained on it.

    Raises:
        InvalidInputError, a ValueError: `batch` is not ascending, or an edge names a node that is not there.
    """
    if len(batch) != len(x) or bool((batch.diff() < 0).any()):
        raise InvalidInputError(
            f"batch is {list(batch.shape)}; it holds the graph of each of {len(x)} nodes, ascending",
            fix="give batch [num_nodes] as torch_geometric.data.Batch has it",
        )
    refuse_wrong_edges(edge_index.detach().cpu().numpy(), len(x))
    order = torch.argsort(edge_index[1], stable=True)
    num_graphs = int(batch[-1]) + 1 if len(batch) else 0
    nothing = torch.empty(0, dtype=torch.int64)
    return GraphBatch(
        seeds=EvaluationSeeds(SeedIds(np.arange(num_graphs))),
        node_offsets=_offsets(batch, num_graphs),
        block=Block(_offsets(edge_index[1], len(x)), edge_index[0][order].to(torch.int32)),
        by_source=Block(nothing, nothing),
        x=x,
        edge_attr=x.new_empty(edge_index.shape[1], 0) if edge_attr is None else edge_attr[order],
        labels=nothing,
    )


def _offsets(ids: Tensor, number: int) -> Tensor:
    return torch.cat([ids.new_zeros(1), torch.bincount(ids, minlength=number).cumsum(0)])
