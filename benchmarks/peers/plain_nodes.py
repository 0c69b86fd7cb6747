"""Node classification as a script with PyG does it: sampled training, exact evaluation, the best weights tested.

    python plain_nodes.py GRAPH.npz EPOCHS BATCH {GraphSAGE,GCN,GAT}

Under torchrun each process trains on its share of the seeds, DistributedDataParallel averages the gradients, and the
first one evaluates. The model runs on what each layer needs of a batch, and on the whole graph in evaluation: as a
sparse matrix where the layers take one, which is the fastest that PyG has on a CPU. Prints {"val": …, "test": …}.
"""

import copy
import json
import sys

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.nn as layers
from plain_ranks import is_first, join, leave, parallel
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.utils import to_torch_csr_tensor

HIDDEN, FANOUTS, HEADS = 128, [10, 10], 4


def main() -> None:
    path, epochs, batch_size, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    rank, ranks = join()
    torch.manual_seed(0)
    data, split = load(path)
    options = {"heads": HEADS} if kind == "GAT" else {}
    model: nn.Module = getattr(layers, kind)(
        data.num_features, HIDDEN, 2, int(data.y.max()) + 1, dropout=0.5, **options
    )
    edges = (
        data.edge_index if kind == "GAT" else to_torch_csr_tensor(data.edge_index.flip(0), size=(data.num_nodes,) * 2)
    )
    seeds = (split == 0).nonzero().flatten()
    loader = NeighborLoader(data, FANOUTS, seeds[rank::ranks], batch_size=batch_size // ranks, shuffle=True)
    trained = parallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    best, weights = -1.0, model.state_dict()
    for _ in range(epochs):
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            out = trained(
                batch.x,
                batch.edge_index,
                num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                num_sampled_edges_per_hop=batch.num_sampled_edges,
            )
            F.cross_entropy(out[: batch.batch_size], batch.y[: batch.batch_size]).backward()
            optimizer.step()
        if is_first() and (score := accuracy(model, data, edges, split == 1)) > best:
            best, weights = score, copy.deepcopy(model.state_dict())
    if is_first():
        model.load_state_dict(weights)
        print(json.dumps({"val": best, "test": accuracy(model, data, edges, split == 2)}))
    del trained  # DDP would else end gloo's thread at exit, with the GIL that this thread may wait for: a hang
    leave()


def load(path: str) -> tuple[Data, Tensor]:
    given = np.load(path)
    x, y, edges = (torch.from_numpy(given[key]) for key in ("x", "y", "edge_index"))
    return Data(x=x, y=y.long(), edge_index=edges.long()), torch.from_numpy(given["split"])


@torch.no_grad()
def accuracy(model: nn.Module, data: Data, edges: Tensor, chosen: Tensor) -> float:
    model.eval()
    return float((model(data.x, edges).argmax(dim=1) == data.y)[chosen].float().mean())


if __name__ == "__main__":
    main()
