"""Ranks whose loaders for PyG users read a graph in parts, and compare each batch with that of the graph stored whole.

python loaders.py MEETING_FILE OUT_FOLDER DATASET_ROOT NUM_PARTS all|few
"""

import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch_geometric.data import Data

import graphmill
from graphmill.base.errors import UserError
from graphmill.graph.features import DenseFeatures, to_float32
from graphmill.runtime.process import leave
from graphmill.tasks.node_classification.data.store import LabelledGraphStore

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
OUT, ROOT, NUM_PARTS = Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
NAMES = ("x", "edge_index", "n_id", "e_id", "edge_attr", "edge_type", "node_type")
WAYS = {
    "all": tuple(itertools.product(("replicated", "partitioned"), (0.0, 0.1))),
    "few": (("replicated", 0.0), ("partitioned", 0.1)),
}
OPTIONS = {"num_neighbors": [4, 3], "seed": 5}


def whole(name: str, *, undirected: bool) -> Data:
    """The prepared graph as a PyG user has it; edges in the order of the prepared topology."""
    store = LabelledGraphStore.open(ROOT / name)
    topology, features = store.topology(undirected=undirected), store.features
    degrees = torch.from_numpy(topology.indptr[1:] - topology.indptr[:-1])
    targets = torch.repeat_interleave(torch.arange(len(degrees)), degrees)
    if isinstance(features, DenseFeatures):
        x = torch.from_numpy(to_float32(features).copy())
    else:
        parts = [torch.from_numpy(a.copy()) for a in (features.indptr, features.indices, features.values)]
        x = torch.sparse_csr_tensor(*parts, size=(features.num_nodes, features.num_features)).to_dense()
    data = Data(
        x=x,
        y=torch.from_numpy(store.labels.copy()),
        edge_index=torch.stack([torch.from_numpy(topology.indices.astype("int64")), targets]),
        num_nodes=store.metadata.num_nodes,
    )
    if store.metadata.edge_features:
        edges = store.edge_features(undirected=undirected)
        data.edge_attr = torch.from_numpy(edges.values[edges.rows_of(torch.arange(data.num_edges).numpy())].copy())
    if store.metadata.edge_types:
        data.edge_attr, data.edge_type = data.edge_attr[:, :-1], data.edge_attr[:, -1].long()
        data.node_type = torch.from_numpy(store.node_type.astype("int64"))
    return data


def differences(found: Any, wanted: Any, where: str) -> Iterator[str]:
    for name in (name for name in NAMES if name in wanted):
        if not torch.equal(found[name], wanted[name]):
            yield f"{where}: {name} is {found[name]} for {wanted[name]}"
    if not torch.equal(found.y, wanted.y[: wanted.batch_size]):
        yield f"{where}: y"
    for name in ("batch_size", "num_nodes", "num_sampled_nodes", "num_sampled_edges"):
        if found[name] != wanted[name]:
            yield f"{where}: {name} is {found[name]} for {wanted[name]}"


def compared(name: str, data: Data, nodes: torch.Tensor, **opened: Any) -> dict[str, Any]:
    """Two epochs; then one that is left after a batch, and one more, which the ranks must still make together."""
    parts = graphmill.open_partitioned(ROOT / f"parts/{name}/{NUM_PARTS}-ldg", **opened)
    loader = graphmill.NeighborLoader(parts, input_nodes=nodes, batch_size=13, shuffle=True, **OPTIONS)
    found: dict[str, Any] = {"differences": [], "seeds": [], "fetched": 0}
    for epoch in range(2):
        batches = list(loader)
        seeds = torch.cat([batch.n_id[: batch.batch_size] for batch in batches])
        found["seeds"].append(seeds.tolist())
        assert torch.equal(nodes[torch.cat([batch.input_id for batch in batches])], seeds)
        # Over the whole graph, in one process: this rank's seeds, in their order, make the same steps.
        alone = graphmill.NeighborLoader(data, input_nodes=seeds, batch_size=13, **OPTIONS)
        alone.load_state_dict({"epoch": epoch, "step": 0, "seed": OPTIONS["seed"]})
        for step, wanted in enumerate(alone):
            found["differences"] += differences(batches[step], wanted, f"epoch {epoch}, step {step}")
        assert all(batch.batch_size == 0 for batch in batches[len(alone) :])
    for batch in loader:
        first = batch
        break
    again = graphmill.NeighborLoader(parts, input_nodes=nodes, batch_size=13, shuffle=True, **OPTIONS)
    again.load_state_dict({"epoch": 2, "step": 0, "seed": OPTIONS["seed"]})
    if not torch.equal(next(iter(again)).n_id, first.n_id):
        found["differences"].append("a loader that was left, and one that begins there")
    found["fetched"] = again._graph._announced.features.counts.fetched
    return found


def refused(parts: Any, **arguments: Any) -> str:
    try:
        graphmill.NeighborLoader(parts, **{"num_neighbors": [2], "batch_size": 4, **arguments})
    except UserError as error:
        return f"{error.message} → {error.fix}"
    return ""


def main() -> None:
    dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], RANKS), rank=RANK, world_size=RANKS)
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    graphs = (("synthetic/sbm", False), ("debian-packages", True), ("edgy", False), ("edgy", True), ("typed", False))
    for name, undirected in graphs:
        data = whole(name, undirected=undirected)
        nodes = graphmill.open_partitioned(ROOT / f"parts/{name}/{NUM_PARTS}-ldg").nodes_in("train")
        nodes = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(1))][:70]
        for topology, ratio in WAYS[sys.argv[5]]:
            options = {"topology": topology, "cache_ratio": ratio, "undirected": undirected}
            found[f"{name} {options}"] = compared(name, data, nodes, **options)
    parts = graphmill.open_partitioned(ROOT / f"parts/edgy/{NUM_PARTS}-ldg")
    found["refused"] = refused(parts, input_nodes=nodes[RANK::RANKS])  # as where each rank takes its own seeds
    (OUT / f"{RANK}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
    leave(0)


main()
