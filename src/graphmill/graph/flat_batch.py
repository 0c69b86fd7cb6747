"""Graphs as PyG batches them, as a `GraphBatch`: for models outside training."""

import numpy as np
import torch
from torch import Tensor

from graphmill.base.errors import InvalidInputError
from graphmill.graph.batch import Block, GraphBatch
from graphmill.graph.raw import refuse_wrong_edges
from graphmill.graph.sampled import EvaluationSeeds, SeedIds


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
