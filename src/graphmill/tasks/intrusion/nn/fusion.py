"""One score of two: logistic regression on those of a classifier and of an autoencoder, which stay as they are."""

from typing import Self

import torch
from torch import Tensor, nn

from graphmill.graph.batch import GraphBatch
from graphmill.nn.standardise import Standardise
from graphmill.tasks.intrusion.nn.gat import CanGat
from graphmill.tasks.intrusion.nn.reference import Reference
from graphmill.tasks.intrusion.nn.vgae import CanVgae


class CanFusion(nn.Module):
    """Stacking (Wolpert 1992): log-odds = w · standardised scores + b."""

    def __init__(self, gat: CanGat, vgae: CanVgae) -> None:
        super().__init__()
        self.gat, self.vgae = gat.requires_grad_(False).eval(), vgae.requires_grad_(False).eval()
        self.scale = Standardise.unknown(2)
        self.head = nn.Linear(2, 1)

    @property
    def reference(self) -> Reference:
        """Benign traffic, as the classifier knows it."""
        return self.gat.reference

    def train(self, mode: bool = True) -> Self:  # as nn.Module has it
        """Set the mode, except for the two models: dropout stays off in both."""
        super().train(mode)
        self.gat.eval()
        self.vgae.eval()
        return self

    def forward(self, batch: GraphBatch) -> Tensor:
        """Logits of no attack and of an attack [num_graphs, 2]."""
        odds = self.head(self.scale(self.of_members(batch)))
        return torch.cat([torch.zeros_like(odds), odds], dim=1)

    def of_members(self, batch: GraphBatch) -> Tensor:
        """Scores of the classifier and of the autoencoder [num_graphs, 2], float64."""
        return torch.stack([self.gat.scores(batch), self.vgae.scores(batch)], dim=1)
