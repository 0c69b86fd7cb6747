"""DualGNN: rows and columns send each other messages over all pairs, a tile of pairs at a time.

A network looks at every pair, and attention by additive scores weighs what a row takes from the columns and a column
from the rows. Of a tile nothing is kept but what it reads; its pairs are computed again on the way back, so that memory
grows with n, not with n². Scores are bounded, so that the exponentials of a softmax can be added up tile by tile.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmill.nn.checkpointed import call
from graphmill.tasks.assignment.data.features import First, Instances, first_features, nearest, round_features
from graphmill.tasks.assignment.nn.loss import Predicted, capped, completed
from graphmill.tasks.assignment.page import CORRECTIONS, EDGE_FEATURES

_BOUND = 8.0  # of scores: e^8 is 3,000 times e^0
_SLOPE = 0.2
_FAR = 1e4  # the largest cost that a pair shows, in the scale of the instance


class PairLayer(nn.Module):
    """Columns, and unless it is the last also rows, ← what they were, and what they take from each other."""

    def __init__(self, width: int, heads: int, dropout: float, *, is_last: bool) -> None:
        super().__init__()
        self.heads, self.is_last = heads, is_last
        self.pair = nn.Sequential(nn.Linear(EDGE_FEATURES, width), nn.ReLU(), nn.Linear(width, width))
        self.of_rows = nn.Linear(width, 2 * width, bias=False)  # what a row brings into scores, and into messages
        self.of_columns = nn.Linear(width, (1 if is_last else 2) * width, bias=False)
        self.scores = nn.Parameter(torch.empty(1 if is_last else 2, width))  # of messages to columns, and to rows
        nn.init.xavier_uniform_(self.scores)
        self.column_update, self.column_norm = nn.Linear(2 * width, width), nn.LayerNorm(width)
        if not is_last:
            self.row_update, self.row_norm = nn.Linear(2 * width, width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, rows: Tensor, columns: Tensor, x: Tensor, v: Tensor, tile_rows: int) -> tuple[Tensor, Tensor]:
        """`rows` [B, n, w], `columns` [B, m, w]; costs `x` [B, n, m] and potentials `v` [B, m], both over the scale."""
        of_rows, of_columns = self.of_rows(rows), self.of_columns(columns)
        to_rows, taken, weights = list[Tensor](), columns.new_zeros(columns.shape), columns.new_zeros(())
        for begin in range(0, rows.shape[1], tile_rows):
            tile = slice(begin, begin + tile_rows)
            message, numerator, weight = call(self.tile, x[:, tile], v, of_rows[:, tile], of_columns, checkpointed=True)
            to_rows.append(message)
            taken, weights = taken + numerator, weights + weight
        update = self.column_update(torch.cat([columns, _divided(taken, weights)], dim=2))
        if not self.is_last:
            rows = self.row_norm(rows + self.dropout(self.row_update(torch.cat([rows, torch.cat(to_rows, 1)], dim=2))))
        return rows, self.column_norm(columns + self.dropout(update))

    def tile(self, x: Tensor, v: Tensor, of_rows: Tensor, of_columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Messages of `t` rows with all columns: to the rows [B, t, w]; sums for the columns [B, m, w], [B, m, h]."""
        edge = self.pair(_edge_features(x, v))
        row_key, row_value = of_rows.chunk(2, dim=2)
        width = row_key.shape[2]
        z = F.leaky_relu(edge + row_key.unsqueeze(2) + of_columns[:, None, :, :width], _SLOPE)
        split = (*z.shape[:3], self.heads, -1)
        is_pair = (x < torch.inf).unsqueeze(3)

        def weights(score: Tensor) -> Tensor:
            return torch.exp(_BOUND * torch.tanh((z * score).view(split).sum(dim=4) / _BOUND)) * is_pair

        # The message of a pair is what its other side says, and what the pair itself is.
        of_pairs = weights(self.scores[0])
        taken = _of_pairs(of_pairs, edge.view(split), dim=1) + _of_sides(of_pairs.transpose(1, 2), row_value)
        message = of_rows.new_empty(0)
        if not self.is_last:
            by_row = weights(self.scores[1])
            said = _of_pairs(by_row, edge.view(split), dim=2) + _of_sides(by_row, of_columns[:, :, width:])
            message = _divided(said, by_row.sum(dim=2))
        return message, taken, of_pairs.sum(dim=1)


def _of_pairs(weights: Tensor, edge: Tensor, *, dim: int) -> Tensor:
    """Weighted sums of pairs over one of their sides: [B, t, m, h], [B, t, m, h, d] → [B, m or t, h · d]."""
    return (weights.unsqueeze(4) * edge).sum(dim=dim).flatten(2)


def _of_sides(weights: Tensor, values: Tensor) -> Tensor:
    """What the second side says, weighted: [B, m, t, h], [B, t, h · d] → [B, m, h · d]."""
    heads = weights.shape[3]
    by_head = values.view(*values.shape[:2], heads, -1).transpose(1, 2)
    return torch.matmul(weights.permute(0, 3, 1, 2), by_head).transpose(1, 2).flatten(2)


class DualGnn(nn.Module):
    """Costs → potentials of the columns."""

    def __init__(
        self, *, hidden_channels: int, num_layers: int, heads: int, topk: int, dropout: float, tile_pairs: int
    ) -> None:
        super().__init__()
        self.topk, self.tile_pairs = topk, tile_pairs
        self.of_rows, self.of_columns = (
            nn.Sequential(nn.Linear(topk + 2, hidden_channels), nn.LayerNorm(hidden_channels)) for _ in range(2)
        )
        self.layers = nn.ModuleList(
            PairLayer(hidden_channels, heads, dropout, is_last=number == num_layers - 1) for number in range(num_layers)
        )
        self.head = nn.Sequential(
            nn.LayerNorm(hidden_channels),
            nn.Linear(hidden_channels, hidden_channels),
            nn.ReLU(),
            nn.Linear(hidden_channels, CORRECTIONS),
        )
        last = self.head[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)  # untrained, it corrects nothing
        nn.init.zeros_(last.bias)

    def first_of(self, given: Instances) -> First:
        """What it sees first; nothing of it is learnt."""
        return first_features(given, topk=self.topk, soft_sweeps=0)

    def forward(self, given: Instances, first: First | None = None) -> Predicted:
        """What is predicted of every instance. `first`: of `first_of`, if it was made before."""
        first = first or self.first_of(given)
        found = nearest(given.costs, first.v, self.topk)
        _, lengths = round_features(found, first.scale, given.is_column)
        gaps = torch.asinh((found.row_values / first.scale.unsqueeze(2)).clamp(max=_FAR))
        gaps = torch.where(given.is_row.unsqueeze(2), gaps, 0.0)
        sizes = first.columns[:, :1, :2]  # the same for all of an instance
        rows = self.of_rows(torch.cat([sizes.expand(-1, gaps.shape[1], -1), gaps], dim=2))
        columns = self.of_columns(torch.cat([first.columns[:, :, :2], first.columns[:, :, 3 : 3 + self.topk]], dim=2))
        x, v = given.costs / first.scale.unsqueeze(2), first.v / first.scale
        tile_rows = max(1, self.tile_pairs // max(1, len(x) * x.shape[2]))
        for layer in self.layers:
            rows, columns = layer(rows, columns, x, v, tile_rows)
        made = self.head(columns).float()
        change = made[:, :, 0] + (made[:, :, 1:] * lengths).sum(dim=2)
        predicted = capped(first.v + first.scale * change, given)
        return Predicted((completed(predicted, given),), first.scale, first.reduced_v)


def _edge_features(x: Tensor, v: Tensor) -> Tensor:
    """Features of pairs [B, t, m, EDGE_FEATURES]: the cost, less the minima of rows alone and of columns, too."""
    near, reduced = x.clamp(max=_FAR), (x - v.unsqueeze(1)).clamp(min=0.0, max=_FAR)
    return torch.stack([torch.asinh(near), 1 / (1 + near), torch.asinh(reduced), 1 / (1 + reduced)], dim=3)


def _divided(taken: Tensor, weights: Tensor) -> Tensor:
    """`taken` [B, n, w] by the weights of its heads [B, n, h]; 0 where nothing was taken."""
    by_head = taken.view(*weights.shape, -1)
    return (by_head / weights.clamp(min=1e-20).unsqueeze(3)).flatten(2)
