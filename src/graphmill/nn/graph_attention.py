"""GAT and GATv2 for whole graphs, with features of edges and a readout of every layer."""

import itertools
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmill.graph.batch import GraphBatch
from graphmill.nn.attention import EdgeGroups, GATConv, GATv2Conv, group_edges
from graphmill.nn.attention.layers import Form
from graphmill.nn.checkpointed import call
from graphmill.nn.operators import sum_of_rows


class GraphAttention(nn.Module):
    """Layers of attention with ELU between; graphs are the means of their nodes, by layer, beside each other.

    The readout of all layers is jumping knowledge by concatenation (Xu et al. 2018, arXiv 1806.03536).
    """

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
        widths = [in_channels, *[heads * hidden_channels] * num_layers]
        conv: type[GATConv | GATv2Conv] = {"gat": GATConv, "gatv2": GATv2Conv}[kind]
        self.layers = nn.ModuleList(
            conv(inner, hidden_channels, heads, dropout=attention_dropout, edge_dim=edge_dim, attention=attention)
            for inner, _ in itertools.pairwise(widths)
        )
        self.dropout = nn.Dropout(dropout)
        self.readout = nn.Linear(sum(widths), out_channels)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Logits [num_graphs, out_channels]."""
        return self.readout(self.dropout(self.embed(batch)))  # type: ignore[no-any-return]

    def embed(self, batch: GraphBatch) -> Tensor:
        """What is classified [num_graphs, in_channels + num_layers · heads · hidden_channels]."""
        num_nodes = len(batch.x)
        # Once for all layers; each node attends to itself as well.
        groups = group_edges(batch.edge_index, num_nodes, num_nodes, num_nodes, by_source=torch.is_grad_enabled())
        edge_attr = batch.edge_attr if batch.edge_attr.shape[1] else None
        hidden = [batch.x]
        for depth in range(len(self.layers)):
            h = call(self._layer, depth, hidden[-1], groups, edge_attr, checkpointed=self.checkpoint_activations)
            hidden.append(h)
        return torch.cat([mean_of_graphs(h, batch.node_offsets) for h in hidden], dim=1)

    def _layer(self, depth: int, h: Tensor, groups: EdgeGroups, edge_attr: Tensor | None) -> Tensor:
        return F.elu(self.layers[depth](h, groups, edge_attr))


def mean_of_graphs(h: Tensor, node_offsets: Tensor) -> Tensor:
    """Means over the nodes of each graph: [n, num_channels] → [num_graphs, num_channels]; 0 where it has none."""
    return sum_of_rows(h, node_offsets) / node_offsets.diff().clamp(min=1).unsqueeze(1)
