"""Dropout of single features, sparse or dense, drawn by (key, node, column)."""

import torch

from graphmill.graph.batch import DenseRows, Inputs, MiniBatch, SelfAndMean, SparseRows
from graphmill.nn.draws import beside, drop_values, row_keys
from graphmill.nn.operators import sparse_dropout


def drop_inputs(inputs: Inputs, batch: MiniBatch, key: int, p: float) -> Inputs:
    """The features of a batch with a share `p` of them dropped; not of averages."""
    keys = row_keys(key, batch.node_ids)
    match inputs:
        case SparseRows() as x:
            return sparse_dropout(x, keys, p)
        case DenseRows(x):
            columns = torch.arange(x.shape[1], device=x.device)
            return DenseRows(drop_values(x, beside(keys, x).unsqueeze(1), columns, p))
        case SelfAndMean():
            raise AssertionError("inputs that were averaged already cannot be dropped one by one: ask for rows")
