"""The edges that one layer reads of a mini-batch, with their features; and means of rows over them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmill.graph.batch import Block, MiniBatch, SparseRows
from graphmill.nn.operators import segment_mean, self_and_mean, sparse_linear


def edges_of(batch: MiniBatch, number: int) -> tuple[Block, Tensor]:
    """Edges of layer `number`, counted from 0: a block that begins at 0, and its rows of `edge_attr`."""
    block = batch.blocks[number]
    end = sum(batch.num_edges_per_hop[: len(batch.blocks) - number])
    if block.indptr.device.type == "cpu":  # all blocks share one array
        begin = int(block.indptr[0])
        own = Block(block.indptr - begin, block.indices[begin:end])
    else:  # a block has its edges alone, and asking where they began would wait for the device
        begin, own = end - len(block.indices), block
    return own, batch.edge_attr[begin:end]


@dataclass(frozen=True, slots=True)
class WeightedBlock:
    """A block whose edges have weights: each has its share of the mean of its row.

    The mean of row r is Σ w x / Σ w over its edges; where Σ w is 0 it is 0, as the mean of nothing is.
    """

    indptr: Tensor  # int64 [num_rows + 1], from 0
    indices: Tensor  # int32 [num_edges]
    shares: Tensor  # float32 [num_edges]: w / Σ w of the row, or 0

    @property
    def num_rows(self) -> int:
        """Rows of the layer's result."""
        return self.indptr.shape[0] - 1

    @classmethod
    def of(cls, block: Block, weights: Tensor) -> "WeightedBlock":
        """Add weights [num_edges], finite and not negative, to a block that begins at 0."""
        num_edges = block.indices.shape[0]  # no len(), here and below: torch.export would hold the number fixed
        ones = SparseRows(block.indptr, torch.zeros_like(block.indices), weights.contiguous(), 1)
        sums = sparse_linear(ones, weights.new_ones(1, 1))[:, 0]
        of_edges = torch.repeat_interleave(sums, block.indptr.diff(), output_size=num_edges)
        return cls(block.indptr, block.indices, weights / torch.where(of_edges > 0, of_edges, 1.0))

    @classmethod
    def of_layer(cls, batch: MiniBatch, number: int) -> "WeightedBlock":
        """Weighted block of layer `number`, counted from 0; an edge's weight is the only column of `edge_attr`."""
        block, edge_attr = edges_of(batch, number)
        return cls.of(block, edge_attr[:, 0])


def mean_of(h: Tensor, block: Block | WeightedBlock) -> Tensor:
    """Mean of the rows of h [n, num_columns] over the edges of each row of the block → [num_rows, num_columns]."""
    if isinstance(block, WeightedBlock):
        return sparse_linear(SparseRows(block.indptr, block.indices, block.shares, h.shape[0]), h.contiguous())
    return segment_mean(h, block.indptr, block.indices)


def self_and_mean_of(h: Tensor, block: Block | WeightedBlock) -> Tensor:
    """The block's own rows of h [n, num_columns] beside their means → [num_rows, 2 * num_columns]."""
    if isinstance(block, WeightedBlock):
        return torch.cat([h[: block.num_rows], mean_of(h, block)], dim=1)
    return self_and_mean(h, block.indptr, block.indices)
