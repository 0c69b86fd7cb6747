"""GAT and GATv2 for nodes, called as model(x, edge_index) as PyG's models are."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmill.nn.attention import EdgeGroups, GATConv, GATv2Conv, group_edges
from graphmill.nn.attention.layers import Form
from graphmill.nn.checkpointed import call


class NodeAttention(nn.Module):
    """Layers of attention with ELU between; the last one takes the mean over its heads."""

    def __init__(
        self,
        *,
        kind: Literal["gat", "gatv2"],
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        heads: int,
        num_layers: int,
        dropout: float,
        attention_dropout: float,
        edge_dim: int | None,
        attention: Form,
        checkpoint_activations: bool = False,
    ) -> None:
        super().__init__()
        self.checkpoint_activations = checkpoint_activations
        conv: type[GATConv | GATv2Conv] = {"gat": GATConv, "gatv2": GATv2Conv}[kind]
        inner = [in_channels, *[heads * hidden_channels] * (num_layers - 1)]
        self.layers = nn.ModuleList(
            conv(
                width,
                out_channels if depth == num_layers - 1 else hidden_channels,
                heads,
                concat=depth < num_layers - 1,
                dropout=attention_dropout,
                edge_dim=edge_dim,
                attention=attention,
            )
            for depth, width in enumerate(inner)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Logits [num_nodes, out_channels].

        `x` [num_nodes, in_channels]; `edge_index` int64 [2, num_edges], sources in row 0, in any order; `edge_attr`
        [num_edges, edge_dim] in that order.
        """
        # Once for all layers; each node attends to itself as well.
        groups = group_edges(edge_index, len(x), len(x), len(x), by_source=torch.is_grad_enabled())
        h = x
        for depth in range(len(self.layers)):
            h = call(self._layer, depth, h, groups, edge_attr, checkpointed=self.checkpoint_activations)
        return h

    def _layer(self, depth: int, h: Tensor, groups: EdgeGroups, edge_attr: Tensor | None) -> Tensor:
        read = self.dropout(h if depth == 0 else F.elu(h))
        return self.layers[depth](read, groups, edge_attr)  # type: ignore[no-any-return]
