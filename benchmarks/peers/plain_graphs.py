"""GIN or GAT on a set of graphs as a PyG script trains, evaluates and tests it.

    python plain_graphs.py GRAPHS.npz EPOCHS {GIN,GAT}

Under torchrun each process has its share of the graphs of an epoch. Prints {"val": …, "test": …}.
"""

import copy
import json
import sys

import torch
import torch.nn.functional as F
from plain_ranks import is_first, join, leave, parallel
from pyg_gin import Gin, graphs
from torch import Tensor, nn
from torch.utils.data import DistributedSampler
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, global_mean_pool

BATCH, HEADS, CHANNELS, LAYERS = 32, 4, 16, 3


class Gat(nn.Module):
    """Attention with features of edges, and a readout of every layer."""

    def __init__(self, num_features: int, num_classes: int, edge_dim: int) -> None:
        super().__init__()
        widths = [num_features, *[HEADS * CHANNELS] * LAYERS]
        self.layers = nn.ModuleList(GATConv(width, CHANNELS, HEADS, edge_dim=edge_dim) for width in widths[:-1])
        self.readout = nn.Linear(sum(widths), num_classes)

    def forward(self, batch: Data) -> Tensor:
        hidden = [batch.x]
        for layer in self.layers:
            hidden.append(F.elu(layer(hidden[-1], batch.edge_index, batch.edge_attr)))
        pooled = torch.cat([global_mean_pool(x, batch.batch, batch.num_graphs) for x in hidden], dim=1)
        return self.readout(F.dropout(pooled, 0.2, self.training))


def main() -> None:
    path, epochs = sys.argv[1], int(sys.argv[2])
    rank, ranks = join()
    torch.manual_seed(0)
    known, judged, tested = (graphs(path, part) for part in range(3))
    sampler = DistributedSampler(known, ranks, rank) if ranks > 1 else None
    loader = DataLoader(known, BATCH // ranks, shuffle=sampler is None, sampler=sampler)
    num_features, classes = known[0].num_features, 1 + max(int(each.y) for each in known)
    model: nn.Module = Gin(num_features, classes)
    if sys.argv[3] == "GAT":
        model = Gat(num_features, classes, known[0].num_edge_features)
    trained = parallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    best, weights = -1.0, model.state_dict()
    for epoch in range(epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            F.cross_entropy(trained(batch), batch.y).backward()
            optimizer.step()
        if is_first() and (score := accuracy(model, judged)) > best:
            best, weights = score, copy.deepcopy(model.state_dict())
    if is_first():
        model.load_state_dict(weights)
        print(json.dumps({"val": best, "test": accuracy(model, tested)}))
    del trained  # DDP would else end gloo's thread at exit, with the GIL that this thread may wait for: a hang
    leave()


@torch.no_grad()
def accuracy(model: nn.Module, known: list[Data]) -> float:
    model.eval()
    right = sum(int((model(batch).argmax(dim=1) == batch.y).sum()) for batch in DataLoader(known, BATCH))
    return right / len(known)


if __name__ == "__main__":
    main()
