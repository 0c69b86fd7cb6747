"""OneGNN: residual blocks on the columns, between sweeps that tell each column who wants it."""

import torch
from torch import Tensor, nn

from graphmill.tasks.assignment.data.features import First, Instances, Nearest, first_features, nearest, round_features
from graphmill.tasks.assignment.nn.loss import FeasiblePotentials, Predicted, capped, completed
from graphmill.tasks.assignment.page import CORRECTIONS, FIRST_FEATURES, ROUND_FEATURES


class ResidualBlock(nn.Module):
    """h ← h + MLP of h and of its mean over the columns of the instance, normalised before."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.own = nn.Linear(width, width)
        self.mean = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, h: Tensor, weight: Tensor) -> Tensor:
        """`h` [B, m, width]; `weight` [B, 1, m] adds up to 1 over the columns of the instance."""
        x = self.norm(h)
        hidden = torch.relu(self.own(x) + self.mean(weight @ x))
        return h + self.out(self.dropout(hidden))  # type: ignore[no-any-return]


class Round(nn.Module):
    """Features at the potentials of now → a correction of each."""

    def __init__(self, width: int, *, topk: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.inputs = nn.Linear(ROUND_FEATURES + topk, width)
        self.blocks = nn.ModuleList(ResidualBlock(width, dropout) for _ in range(num_layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CORRECTIONS)
        nn.init.zeros_(self.head.weight)  # untrained, it corrects nothing
        nn.init.zeros_(self.head.bias)

    def forward(self, h: Tensor, features: Tensor, lengths: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """States [B, m, width], and corrections [B, m] in the scale of the instance.

        A correction is a number, and shares of the two lengths: the least slack, and how firmly rows want the column.
        """
        h = h + self.inputs(features)
        for block in self.blocks:
            h = block(h, weight)
        made = self.head(self.norm(h)).float()
        return h, made[:, :, 0] + (made[:, :, 1:] * lengths).sum(dim=2)


class OneGnn(nn.Module):
    """Costs → potentials of the columns, corrected `rounds` times."""

    def __init__(
        self,
        *,
        hidden_channels: int,
        num_layers: int,
        rounds: int,
        topk: int,
        soft_sweeps: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.topk, self.soft_sweeps = topk, soft_sweeps
        self.first = nn.Linear(FIRST_FEATURES + topk + soft_sweeps, hidden_channels)
        self.rounds = nn.ModuleList(
            Round(hidden_channels, topk=topk, num_layers=num_layers, dropout=dropout) for _ in range(rounds)
        )

    def first_of(self, given: Instances) -> First:
        """What it sees first; nothing of it is learnt."""
        return first_features(given, topk=self.topk, soft_sweeps=self.soft_sweeps)

    def forward(self, given: Instances, first: First | None = None) -> Predicted:
        """What is predicted after each round. `first`: of `first_of`, if it was made before."""
        first = first or self.first_of(given)
        weight = _weights(given)
        h, v = self.first(first.columns), first.v
        found, made = nearest(given.costs, v, self.topk), list[FeasiblePotentials]()
        for number, round_ in enumerate(self.rounds):
            features, lengths = round_features(found, first.scale, given.is_column)
            h, change = round_(h, features, lengths, weight)
            v = capped(v + first.scale * change, given)
            if number == len(self.rounds) - 1:
                made.append(completed(v, given))
            else:
                found = nearest(given.costs, v.detach(), self.topk)
                made.append(_as_potentials(v, found))
        return Predicted(tuple(made), first.scale, first.reduced_v)


def _as_potentials(v: Tensor, listed: Nearest) -> FeasiblePotentials:
    u = listed.row_values[:, :, 0]
    return FeasiblePotentials(v, torch.where(u < torch.inf, u, 0.0), listed.row_columns[:, :, 0])


def _weights(given: Instances) -> Tensor:
    return (given.is_column / given.num_columns.unsqueeze(1)).unsqueeze(1)
