"""Rows that no layer reads, left out of a sampled batch within PyG's models: the seeds' rows stay the same."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules import activation
from torch_geometric import nn as peers
from torch_geometric.nn.aggr.fused import FusedAggregation
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.models.basic_gnn import BasicGNN
from torch_geometric.utils._trim_to_layer import TrimToLayer

from graphmill.pyg import attention_layers, layers

_OF_ENDS: Final = frozenset(
    {
        *(peers.SAGEConv, peers.GINConv, peers.GATConv, peers.GATv2Conv),
        *(layers.SAGEConv, layers.GINConv, attention_layers.GATConv, attention_layers.GATv2Conv),
    }
)
"""Layers whose messages depend on what lies at both ends alone; GCN's on the degrees of the sources as well."""
_OVER_ROWS: Final = ("GLU", "MultiheadAttention", "Softmin", "Softmax", "Softmax2d", "LogSoftmax")  # with a `dim` of 0
_OF_ROWS: Final = frozenset(
    {
        *(nn.ModuleList, nn.Sequential, nn.Identity, nn.Dropout, nn.Linear, nn.LayerNorm, nn.LSTM),
        *(getattr(activation, name) for name in activation.__all__ if name not in _OVER_ROWS),
        *(Linear, TrimToLayer, peers.MLP, peers.MultiAggregation, peers.LSTMAggregation, peers.MulAggregation),
        *(peers.SumAggregation, peers.MeanAggregation, peers.MaxAggregation, peers.MinAggregation),
        *(peers.VarAggregation, peers.StdAggregation, peers.MedianAggregation, peers.QuantileAggregation),
        *(peers.SoftmaxAggregation, peers.PowerMeanAggregation, FusedAggregation),
    }
)
"""What makes each row of its own inputs, or of its own in-edges, whatever the others are; a batch norm does not."""


def may_be_trimmed(model: nn.Module) -> bool:
    """Whether rows that no later layer reads may be left out of a sampled batch, and the seeds' stay the same.

    So it is in GraphSAGE, GCN, GIN and GAT of `torch_geometric.nn.models`, fused or not, without norms, which see all
    rows, and without jumping knowledge, which reads each layer's.
    """
    if not isinstance(model, BasicGNN) or getattr(model.forward, "__func__", None) is not BasicGNN.forward:
        return False
    convs: Any = list(model.convs)
    parts = [part for part in model.modules() if part is not model and part not in convs]
    acts = [getattr(part, "act", None) for part in (model, *parts)]
    if not all(type(part) in _OF_ROWS for part in parts) or not all(map(_is_of_rows, acts)):
        return False
    if model.jk_mode is not None or any(conv.flow != "source_to_target" for conv in convs):
        return False
    if all(type(conv) in _OF_ENDS for conv in convs):
        return True
    is_gcn = all(type(conv) in (peers.GCNConv, layers.GCNConv) and not conv.cached for conv in convs)
    return is_gcn and len({(conv.normalize, conv.improved, conv.add_self_loops) for conv in convs}) == 1  # one matrix


def _is_of_rows(act: object) -> bool:
    """Whether an activation makes each row of its own input: none, one of those above, or a function of torch's."""
    name = getattr(act, "__name__", "")
    return act is None or type(act) in _OF_ROWS or any(act is getattr(of, name, None) for of in (torch, nn.functional))


@contextmanager
def trimmed(model: nn.Module, num_nodes: Sequence[int], num_edges: Sequence[int]) -> Iterator[dict[str, list[int]]]:
    """Have the layers of a model that `may_be_trimmed` compute only rows that the next layer reads.

    PyG's models leave out, before each layer but the first, nodes and edges that it does not read. So a layer still
    makes a row of each node that it reads, and the next reads those a hop nearer to the seeds: here it makes these.

    Args:
        model: on whose layers hooks are set until the context is left.
        num_nodes: nodes of the batch by hop, seeds first [num_hops + 1].
        num_edges: edges by hop [num_hops].

    Yields:
        What the model is called with besides x and edge_index.
    """
    convs: Any = model.convs
    known = list(accumulate(num_nodes))  # up to each hop
    is_normalised = all(isinstance(conv, peers.GCNConv) for conv in convs)
    matrix = _Matrix(known[-1])
    with ExitStack() as left:
        for conv, read, made in zip(convs, reversed(known), reversed(known[:-1]), strict=False):
            if is_normalised:
                left.callback(setattr, conv, "normalize", conv.normalize)
                hook = matrix.hook(conv, read, made)
                conv.normalize = False
            else:
                hook = _between(read, made)
            left.enter_context(conv.register_forward_pre_hook(hook, with_kwargs=True))
        # No nodes for PyG to leave out: each layer is given the rows that the one before has made. The edges of GCN's
        # matrix are left out here, after degrees were counted.
        none = [0] * len(num_edges)
        yield {
            "num_sampled_nodes_per_hop": [0] * len(num_nodes),
            "num_sampled_edges_per_hop": none if is_normalised else list(num_edges),
        }


def _between(num_sources: int, num_targets: int) -> Any:  # noqa: ANN401  # a hook
    """Have a layer called with x compute rows of the first `num_targets` nodes, from those of `num_sources`."""

    def narrow(_: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:  # noqa: ANN401
        x, *others = args
        return (_ends(x, num_sources, num_targets), *others), named

    return narrow


def _ends(x: Tensor, num_sources: int, num_targets: int) -> Any:  # noqa: ANN401  # x, or (sources, targets)
    return x if x.layout != torch.strided else (x[:num_sources], x[:num_targets])


class _Matrix:
    """GCN's normalised matrix of a batch: by the degrees that all its layers see, made by the first."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self._made: tuple[Tensor, Tensor | None] | None = None

    def hook(self, conv: Any, num_sources: int, num_targets: int) -> Any:  # noqa: ANN401  # a GCNConv → a hook
        """Have a layer read the rows of the matrix of the first `num_targets` nodes."""
        normalises, options = conv.normalize, (conv.improved, conv.add_self_loops)

        def narrow(_: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:  # noqa: ANN401
            x, edge_index = args
            if self._made is None:
                given = named.get("edge_weight")
                self._made = edge_index, given
                if normalises:
                    self._made = gcn_norm(edge_index, given, self.num_nodes, *options, dtype=x.dtype)
            ends, weight = self._made
            if x.layout == torch.strided:
                kept = ends[1] < num_targets
                ends, weight = ends[:, kept], None if weight is None else weight[kept]
            rows = _ends(x, num_sources, num_targets)
            if isinstance(rows, tuple) and not isinstance(conv, layers.GCNConv):
                rows, _ = rows  # PyG's gives as many rows as it is given; the next layer takes the first ones
            return (rows, ends), {**named, "edge_weight": weight}

        return narrow
