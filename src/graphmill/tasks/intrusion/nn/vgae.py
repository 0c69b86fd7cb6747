"""What is normal in a window? A variational autoencoder of its graph (Kipf & Welling 2016, arXiv 1611.07308)."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmill.graph.batch import GraphBatch
from graphmill.nn.attention import EdgeGroups, GATConv, GATv2Conv, group_edges
from graphmill.nn.attention.layers import Form
from graphmill.nn.checkpointed import call
from graphmill.nn.graph_attention import mean_of_graphs
from graphmill.nn.operators import relu_dropped
from graphmill.nn.standardise import Standardise
from graphmill.tasks.intrusion.nn.ids import HashedIds, ids_of, row_of
from graphmill.tasks.intrusion.nn.reference import Reference

_MOST_LOGVAR = 20.0
_LEAST_ERROR = 1e-30  # of a window; it has a logarithm


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """What comes back of a window's nodes."""

    mean: Tensor  # [n, latent_channels]
    logvar: Tensor  # [n, latent_channels]
    features: Tensor  # [n, num_features], each within 0 to 1
    ids: Tensor  # logits of the id's bucket [n, id_buckets]
    following: Tensor  # logits of the buckets of ids that follow [n, id_buckets]


@dataclass(frozen=True, slots=True)
class ErrorWeights:
    """What counts beside the mean squared error of features."""

    ids: float
    following: float
    kl: float


class CanVgae(nn.Module):
    """Two layers of attention to a latent vector of every node, and two back.

    Ids are given back as buckets of a hash, so that there is no vocabulary: an id that was never seen is in a bucket
    that nothing was trained to give back. Layers are normalised over the channels of a node, so that what a window
    gives does not depend on its batch.
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
        latent_channels: int,
        id_channels: int,
        id_rows: int,
        id_dropout: float,
        id_buckets: int,
        dropout: float,
        attention: Form,
        weights: ErrorWeights,
        score: Literal["mean", "max"],
        checkpoint_activations: bool = False,
    ) -> None:
        """`edges`: None if features of edges are not read."""
        super().__init__()
        self.checkpoint_activations = checkpoint_activations
        self.nodes, self.edges, self.weights, self.score, self.id_buckets = nodes, edges, weights, score, id_buckets
        self.reference = reference
        self.ids = HashedIds(id_rows, id_channels, hidden=id_dropout)
        conv: type[GATConv | GATv2Conv] = {"gat": GATConv, "gatv2": GATv2Conv}[kind]
        edge_dim = None if edges is None else len(edges.mean)
        num_features, wide, narrow = len(nodes.mean), hidden_channels, hidden_channels // 2

        def layer(inner: int, outer: int) -> nn.Module:
            return conv(inner, outer // heads, heads, edge_dim=edge_dim, attention=attention)

        self.encoder = nn.ModuleList([layer(id_channels + num_features, wide), layer(wide, narrow)])
        self.to_mean, self.to_logvar = nn.Linear(narrow, latent_channels), nn.Linear(narrow, latent_channels)
        self.decoder = nn.ModuleList([layer(latent_channels, narrow), layer(narrow, wide)])
        self.to_features = nn.Linear(wide, num_features)
        self.to_ids = nn.Linear(latent_channels, id_buckets)
        self.to_following = nn.Sequential(
            *(nn.Linear(latent_channels, narrow), nn.ReLU()),
            *(nn.Linear(narrow, narrow), nn.ReLU()),
            nn.Linear(narrow, id_buckets),
        )
        self.dropout = dropout

    def forward(self, batch: GraphBatch) -> Reconstruction:
        """Reconstruct a batch: with noise while training, from torch's generator; without noise otherwise."""
        num_nodes = len(batch.x)
        groups = group_edges(batch.edge_index, num_nodes, num_nodes, num_nodes, by_source=torch.is_grad_enabled())
        attr = None if self.edges is None else self.edges(batch.edge_attr)
        h = torch.cat([self.ids(ids_of(batch.x)), self.nodes(features_of(batch))], dim=1)
        for layer in self.encoder:
            h = call(self._layer, layer, h, groups, attr, checkpointed=self.checkpoint_activations)
        mean = self.to_mean(h)
        logvar = self.to_logvar(h).clamp(-_MOST_LOGVAR, _MOST_LOGVAR)
        z = mean + torch.randn_like(mean) * torch.exp(logvar / 2) if self.training else mean
        h = z
        for layer in self.decoder:
            h = call(self._layer, layer, h, groups, attr, checkpointed=self.checkpoint_activations)
        return Reconstruction(mean, logvar, self.to_features(h).sigmoid(), self.to_ids(z), self.to_following(z))

    def losses(self, batch: GraphBatch, made: Reconstruction) -> Tensor:
        """Loss of every window, the mean over its nodes [num_graphs]: errors, and the divergence from a normal z."""
        kl = -0.5 * (1 + made.logvar - made.mean**2 - made.logvar.exp()).mean(dim=1)
        errors = self.errors(batch, made) + self.weights.kl * kl
        return mean_of_graphs(errors.unsqueeze(1), batch.node_offsets).squeeze(1)

    def errors(self, batch: GraphBatch, made: Reconstruction) -> Tensor:
        """Error of every node [n]: squared error of features, cross-entropies of its id and of those that follow it."""
        buckets = row_of(ids_of(batch.x), self.id_buckets)
        of_features = ((made.features - features_of(batch)) ** 2).mean(dim=1)
        of_ids = F.cross_entropy(made.ids.float(), buckets, reduction="none")
        source, target = batch.edge_index
        follows = torch.zeros_like(made.following)
        follows[source, buckets[target]] = 1.0
        of_following = F.binary_cross_entropy_with_logits(made.following, follows, reduction="none").mean(dim=1)
        return of_features + self.weights.ids * of_ids + self.weights.following * of_following

    def scores(self, batch: GraphBatch) -> Tensor:
        """Logarithm of a window's mean or largest error over its nodes, and its deviation [num_graphs], float64."""
        errors = self.errors(batch, self(batch)).double()
        offsets = batch.node_offsets
        found = torch.segment_reduce(errors, self.score, offsets=offsets, axis=0, initial=None)
        return (found + self.reference.of_windows(batch)).clamp(min=_LEAST_ERROR).log()

    def embed(self, batch: GraphBatch) -> Tensor:
        """Means over the nodes of a window of what is known of them [num_graphs, latent_channels]."""
        return mean_of_graphs(self(batch).mean, batch.node_offsets)

    def _layer(self, layer: nn.Module, h: Tensor, groups: EdgeGroups, attr: Tensor | None) -> Tensor:
        h = layer(h, groups, attr)
        return relu_dropped(F.layer_norm(h, h.shape[1:]), self.dropout, self.training)


def features_of(batch: GraphBatch) -> Tensor:
    """What `x` holds beside the id [n, num_features]."""
    return batch.x[:, 2:]
