"""Which ids and which edges of a window weigh most in its score: gradient times input.

Features are standardised, so 0 is the mean of the training windows. What an id weighs is how far the score would move,
to first order, if its features (and its embedding) were those zeros; an edge likewise. Attention would be cheaper, but
says how a node shares itself out among its edges, not whether the node matters to the window.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.graph.batch import Block, EvaluationSeeds, GraphBatch, SeedIds
from graphmill.graph.graph_set import GraphSet
from graphmill.tasks.intrusion.live import Weights
from graphmill.tasks.intrusion.windows import WindowGraphs


def batch_of(graphs: WindowGraphs, x: NDArray[np.float32], edge_attr: NDArray[np.float32]) -> GraphBatch:
    """All `graphs` as one batch, with the features `x` and `edge_attr` that their model reads, in their order."""
    every = np.arange(len(graphs))
    cut = GraphSet.of(graphs.num_nodes, graphs.num_edges, graphs.edge_index, x, edge_attr).cut(every, num_threads=1)
    of = torch.from_numpy
    return GraphBatch(
        seeds=EvaluationSeeds(SeedIds(every)),
        node_offsets=of(cut.node_offsets),
        block=Block(of(cut.indptr), of(cut.sources)),
        by_source=Block(of(cut.indptr_by_source), of(cut.edges_by_source)),
        x=of(cut.x),
        edge_attr=of(cut.edge_attr),
        labels=torch.full((len(every),), -1),
    )


def weighed(
    model: nn.Module, score: Callable[[GraphBatch], Tensor], graphs: WindowGraphs, batch: GraphBatch
) -> Weights:
    """What weighs in the scores of `batch`, which is `batch_of` `graphs`.

    `score` calls `model`, whose embeddings are of nodes. Scores should not saturate (a logit, rather than a
    probability): where they do, nothing weighs.
    """
    x, edge_attr = batch.x.detach().requires_grad_(), batch.edge_attr.detach().requires_grad_()
    with torch.enable_grad(), _embedded(model, len(x)) as embedded:
        scores = score(replace(batch, x=x, edge_attr=edge_attr))
        inputs = [x, edge_attr, *embedded]
        gradients = torch.autograd.grad(scores.sum(), inputs, allow_unused=True)
    moves = [
        torch.zeros(len(each)) if gradient is None else (each.detach() * gradient).sum(dim=1)
        for each, gradient in zip(inputs, gradients, strict=True)
    ]
    of_edges = np.empty(len(edge_attr), np.float32)
    first_node = np.repeat(np.cumsum(graphs.num_nodes) - graphs.num_nodes, graphs.num_edges)
    of_edges[np.argsort(graphs.edge_index[1] + first_node, kind="stable")] = moves[1].abs().numpy()
    return Weights(torch.stack([moves[0], *moves[2:]]).sum(dim=0).abs().numpy(), of_edges)


@contextmanager
def _embedded(model: nn.Module, num_nodes: int) -> Iterator[list[Tensor]]:
    """While it lasts, what embeddings in `model` give for all nodes is put into the list, to be differentiated by."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        del module, inputs
        if output.dim() != 2 or len(output) != num_nodes:
            return output
        seen.append(output.detach().requires_grad_())
        return seen[-1]

    kinds = (nn.Embedding, nn.EmbeddingBag)
    hooks = [each.register_forward_hook(keep) for each in model.modules() if isinstance(each, kinds)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
