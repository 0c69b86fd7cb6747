"""GIN on a set of graphs as a PyG script trains it: `python pyg_gin.py GRAPHS.npz EPOCHS` → seconds of each epoch."""

import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

WIDTH, LAYERS, DROPOUT = 64, 4, 0.5


class Gin(nn.Module):
    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        widths = [num_features, *[WIDTH] * LAYERS]
        self.layers = nn.ModuleList(GINConv(block(width), train_eps=True) for width in widths[:-1])
        self.readout = nn.Linear(sum(widths), num_classes)

    def forward(self, batch: Data) -> Tensor:
        hidden = [batch.x]
        for layer in self.layers:
            hidden.append(layer(hidden[-1], batch.edge_index))
        pooled = torch.cat([global_add_pool(x, batch.batch, batch.num_graphs) for x in hidden], dim=1)
        return self.readout(F.dropout(pooled, DROPOUT, self.training))


def block(width: int) -> nn.Sequential:
    first, second = nn.Linear(width, WIDTH), nn.Linear(WIDTH, WIDTH)
    return nn.Sequential(first, nn.BatchNorm1d(WIDTH), nn.ReLU(), second, nn.BatchNorm1d(WIDTH), nn.ReLU())


def graphs(path: str, part: int = 0) -> list[Data]:
    """Those of one part: 0 to train on, 1 to validate with, 2 to test; with features of edges where there are some."""
    given = np.load(path)
    nodes, edges = np.cumsum(given["num_nodes"])[:-1], np.cumsum(given["num_edges"])[:-1]
    columns = {
        "x": np.split(given["x"], nodes),
        "edge_index": np.split(given["edge_index"], edges, axis=1),
        "y": given["y"].reshape(-1, 1),
    }
    if "edge_attr" in given:
        columns["edge_attr"] = np.split(given["edge_attr"], edges)
    return [
        Data(**{name: torch.from_numpy(values[number]) for name, values in columns.items()})
        for number in np.flatnonzero(given["split"] == part)
    ]


def main() -> None:
    torch.manual_seed(0)
    known = graphs(sys.argv[1])
    loader = DataLoader(known, batch_size=32, shuffle=True)
    model = Gin(known[0].num_features, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    seconds = []
    for _ in range(int(sys.argv[2])):
        begin = time.perf_counter()
        for batch in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(batch), batch.y).backward()
            optimizer.step()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
