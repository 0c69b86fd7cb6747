"""GAT (Veličković, Cucurull, Casanova, Romero, Liò & Bengio 2018, arXiv 1710.10903) with features of edges."""

from typing import Any

import torch
from torch import Tensor, nn

from graphmill.nn.attention.edges import EdgeGroups
from graphmill.nn.attention.layers import (
    AttentionConv,
    AttentionWeights,
    Form,
    Pair,
    Projection,
    glorot,
    projection,
    scored,
    scoring,
    weight_of,
    with_loops,
)
from graphmill.nn.attention.operator import Scores
from graphmill.nn.operators import linear


class GATConv(AttentionConv):
    """x'ᵢ = ‖ₕ Σⱼ αᵢⱼₕ Θₕxⱼ + b, αᵢⱼₕ = softmaxⱼ leaky(⟨a_srcₕ, Θₕxⱼ⟩ + ⟨a_dstₕ, Θₕxᵢ⟩ + ⟨a_edgeₕ, Wₑₕ eᵢⱼ⟩) (eq. 1-4).

    Drops in for PyG's: the same arguments, state_dict and results; messages are added. `concat=False`: the mean over
    heads in place of ‖. `attention`: "fused" makes no tensor of edges × heads × channels; "reference" is plain PyTorch.
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        residual: bool = False,
        *,
        attention: Form = "fused",
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops, edge_dim, fill_value,
            attention, kwargs,
        )  # fmt: skip
        width = heads * out_channels
        self.lin: Projection | None = None
        self.lin_src: Projection | None = None
        self.lin_dst: Projection | None = None
        if isinstance(in_channels, int):
            self.lin = projection(in_channels, width, bias=False)
        else:
            self.lin_src, self.lin_dst = (projection(channels, width, bias=False) for channels in in_channels)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        self.lin_edge = None if edge_dim is None else projection(edge_dim, width, bias=False)
        self.att_edge = None if edge_dim is None else nn.Parameter(torch.empty(1, heads, out_channels))
        self._add_ends(residual, bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights and attention vectors after Glorot, a bias of zero."""
        super().reset_parameters()
        for att in (self.att_src, self.att_dst, self.att_edge):
            if att is not None:
                glorot(att)

    def forward(
        self,
        x: Tensor | Pair,
        edge_index: Tensor | EdgeGroups,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
        *,
        dropout_key: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, AttentionWeights]:
        """[num_targets, heads * out_channels], or [num_targets, out_channels] where heads are averaged.

        Args:
            x: [num_nodes, in_channels], or (sources [num_sources, …], targets [num_targets, …] or None).
            edge_index: int64 [2, num_edges] in any order, or what `group_edges` made of it.
            edge_attr: [num_edges, edge_dim] in that order.
            size: (num_sources, num_targets), where targets have no rows.
            return_attention_weights: give alpha as well.
            dropout_key: int64 [1], of the draws of dropout; None: one is drawn from torch's generator.

        Returns:
            The rows; with `return_attention_weights` also (edge_index with loops, alpha [n, heads] after dropout):
            alpha of the fused form carries no gradient.
        """
        x_source, x_target = x if isinstance(x, tuple) else (x, x)
        num_sources, num_targets = size or (len(x_source), len(x_source if x_target is None else x_target))
        groups = self._groups(edge_index, num_sources, num_targets)
        values, of_sources, of_targets = self._projected(x_source, x_target, num_targets)
        scores = Scores(of_targets, of_sources, None, self.negative_slope)
        features = self._features(edge_attr, self.lin_edge, groups, self.att_edge)
        out, alpha = self._attend(
            values, scores, features, groups, key=dropout_key, with_alpha=bool(return_attention_weights)
        )
        out = self._finish(out, x_target)
        if not return_attention_weights:
            return out
        assert alpha is not None
        return out, with_loops(groups, alpha)

    def _projected(self, x: Tensor, x_target: Tensor | None, num_targets: int) -> tuple[Tensor, Tensor, Tensor]:
        """Values [num_sources, heads * out_channels], scores of sources and of targets [num_…, heads]."""
        of_source, of_target = (self.lin, self.lin) if self.lin is not None else (self.lin_src, self.lin_dst)
        assert of_source is not None
        assert of_target is not None
        weight = weight_of(of_source, x)
        if x_target is x and of_target is of_source and of_source.is_fused(x):
            # One product for all three, and one for each gradient.
            of_scores = scoring(weight, torch.cat([self.att_src, self.att_dst]))
            made = linear(x.contiguous(), torch.cat([weight, of_scores]), None)
            own, of_sources, of_targets = torch.split(made, [len(weight), self.heads, self.heads], dim=1)
            return own, of_sources, of_targets
        values = of_source(x)
        of_targets = (
            values.new_zeros(num_targets, self.heads)
            if x_target is None
            else scored(x_target, weight_of(of_target, x_target), self.att_dst)
        )
        return values, scored(x, weight, self.att_src), of_targets
