"""GATv2 (Brody, Alon & Yahav 2022, arXiv 2105.14491) with features of edges."""

from typing import Any

import torch
from torch import Tensor, nn

from graphmill.nn.attention.edges import EdgeGroups
from graphmill.nn.attention.layers import (
    AttentionConv,
    AttentionWeights,
    Form,
    Projection,
    glorot,
    projection,
    with_loops,
)
from graphmill.nn.attention.operator import Scores


class GATv2Conv(AttentionConv):
    """x'ᵢ = ‖ₕ Σⱼ αᵢⱼₕ Θ_lₕxⱼ + b, with αᵢⱼₕ = softmaxⱼ ⟨aₕ, leaky(Θ_lₕxⱼ + Θ_rₕxᵢ + Wₑₕ eᵢⱼ)⟩ (eq. 7).

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
        share_weights: bool = False,
        residual: bool = False,
        *,
        attention: Form = "fused",
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops, edge_dim, fill_value,
            attention, kwargs,
        )  # fmt: skip
        self.share_weights = share_weights
        width = heads * out_channels
        left, right = (in_channels, in_channels) if isinstance(in_channels, int) else in_channels
        self.lin_l: Projection = projection(left, width, bias=bias)
        self.lin_r: Projection = self.lin_l if share_weights else projection(right, width, bias=bias)
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        self.lin_edge = None if edge_dim is None else projection(edge_dim, width, bias=False)
        self._add_ends(residual, bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights and the attention vector after Glorot, a bias of zero."""
        super().reset_parameters()
        glorot(self.att)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | EdgeGroups,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
        *,
        dropout_key: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, AttentionWeights]:
        """[num_targets, heads * out_channels], or [num_targets, out_channels] where heads are averaged.

        Args:
            x: [num_nodes, in_channels], or (sources [num_sources, …], targets [num_targets, …]).
            edge_index: int64 [2, num_edges] in any order, or what `group_edges` made of it.
            edge_attr: [num_edges, edge_dim] in that order.
            return_attention_weights: give alpha as well.
            dropout_key: int64 [1], of the draws of dropout; None: one is drawn from torch's generator.

        Returns:
            The rows; with `return_attention_weights` also (edge_index with loops, alpha [n, heads] after dropout):
            alpha of the fused form carries no gradient.
        """
        x_source, x_target = x if isinstance(x, tuple) else (x, x)
        values = self.lin_l(x_source)
        of_targets = values if self.share_weights and x_target is x_source else self.lin_r(x_target)
        groups = self._groups(edge_index, len(x_source), len(x_target))
        scores = Scores(of_targets, None, self.att.flatten(), self.negative_slope)
        features = self._features(edge_attr, self.lin_edge, groups)
        out, alpha = self._attend(
            values, scores, features, groups, key=dropout_key, with_alpha=bool(return_attention_weights)
        )
        out = self._finish(out, x_target)
        if not return_attention_weights:
            return out
        assert alpha is not None
        return out, with_loops(groups, alpha)
