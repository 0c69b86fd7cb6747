"""A mini-batch that was sampled as one subgraph, in the form that PyG's models take: edge_index, rows of features."""

import warnings
from typing import assert_never

import torch
from torch import Tensor

from graphmill.graph.batch import DenseRows, Inputs, MiniBatch, SelfAndMean, SparseRows


def edge_index(batch: MiniBatch) -> Tensor:
    """The sampled edges as PyG writes them: int64 [2, num_edges], row 0 the source, row 1 the target, local ids."""
    block = batch.blocks[0]  # sampled without resampling, the first layer's block holds all edges
    targets = row_of_entry(block.indptr, len(block.indices))
    return torch.stack([block.indices.long(), targets])


def row_of_entry(indptr: Tensor, num_entries: int) -> Tensor:
    """The row of each entry of compressed sparse rows, int64 [num_entries].

    The number is an argument: computing it would wait for the device.
    """
    rows = torch.arange(len(indptr) - 1, device=indptr.device)
    return torch.repeat_interleave(rows, indptr.diff(), output_size=num_entries)


def dense_rows(batch: MiniBatch) -> Tensor:
    """Features of every node of the batch [num_nodes, num_features]; sparse rows are written out."""
    match batch.inputs:
        case DenseRows(x):
            return x
        case SparseRows() as x:
            return written_out(x)
        case SelfAndMean():
            raise AssertionError("a model that reads rows was given averages")
        case _:
            assert_never(batch.inputs)


def csr_rows(x: Inputs) -> Tensor:
    """Sparse features of every node of the batch, a sparse CSR tensor [num_nodes, num_features]."""
    assert isinstance(x, SparseRows)
    size = (len(x.indptr) - 1, x.num_features)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(x.indptr.int(), x.indices, x.values, size=size, check_invariants=False)


def written_out(x: SparseRows) -> Tensor:
    """[num_rows, num_features], with the zeros."""
    rows = row_of_entry(x.indptr, len(x.values))
    out = x.values.new_zeros(len(x.indptr) - 1, x.num_features)
    out[rows, x.indices.long()] = x.values
    return out
