"""Potentials of assignment problems as the trainer that the task comes from learns them, written from its description.

    python plain_assignment.py FOLDER EPOCHS BATCH

FOLDER has train.h5, val.h5 and test.h5: a record n is the matrix C[n] and the optimal potentials u[n]. The network
reads 21 numbers of a row, for which its matrix is sorted twice, and makes u; v are the minima of what is left. The loss
is the dual objective and 0.1 of the squared distance to the optimal u. The original's greedy primal solution and its
hinge on pairs that exceed their costs are left out: neither has a gradient. Prints {"val": …, "test": …}, median dual
gaps.
"""

import copy
import json
import math
import statistics
import sys
from pathlib import Path

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class OriginalOneGnn(nn.Module):
    """Linear, GELU, LayerNorm; residual blocks with a norm after each; an MLP; centred."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(21, hidden), nn.GELU(), nn.LayerNorm(hidden))
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(hidden, hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, hidden), nn.Dropout(0.1)
            )
            for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers))
        self.out = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for block, norm in zip(self.blocks, self.norms, strict=True):
            h = norm(h + block(h))
        u: Tensor = self.out(h).squeeze(2)
        return u - u.mean(dim=1, keepdim=True)


def row_features(costs: Tensor) -> Tensor:
    """13 statistics of each row and 8 positions [n, 21]; the matrix is sorted twice."""
    n = len(costs)
    ascending = costs.sort(dim=1).values
    least, mean = ascending[:, 0], costs.mean(dim=1)
    median = costs.median(dim=1, keepdim=True).values
    spread = (costs - median).abs().sort(dim=1).values[:, n // 2]  # the median of them
    share = torch.softmax(-costs, dim=1)
    gaps = ascending.diff(dim=1)
    near = ascending[:, :10]
    winners = torch.bincount(costs.argmin(dim=0), minlength=n).float() / n
    statistics = [
        *(least, ascending[:, -1], mean, costs.std(dim=1), spread, -(share * share.log()).sum(dim=1)),
        *(gaps[:, 0], gaps[:, 0] / (ascending[:, -1] - least), near.mean(dim=1), near.std(dim=1)),
        *(1 / gaps.mean(dim=1), (costs <= 1.1 * least.unsqueeze(1)).float().mean(dim=1), winners),
    ]
    place = torch.arange(n) / n
    positions = [wave(2 * math.pi * 2**k * place) for k in range(4) for wave in (torch.sin, torch.cos)]
    return torch.stack([*statistics, *positions], dim=1)


class Problems(Dataset):
    """Costs, features and optimal u of each record, all read once."""

    def __init__(self, path: Path) -> None:
        with h5py.File(path) as file:
            u = [torch.from_numpy(each.astype(np.float32)) for each in file["u"][:]]
            costs = [torch.from_numpy(each.astype(np.float32)) for each in file["C"][:]]
        self.records = [
            (c.view(len(o), -1), row_features(c.view(len(o), -1)), o) for c, o in zip(costs, u, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.records[number]


def dual_objective(costs: Tensor, u: Tensor) -> Tensor:
    """Σ u + Σ v [B], v the minima of costs less u."""
    return u.sum(1) + (costs - u.unsqueeze(2)).min(dim=1).values.sum(1)


def main() -> None:
    folder, epochs, batch = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(0)
    known, judged, tested = (Problems(folder / f"{part}.h5") for part in ("train", "val", "test"))
    model = OriginalOneGnn(hidden=128, layers=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-4)
    best, weights = math.inf, model.state_dict()
    for _ in range(epochs):
        model.train()
        for costs, features, oracle in DataLoader(known, batch, shuffle=True):
            u = model(features)
            loss = -dual_objective(costs, u).mean() + 0.1 * F.mse_loss(u, oracle)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if (gap := median_gap(model, judged, batch)) < best:
            best, weights = gap, copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    print(json.dumps({"val": best, "test": median_gap(model, tested, batch)}))


@torch.no_grad()
def median_gap(model: nn.Module, problems: Problems, batch: int) -> float:
    """Median of what the dual objective misses of the optimum, over the optimum."""
    model.eval()
    gaps = list[float]()
    for costs, features, oracle in DataLoader(problems, batch):
        optimum = dual_objective(costs, oracle)
        gaps += ((optimum - dual_objective(costs, model(features))) / optimum.abs()).tolist()
    return statistics.median(gaps)


if __name__ == "__main__":
    main()
