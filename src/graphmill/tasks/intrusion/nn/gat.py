"""Is there an attack in a window? Attention over its ids, a mean over nodes, and a stack of linear layers."""

import itertools
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmill.graph.batch import GraphBatch
from graphmill.nn.attention import EdgeGroups, GATConv, GATv2Conv, group_edges
from graphmill.nn.attention.layers import Form
from graphmill.nn.checkpointed import call
from graphmill.nn.operators import relu_dropped, segment_mean
from graphmill.nn.standardise import Standardise
from graphmill.tasks.intrusion.nn.ids import NUM_ID_COLUMNS, HashedIds, ids_of
from graphmill.tasks.intrusion.nn.reference import Reference


class CanGat(nn.Module):
    """Layers of attention, read out together (jumping knowledge by concatenation: Xu et al. 2018, arXiv 1806.03536).

    Features are standardised here, so that the weights hold all that a window's raw features need. To the log-odds a
    linear term is added, of the window's largest deviation from benign traffic: layers of attention learn what the
    attacks that they are shown look like, and the term carries over to others.
    """

    def __init__(
        self,
        *,
        kind: Literal["gat", "gatv2"],
        nodes: Standardise,
        edges: Standardise | None,
        reference: Reference,
        hidden_channels: int,
        heads: int,
        num_layers: int,
        id_channels: int,
        id_rows: int,
        id_dropout: float,
        fc_layers: int,
        dropout: float,
        attention_dropout: float,
        attention: Form,
        checkpoint_activations: bool = False,
    ) -> None:
        """`edges`: None if features of edges are not read."""
        super().__init__()
        self.checkpoint_activations = checkpoint_activations
        self.nodes, self.edges, self.reference = nodes, edges, reference
        self.ids = HashedIds(id_rows, id_channels, hidden=id_dropout)
        conv: type[GATConv | GATv2Conv] = {"gat": GATConv, "gatv2": GATv2Conv}[kind]
        edge_dim = None if edges is None else len(edges.mean)
        widths = [id_channels + len(nodes.mean), *[heads * hidden_channels] * num_layers]
        self.layers = nn.ModuleList(
            conv(inner, hidden_channels, heads, dropout=attention_dropout, edge_dim=edge_dim, attention=attention)
            for inner, _ in itertools.pairwise(widths)
        )
        self.dropout = dropout
        stack = [sum(widths[1:]), *[hidden_channels] * (fc_layers - 1), 2]
        self.stack = nn.ModuleList(nn.Linear(inner, outer) for inner, outer in itertools.pairwise(stack))
        self.by_reference = nn.Linear(1, 1)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Logits of no attack and of an attack [num_graphs, 2]."""
        hidden = self.embed(batch)
        for layer in self.stack[:-1]:
            hidden = relu_dropped(layer(hidden), self.dropout, self.training)
        deviation = self.reference.of_windows(batch).to(hidden.dtype).unsqueeze(1)
        return self.stack[-1](hidden) + F.pad(self.by_reference(deviation), (1, 0))  # type: ignore[no-any-return]

    def scores(self, batch: GraphBatch) -> Tensor:
        """Log-odds of an attack [num_graphs], float64: a probability would be 1 long before they stop rising."""
        return log_odds(self(batch))

    def embed(self, batch: GraphBatch) -> Tensor:
        """Means over the nodes of a window, of all layers [num_graphs, num_layers · heads · hidden_channels]."""
        num_nodes = len(batch.x)
        groups = group_edges(batch.edge_index, num_nodes, num_nodes, num_nodes, by_source=torch.is_grad_enabled())
        attr = None if self.edges is None else self.edges(batch.edge_attr)
        h = torch.cat([self.ids(ids_of(batch.x)), self.nodes(batch.x[:, NUM_ID_COLUMNS:])], dim=1)
        every = torch.arange(num_nodes, dtype=torch.int32, device=h.device)
        read_out = []
        for depth in range(len(self.layers)):
            h = call(self._layer, depth, h, groups, attr, checkpointed=self.checkpoint_activations)
            read_out.append(segment_mean(h, batch.node_offsets, every))
        return torch.cat(read_out, dim=1)

    def _layer(self, depth: int, h: Tensor, groups: EdgeGroups, attr: Tensor | None) -> Tensor:
        return relu_dropped(self.layers[depth](h, groups, attr), self.dropout, self.training)


def log_odds(logits: Tensor) -> Tensor:
    """Log-odds of the second of two classes: [n, 2] → [n], float64."""
    wide = logits.double()
    return wide[:, 1] - wide[:, 0]
