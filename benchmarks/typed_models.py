"""A training step of models that read types, graphmill's against PyG's: forward, backward, Adam.

    python benchmarks/typed_models.py [--models rgcn rsage hgt] [--papers 100000] [--rounds 15] [--threads 2]

A random graph shaped as ogbn-mag: papers, authors and fields, which write, cite and are about, and the reverse of each.
Batches are 1,024 papers with as many neighbours of each relation as --fanouts says, drawn by graphmill's sampler before
and given to both: PyG's models get the subgraph and run on what each layer needs of it (`trim_to_layer`), in the forms
that PyG's examples use: RGCNConv on the graph as one of typed edges, HeteroConv of SAGEConv, HGTConv. graphmill's
models get the same seeds, fan-outs and keys with a node's neighbours drawn anew at each hop, as they train.
64 features, hidden 64, 16 classes, 4 heads, no dropout, a matrix for each relation.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.nn as peers
from torch import Tensor, nn
from torch_geometric.utils import trim_to_layer

from entries import write_entries
from graphmill.graph.batch import DenseRows, MiniBatch
from graphmill.graph.edge_features import EdgeFeatures
from graphmill.graph.features import dense
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.graph.topology import Topology
from graphmill.graph.typed import typed_topology
from graphmill.nn.hgt import Hgt
from graphmill.nn.rgcn import RelationalGcn
from graphmill.sample.collect import Collector, WholeTables
from graphmill.sample.neighbor import RelationSampler
from harness import interleave, print_table
from origin import Origin

FEATURES, HIDDEN, CLASSES, HEADS = 64, 64, 16, 4
TYPES = ("paper", "author", "field")
FORWARD = (("author", "writes", "paper", 4), ("paper", "cites", "paper", 8), ("paper", "about", "field", 6))
RELATIONS = [
    relation
    for source, name, target, _ in FORWARD
    for relation in ((source, name, target), (target, f"rev_{name}", source))
]
OURS, PEER = "graphmill", "PyG"
MODELS = ("rgcn", "rsage", "hgt")


@dataclass(frozen=True)
class Graph:
    topology: Topology
    edge_type: np.ndarray  # of each entry
    node_type: np.ndarray
    x: np.ndarray
    y: np.ndarray

    @classmethod
    def random(cls, num_papers: int) -> "Graph":
        rng = np.random.default_rng(0)
        counts = np.array([num_papers, num_papers * 3 // 2, num_papers // 12])
        starts = np.concatenate([[0], np.cumsum(counts)])
        edges, types = [], []
        for number, (source, _, target, degree) in enumerate(FORWARD):
            ends = [TYPES.index(each) for each in (source, target)]
            pairs = np.stack([rng.integers(starts[end], starts[end + 1], num_papers * degree) for end in ends])
            edges += [pairs, pairs[::-1]]
            types += [np.full(pairs.shape[1], 2 * number), np.full(pairs.shape[1], 2 * number + 1)]
        edge_index, edge_type = np.concatenate(edges, axis=1), np.concatenate(types)
        topology, order = typed_topology(edge_index, edge_type, int(starts[-1]))
        x = rng.standard_normal((starts[-1], FEATURES)).astype(np.float32)
        y = rng.integers(0, CLASSES, starts[-1])
        return cls(topology, edge_type[order], np.repeat(np.arange(3), counts), x, y)

    def batches(self, fanouts: tuple[int, ...], batch_size: int, count: int, *, resample: bool) -> list[MiniBatch]:
        sampler = RelationSampler(
            self.topology,
            self.edge_type,
            (fanouts,) * len(RELATIONS),
            seed=0,
            resample=resample,
            with_edge_ids=True,
        )
        values = self.edge_type.astype(np.float32).reshape(-1, 1)
        tables = WholeTables(dense(self.x), EdgeFeatures(values, None))
        collector = Collector(
            self.y, "rows", torch.float32, 1, count, edge_columns=1, node_types=self.node_type.astype(np.int8)
        )
        papers = np.random.default_rng(1).permutation(int(np.sum(self.node_type == 0)))[: batch_size * count]
        made = []
        for step, ids in enumerate(papers.reshape(count, batch_size)):
            sampled = sampler.sample(Seeds(0, step, SeedIds(np.ascontiguousarray(ids))))
            made.append(collector.collect(sampled, *tables.fetch([sampled])))
        return made


@dataclass(frozen=True)
class Subgraph:
    """What PyG's loaders give of one batch, as one graph of typed edges and by type."""

    x: Tensor
    edge_index: Tensor
    edge_type: Tensor
    num_nodes: list[int]  # that each hop adds
    num_edges: list[int]
    x_dict: dict[str, Tensor]
    edge_index_dict: dict[tuple[str, str, str], Tensor]
    num_nodes_dict: dict[str, list[int]]
    num_edges_dict: dict[tuple[str, str, str], list[int]]
    y: Tensor

    @classmethod
    def of(cls, batch: MiniBatch) -> "Subgraph":
        block, kinds = batch.blocks[0], batch.node_types
        assert isinstance(batch.inputs, DenseRows)
        targets = torch.repeat_interleave(torch.arange(block.num_rows), block.indptr.diff())
        edge_index = torch.stack([block.indices.long(), targets])
        edge_type = batch.edge_attr[:, -1].long()
        hop_of_node = np.repeat(np.arange(len(batch.num_nodes_per_hop)), batch.num_nodes_per_hop)
        hop_of_edge = np.repeat(np.arange(len(batch.num_edges_per_hop)), batch.num_edges_per_hop)
        place = torch.empty(len(kinds), dtype=torch.int64)
        x_dict, nodes_dict, edges_dict, counts_dict = {}, {}, {}, {}
        for number, name in enumerate(TYPES):
            of_type = torch.nonzero(kinds == number).flatten()
            place[of_type] = torch.arange(len(of_type))
            x_dict[name] = batch.inputs.x[of_type].clone()
            hops = np.bincount(hop_of_node[of_type.numpy()], minlength=len(batch.num_nodes_per_hop))
            nodes_dict[name] = hops.tolist()
        for number, relation in enumerate(RELATIONS):
            its = torch.nonzero(edge_type == number).flatten()
            edges_dict[relation] = place[edge_index[:, its]]
            hops = np.bincount(hop_of_edge[its.numpy()], minlength=len(batch.num_edges_per_hop))
            counts_dict[relation] = hops.tolist()
        return cls(
            batch.inputs.x.clone(), edge_index, edge_type, list(batch.num_nodes_per_hop),
            list(batch.num_edges_per_hop), x_dict, edges_dict, nodes_dict, counts_dict, batch.labels,
        )  # fmt: skip


class Peer(nn.Module):
    """PyG's layers on what each needs of the subgraph."""

    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.name = name
        widths = [(FEATURES, HIDDEN), (HIDDEN, CLASSES)]
        match name:
            case "rgcn":
                layers = [peers.RGCNConv(a, b, len(RELATIONS)) for a, b in widths]
            case "rsage":
                layers = [
                    peers.HeteroConv({each: peers.SAGEConv((a, a), b) for each in RELATIONS}, "sum") for a, b in widths
                ]
            case _:
                self.read = nn.ModuleDict({each: nn.Linear(FEATURES, HIDDEN) for each in TYPES})
                layers = [peers.HGTConv(HIDDEN, HIDDEN, (list(TYPES), RELATIONS), HEADS) for _ in widths]
                self.result = nn.Linear(HIDDEN, CLASSES)
        self.layers = nn.ModuleList(layers)

    def forward(self, batch: Subgraph) -> Tensor:
        if self.name == "rgcn":
            return self._on_one_graph(batch)
        x, edges = batch.x_dict, batch.edge_index_dict
        if self.name == "hgt":
            x = {each: self.read[each](rows).relu() for each, rows in x.items()}
        for number, layer in enumerate(self.layers):
            x, edges, _ = trim_to_layer(number, batch.num_nodes_dict, batch.num_edges_dict, x, edges)
            x = layer(x, edges)
            if number == 0 and self.name == "rsage":
                x = {each: rows.relu() for each, rows in x.items()}
        rows = x["paper"][: len(batch.y)]
        return self.result(rows) if self.name == "hgt" else rows

    def _on_one_graph(self, batch: Subgraph) -> Tensor:
        x, edge_index, edge_type = batch.x, batch.edge_index, batch.edge_type
        for number, layer in enumerate(self.layers):
            x, edge_index, edge_type = trim_to_layer(number, batch.num_nodes, batch.num_edges, x, edge_index, edge_type)
            x = layer(x, edge_index, edge_type)
            x = x.relu() if number == 0 else x
        return x[: len(batch.y)]


def own_model(name: str) -> nn.Module:
    shared: dict[str, Any] = {
        "in_channels": FEATURES,
        "hidden_channels": HIDDEN,
        "out_channels": CLASSES,
        "num_layers": 2,
        "dropout": 0.0,
        "input_dropout": 0.0,
        "seed": 0,
    }
    if name == "hgt":
        sources = [TYPES.index(each[0]) for each in RELATIONS]
        return Hgt(**shared, heads=HEADS, source_types=sources, num_node_types=len(TYPES), is_sparse=False)
    kinds = len(TYPES) if name == "rsage" else None
    return RelationalGcn(
        **shared, num_relations=len(RELATIONS), num_bases=None, num_node_types=kinds, projects_inputs=False
    )


class Step:
    def __init__(self, model: nn.Module, batches: list[MiniBatch] | list[Subgraph], labels: list[Tensor]) -> None:
        self.model, self.batches, self.labels = model, batches, labels
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, fused=True)
        self.loss = 0.0

    def __call__(self, number: int) -> None:
        place = number % len(self.batches)
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.batches[place]), self.labels[place])
        loss.backward()
        self.optimizer.step()
        self.loss = loss.item()


def measure(name: str, own: list[MiniBatch], theirs: list[Subgraph], rounds: int) -> dict[str, object]:
    labels = [batch.y for batch in theirs]
    steps = {OURS: Step(own_model(name), own, labels), PEER: Step(Peer(name), theirs, labels)}
    contenders: dict[str, Callable[[int], object]] = dict(steps)
    timed = interleave(contenders, rounds=rounds)
    ratios = {each: timed.ratio(each, OURS) for each in steps}
    edges = {OURS: sum(own[0].num_edges_per_hop), PEER: theirs[0].edge_index.shape[1]}
    print_table(
        f"{name}: a step; others used {timed.foreign_cores:.2f} cores",
        ["model", "nodes", "edges", "s", "time ÷ graphmill's (quartiles)", "loss after"],
        [
            [each, str(n), str(edges[each]), str(timed.spread(each)), str(ratios[each]), f"{steps[each].loss:.4f}"]
            for each, n in ((OURS, len(own[0].node_ids)), (PEER, len(theirs[0].x)))
        ],
    )
    return {
        "rounds": rounds,
        "foreign_cores": timed.foreign_cores,
        "contenders": {
            each: {
                "seconds": timed.spread(each),
                "ratio_to_graphmill": ratios[each],
                "loss": steps[each].loss,
                "num_edges": edges[each],
            }
            for each in steps
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--papers", type=int, default=100_000)
    parser.add_argument("--fanouts", nargs=2, type=int, default=[5, 3])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    graph, fanouts = Graph.random(options.papers), tuple(options.fanouts)
    own = graph.batches(fanouts, options.batch_size, 4, resample=True)
    theirs = [Subgraph.of(each) for each in graph.batches(fanouts, options.batch_size, 4, resample=False)]
    for name in options.models:
        origin = Origin.now()
        found = measure(name, own, theirs, options.rounds)
        asked = {"threads": options.threads, "papers": options.papers, "fanouts": list(fanouts)}
        write_entries("typed_models", {name: (origin, {**asked, **found})})


if __name__ == "__main__":
    main()
