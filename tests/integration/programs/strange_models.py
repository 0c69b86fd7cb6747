"""Models that a person might bring."""

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from graphmill.base.errors import UserError


class Normalised(nn.Module):
    """Mean aggregation written with plain torch, and batch normalisation: buffers that differ between ranks."""

    def __init__(self, in_channels: int, out_channels: int, hidden_channels: int = 8, dropout: float = 0.3) -> None:
        super().__init__()
        self.first = nn.Linear(2 * in_channels, hidden_channels)
        self.norm = nn.BatchNorm1d(hidden_channels)
        self.dropout = nn.Dropout(dropout)
        self.second = nn.Linear(hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        total = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
        degree = torch.bincount(edge_index[1], minlength=len(x)).clamp(min=1)
        h = self.first(torch.cat([x, total / degree.unsqueeze(1)], dim=1))
        return self.second(self.dropout(self.norm(h).relu()))


class Picky(Normalised):
    """Refuses to be built on rank 1."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        if os.environ.get("RANK") == "1":
            raise UserError("this model does not like rank 1", fix="bring another model")
        super().__init__(in_channels, out_channels)


class Fragile(Normalised):
    """Breaks on rank 1 in its fifth step."""

    steps = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.steps += self.training
        if self.steps == 5 and os.environ.get("RANK") == "1":
            raise ArithmeticError("rank 1 met a bug")
        return super().forward(x, edge_index)


class Watchful(Normalised):
    """Says how the threads that read from gloo's sockets are scheduled, when its rank first trains."""

    said = False

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training and not self.said:
            self.said = True
            threads = [path for path in Path("/proc/self/task").iterdir() if "gloo_tcp" in (path / "comm").read_text()]
            print("gloo", sorted(os.sched_getscheduler(int(path.name)) for path in threads), flush=True)
            print("main", os.sched_getscheduler(0), flush=True)
        return super().forward(x, edge_index)


class Drifting(Normalised):
    """Changes its own weights from the fourth step on, on every rank by another amount."""

    steps = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.steps += self.training
        if self.training and self.steps > 3:
            with torch.no_grad():
                self.second.bias += 1e-3 * int(os.environ["RANK"])
        return super().forward(x, edge_index)


class Exploding(Normalised):
    """Its output is no number from the third step on."""

    steps = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.steps += self.training
        return super().forward(x, edge_index) * (float("nan") if self.steps >= 3 else 1)
