"""A training step of two layers under PyG's names, graphmill's against PyG's: forward, backward, Adam.

    python benchmarks/layers.py [--layers SAGEConv GATConv] [--nodes 200000] [--rounds 15] [--threads 2]

Batches are made before by graphmill's `NeighborLoader`, of a random graph of 20 edges to a node: 64 features, 16
classes, hidden 64 (attention: 4 heads of 16), 8 features of edges, 8 relations, fan-outs [15, 10]. Each layer runs on
the whole subgraph and, as "trimmed", on what it needs of it (`trim_to_layer`). Both libraries begin with the same
weights and take the same batches; each step gets an `edge_index` of its own, for graphmill's layers keep with it what
they made of the edges.
"""

import argparse
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
import torch_geometric.nn as peers
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import trim_to_layer

from entries import write_entries
from graphmill import pyg
from harness import interleave, print_table
from origin import Origin

FEATURES, HIDDEN, CLASSES, HEADS, EDGE_DIM, RELATIONS, DEGREE = 64, 64, 16, 4, 8, 8, 20
OURS, PEER = "graphmill", "PyG"
LIBRARIES = {OURS: pyg, PEER: peers}
LAYERS = ("SAGEConv", "GCNConv", "GINConv", "RGCNConv", "GATConv", "GATv2Conv")
ATTENTION = ("GATConv", "GATv2Conv")


def batches_of(num_nodes: int, batch_size: int, count: int) -> list[Data]:
    """Batches with features of edges and relations in `edge_attr`, `edge_type`."""
    generator = torch.Generator().manual_seed(0)
    num_edges = num_nodes * DEGREE
    data = Data(
        x=torch.randn(num_nodes, FEATURES, generator=generator),
        y=torch.randint(CLASSES, (num_nodes,), generator=generator),
        edge_index=torch.randint(num_nodes, (2, num_edges), generator=generator),
        edge_attr=torch.randn(num_edges, EDGE_DIM, generator=generator),
        edge_type=torch.randint(RELATIONS, (num_edges,), generator=generator),
    )
    seeds = torch.randperm(num_nodes, generator=generator)[: batch_size * count]
    return list(pyg.NeighborLoader(data, num_neighbors=[15, 10], batch_size=batch_size, input_nodes=seeds, seed=0))


class Model(nn.Module):
    def __init__(self, library: str, name: str, num_features: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        conv = getattr(LIBRARIES[library], name)
        self.name = name
        widths = [num_features, HIDDEN, CLASSES]
        self.convs = nn.ModuleList(self._layer(conv, a, b) for a, b in pairwise(widths))

    def _layer(self, conv: type[nn.Module], num_in: int, num_out: int) -> nn.Module:
        match self.name:
            case "GINConv":
                return conv(nn.Sequential(nn.Linear(num_in, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, num_out)))
            case "RGCNConv":
                return conv(num_in, num_out, RELATIONS)
            case "GATConv" | "GATv2Conv":
                return conv(num_in, num_out // HEADS, HEADS, edge_dim=EDGE_DIM)
        return conv(num_in, num_out)

    def forward(self, batch: Data, edge_index: Tensor, trims: bool) -> Tensor:
        x, attr = batch.x, None
        if self.name in ATTENTION:
            attr = batch.edge_attr
        elif self.name == "RGCNConv":
            attr = batch.edge_type
        for number, conv in enumerate(self.convs):
            if trims:
                nodes, edges = batch.num_sampled_nodes, batch.num_sampled_edges
                x, edge_index, attr = trim_to_layer(number, nodes, edges, x, edge_index, attr)
            x = conv(x, edge_index) if attr is None else conv(x, edge_index, attr)
            x = x.relu() if number == 0 else x
        return x[: batch.batch_size]


class Step:
    def __init__(
        self, library: str, name: str, batches: list[Data], *, trims: bool, num_features: int = FEATURES
    ) -> None:
        self.model, self.batches, self.trims = Model(library, name, num_features), batches, trims
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, fused=True)
        self.loss = 0.0

    def __call__(self, number: int) -> None:
        self.learn(self.batches[number % len(self.batches)])

    def learn(self, batch: Data) -> None:
        self.optimizer.zero_grad()
        out = self.model(batch, batch.edge_index.clone(), self.trims)
        loss = F.cross_entropy(out, batch.y[: batch.batch_size])
        loss.backward()
        self.optimizer.step()
        self.loss = loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    batches = batches_of(options.nodes, options.batch_size, 4)
    for name in options.layers:
        origin = Origin.now()
        found = measure(name, batches, options.rounds)
        write_entries("layers", {name: (origin, {"threads": options.threads, "nodes": options.nodes, **found})})


def measure(name: str, batches: list[Data], rounds: int) -> dict[str, object]:
    steps = {
        library + suffix: Step(library, name, batches, trims=bool(suffix))
        for suffix in ("", " trimmed")
        for library in LIBRARIES
    }
    contenders: dict[str, Callable[[int], object]] = dict(steps)
    timed = interleave(contenders, rounds=rounds)
    peer_of = {each: OURS + each.removeprefix(OURS).removeprefix(PEER) for each in steps}
    ratios = {each: timed.ratio(each, peer_of[each]) for each in steps}
    print_table(
        f"{name}: a step on {batches[0].num_nodes:,} nodes and {batches[0].num_edges:,} edges; others used"
        f" {timed.foreign_cores:.2f} cores",
        ["layers", "s", "time ÷ graphmill's (quartiles)", "loss after"],
        [[each, str(timed.spread(each)), str(ratios[each]), f"{steps[each].loss:.4f}"] for each in steps],
    )
    return {
        "rounds": rounds,
        "foreign_cores": timed.foreign_cores,
        "num_nodes": batches[0].num_nodes,
        "num_edges": batches[0].num_edges,
        "contenders": {
            each: {"seconds": timed.spread(each), "ratio_to_graphmill": ratios[each], "loss": steps[each].loss}
            for each in steps
        },
    }


if __name__ == "__main__":
    main()
