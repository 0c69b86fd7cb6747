"""Graph isomorphism network for whole graphs (Xu et al. 2019, arXiv 1810.00826)."""

import itertools
from typing import Literal

import torch
from torch import Tensor, nn

from graphmill.graph.batch import Block, GraphBatch
from graphmill.nn.operators import norm_relu, self_and_sum, sum_of_rows

Norm = Literal["layer", "batch"]


class GinLayer(nn.Module):
    """h_v ← MLP((1 + ε) h_v + Σ h_u over the sources u of edges to v): equation 4.1 of the paper."""

    def __init__(self, in_channels: int, out_channels: int, *, norm: Norm, train_eps: bool) -> None:
        super().__init__()
        make = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d}[norm]
        self.eps = nn.Parameter(torch.zeros(1)) if train_eps else None
        self.mlp = nn.Sequential(
            nn.Linear(in_channels, out_channels),
            make(out_channels),
            nn.ReLU(),
            nn.Linear(out_channels, out_channels),
            make(out_channels),
            nn.ReLU(),
        )

    def forward(self, h: Tensor, block: Block) -> Tensor:
        """`h` [n, in_channels] → [n, out_channels], both of all nodes."""
        first, norm, _, second, last_norm, _ = self.mlp
        summed = self_and_sum(h, self.eps, block.indptr, block.indices)
        return norm_relu(last_norm, second(norm_relu(norm, first(summed))))


class Gin(nn.Module):
    """GIN with a readout of every layer: graphs are the sums of their nodes, by layer, beside each other.

    With `mean_nodes`, the nodes of a mean graph, they are the means of their nodes, and beside them the sums divided by
    that: logits begin near 0 however large the graphs are.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        dropout: float,
        norm: Norm,
        train_eps: bool,
        mean_nodes: float | None = None,
    ) -> None:
        super().__init__()
        # Frozen: the weights hold it, so that they compute the same on other graphs; no sync touches it.
        self.mean_nodes = None if mean_nodes is None else nn.Parameter(torch.tensor(mean_nodes), requires_grad=False)
        widths = [in_channels, *[hidden_channels] * num_layers]
        self.layers = nn.ModuleList(
            GinLayer(inner, outer, norm=norm, train_eps=train_eps) for inner, outer in itertools.pairwise(widths)
        )
        self.dropout = nn.Dropout(dropout)
        self.readout = nn.Linear(sum(widths) * (1 if mean_nodes is None else 2), out_channels)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Logits [num_graphs, out_channels]."""
        return self.readout(self.dropout(self.embed(batch)))  # type: ignore[no-any-return]

    def embed(self, batch: GraphBatch) -> Tensor:
        """What is classified [num_graphs, in_channels + num_layers · hidden_channels], twice that with `mean_nodes`."""
        hidden = [batch.x]
        for layer in self.layers:
            hidden.append(layer(hidden[-1], batch.block))
        sums = torch.cat([sum_of_rows(h, batch.node_offsets) for h in hidden], dim=1)
        if self.mean_nodes is None:
            return sums
        num_nodes = batch.node_offsets.diff().clamp(min=1).unsqueeze(1)
        return torch.cat([sums / num_nodes, sums / self.mean_nodes], dim=1)
