"""PyG's layers of attention on the fused operator; when PyG's own code computes: `layers`."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric import nn as peers
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.typing import OptPairTensor, OptTensor, PairTensor

from graphmill.nn.attention import EdgeGroups, operator
from graphmill.nn.attention.edges import REDUCTIONS, loop_features
from graphmill.nn.attention.layers import by_head, scored, scoring
from graphmill.nn.attention.operator import Dropout, EdgeScores, Scores
from graphmill.nn.operators import is_native
from graphmill.pyg.layer_choice import LayerEnds, aggregation_of, ends_of, has_hooks, is_ours, projected
from graphmill.pyg.layer_edges import groups_of


class GATConv(peers.GATConv):  # type: ignore[misc]
    """PyG's `GATConv` (arXiv 1710.10903) by the fused operator of `graphmill.nn.attention`.

    PyG's own code computes in the cases that `graphmill.pyg.layers` lists (GPU, float64, sparse adjacency, …), with
    `return_attention_weights`, for an `aggr` other than "add" and "sum", where `edge_attr` is not float32 [num_edges,
    edge_dim] or the layer has no `edge_dim`, and for (sources, None) without a `size`. Dropout in training makes other
    draws than PyG's from the same generator.
    """

    propagate_type: ClassVar = {"x": OptPairTensor, "alpha": Tensor}
    edge_updater_type: ClassVar = {"alpha": OptPairTensor, "edge_attr": OptTensor}

    def forward(
        self,
        x: Tensor | OptPairTensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:  # noqa: ANN401  # PyG's result where it computes
        """[num_targets, heads * out_channels], or [num_targets, out_channels] where heads are averaged.

        Args:
            x: float32 [num_nodes, in_channels], or (sources [num_sources, …], targets [num_targets, …] or None).
            edge_index: int64 [2, num_edges], sources first, in any order.
            edge_attr: float32 [num_edges, edge_dim], or [num_edges] for an `edge_dim` of 1.
            size: (num_sources, num_targets).
            return_attention_weights: also give (edge_index, alpha), by PyG's own code.
        """
        ends = ends_of(x, size)
        of_source, of_target = (self.lin, self.lin) if self.lin is not None else (self.lin_src, self.lin_dst)
        groups = None
        if ends is not None and not return_attention_weights:
            groups = _groups(self, peers.GATConv, ends, edge_index, edge_attr, [of_source, of_target], self.att_src)
        if ends is None or groups is None:
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)
        values, of_sources, of_targets = self._projected(ends, of_source, of_target)
        scores = Scores(of_targets, of_sources, None, self.negative_slope)
        return _attended(self, values, scores, _features(self, edge_attr, groups, self.att_edge), groups, ends.target)

    def _projected(self, ends: LayerEnds, of_source: Linear, of_target: Linear) -> tuple[Tensor, Tensor, Tensor]:
        """Values [num_sources, heads * out_channels], scores of sources and of targets [num_…, heads]."""
        weight, x = of_source.weight, ends.source
        if ends.target is ends.source and of_target is of_source:  # one product for all three
            of_scores = scoring(weight, torch.cat([self.att_src, self.att_dst]))
            made = projected(x, torch.cat([weight, of_scores]), None)
            own, of_sources, of_targets = torch.split(made, [len(weight), self.heads, self.heads], dim=1)
            return own, of_sources, of_targets
        values = projected(x, weight, None)
        if ends.target is None:
            of_targets = values.new_zeros(ends.sizes[1], self.heads)
        else:
            of_targets = scored(ends.target, of_target.weight, self.att_dst)
        return values, scored(x, weight, self.att_src), of_targets


class GATv2Conv(peers.GATv2Conv):  # type: ignore[misc]
    """PyG's `GATv2Conv` (arXiv 2105.14491) by the fused operator of `graphmill.nn.attention`.

    PyG's own code computes where it does for `GATConv`.
    """

    propagate_type: ClassVar = {"x": PairTensor, "alpha": Tensor}
    edge_updater_type: ClassVar = {"x": PairTensor, "edge_attr": OptTensor}

    def forward(
        self,
        x: Tensor | PairTensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:  # noqa: ANN401  # PyG's result where it computes
        """[num_targets, heads * out_channels], or [num_targets, out_channels] where heads are averaged.

        Args:
            x: float32 [num_nodes, in_channels], or (sources [num_sources, …], targets [num_targets, …]).
            edge_index: int64 [2, num_edges], sources first, in any order.
            edge_attr: float32 [num_edges, edge_dim], or [num_edges] for an `edge_dim` of 1.
            return_attention_weights: also give (edge_index, alpha), by PyG's own code.
        """
        ends, groups = ends_of(x, None), None
        if ends is not None and ends.target is not None and not return_attention_weights:
            parts = [self.lin_l, self.lin_r]
            groups = _groups(self, peers.GATv2Conv, ends, edge_index, edge_attr, parts, self.att)
        if ends is None or ends.target is None or groups is None:
            return super().forward(x, edge_index, edge_attr, return_attention_weights)
        values = projected(ends.source, self.lin_l.weight, self.lin_l.bias)
        is_shared = self.lin_r is self.lin_l and ends.target is ends.source
        of_targets = values if is_shared else projected(ends.target, self.lin_r.weight, self.lin_r.bias)
        scores = Scores(of_targets, None, self.att.flatten(), self.negative_slope)
        return _attended(self, values, scores, _features(self, edge_attr, groups, None), groups, ends.target)


def _groups(
    layer: MessagePassing, peer: type, ends: LayerEnds, edge_index: Tensor, edge_attr: Tensor | None, parts: list[Any],
    att: Tensor,
) -> EdgeGroups | None:  # fmt: skip
    """The edges as attention reads them; None: PyG's own code computes."""
    # A sparse x is read in one product alone: no other of targets, and no residual.
    sparse = ends.target is ends.source and layer.res is None and getattr(layer, "lin", parts) is not None
    takes = aggregation_of(layer, peer) == "sum" and 0 <= layer.dropout <= 1
    if not takes or not is_ours(ends, edge_index, parts, att, sparse=sparse):
        return None
    if isinstance(layer.fill_value, str) and layer.fill_value not in REDUCTIONS:
        return None
    if edge_attr is not None:
        lin_edge = layer.lin_edge
        if type(edge_attr) not in (Tensor, nn.Parameter) or not is_native(edge_attr) or edge_attr.dim() > 2:
            return None
        if type(lin_edge) is not Linear or has_hooks(lin_edge) or not is_native(lin_edge.weight):
            return None
        width = edge_attr.shape[1] if edge_attr.dim() == 2 else 1
        if len(edge_attr) != edge_index.shape[1] or width != lin_edge.weight.shape[1]:
            return None
    return groups_of(edge_index, *ends.sizes, min(ends.sizes) if layer.add_self_loops else 0)


def _features(
    layer: MessagePassing, edge_attr: Tensor | None, groups: EdgeGroups, att: Tensor | None
) -> EdgeScores | None:
    if edge_attr is None:
        return None
    edge_attr = edge_attr.unsqueeze(1) if edge_attr.dim() == 1 else edge_attr
    weight = layer.lin_edge.weight
    weight = weight.t() if att is None else by_head(weight, att)
    return EdgeScores(edge_attr, loop_features(edge_attr, layer.fill_value, groups), weight)


def _attended(
    layer: MessagePassing, values: Tensor, scores: Scores, features: EdgeScores | None, groups: EdgeGroups,
    target: Tensor | None,
) -> Tensor:  # fmt: skip
    """What follows the scores: attention, the mean over heads, the residual and the bias."""
    dropout = None
    if layer.training and layer.dropout > 0:
        dropout = Dropout(torch.randint(2**63 - 1, (1,)), layer.dropout)
    out, _ = operator.attention(values, layer.heads, scores, features, dropout, groups)
    if not layer.concat:
        out = out.view(-1, layer.heads, layer.out_channels).mean(dim=1)
    if layer.res is not None and target is not None:
        out = out + layer.res(target)
    return out if layer.bias is None else out + layer.bias
