"""Collation: a mini-batch of thousands of small graphs cut out of flat arrays, against PyG's list of graphs.

    python benchmarks/collate.py [--graphs 20000] [--batch 5000] [--rounds 15] [--threads 2]

Graphs of the size of CAN windows: 20 to 50 nodes, 30 to 100 edges, 11 features of each. Contenders, in turns in one
process, on the same graphs:
  graphmill   GraphSet.cut: rows are gathered, nothing is sorted; the batch has its edges by target and by source
  PyG         Batch.from_data_list on a list of Data that exist already: what a DataLoader's worker does
  PyG by target  the same and its edges sorted by target (EdgeIndex-style CSR), which a fused kernel would need
The floor: the bytes of the batch, read once and written once, at the speed of numpy's copy of as many, measured in
the same rounds.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import sort_edge_index

from graphmill.graph.graph_set import CutGraphs, GraphSet
from graphmill.sample.collect import reused_room
from harness import Rounds, Spread, interleave, print_table, write_result
from origin import Origin

NUM_FEATURES = 11
Graphs = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=5_000, help="graphs of a batch")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    origin = Origin.now()
    graphs = made(options.graphs)
    flat, listed = GraphSet.of(*graphs), as_list(*graphs)
    rng = np.random.default_rng(1)
    batches = [np.sort(rng.permutation(options.graphs)[: options.batch]) for _ in range(options.rounds + 2)]
    check_same(flat, listed, batches[0])
    cut = flat.cut(batches[0], num_threads=options.threads)
    num_bytes = bytes_of(cut)
    source = np.ones(num_bytes // 8)
    target = np.empty_like(source)

    def pyg(number: int) -> Any:
        return Batch.from_data_list([listed[graph] for graph in batches[number]])

    def pyg_by_target(number: int) -> None:
        batch = pyg(number)
        sort_edge_index(batch.edge_index, batch.edge_attr, num_nodes=batch.num_nodes, sort_by_row=False)

    room = reused_room(prefetch=2)  # as in training
    contenders: dict[str, Callable[[int], object]] = {
        "graphmill": lambda number: flat.cut(batches[number], num_threads=options.threads, room=room),
        "PyG": pyg,
        "PyG by target": pyg_by_target,
        "floor": lambda number: np.copyto(target, source),
    }
    rounds = interleave(contenders, rounds=options.rounds)
    tell(rounds, options.batch, num_bytes)
    write_result("collate", result(rounds, options, cut, num_bytes), origin)


def made(number: int) -> Graphs:
    """Sizes of nodes and edges, edges, features of nodes and edges."""
    rng = np.random.default_rng(0)
    num_nodes, num_edges = rng.integers(20, 51, number), rng.integers(30, 101, number)
    edge_index = rng.integers(0, np.repeat(num_nodes, num_edges), (2, num_edges.sum()))
    x, attr = (rng.random((total.sum(), NUM_FEATURES), dtype=np.float32) for total in (num_nodes, num_edges))
    return num_nodes, num_edges, edge_index, x, attr


def as_list(
    num_nodes: np.ndarray, num_edges: np.ndarray, edge_index: np.ndarray, x: np.ndarray, attr: np.ndarray
) -> list[Data]:
    """The graphs as PyG keeps them: an object for each, with tensors of its own."""
    nodes, edges = np.cumsum(num_nodes)[:-1], np.cumsum(num_edges)[:-1]
    parts = zip(np.split(x, nodes), np.split(edge_index, edges, axis=1), np.split(attr, edges), strict=True)
    return [
        Data(
            x=torch.from_numpy(rows.copy()),
            edge_index=torch.from_numpy(pairs.copy()),
            edge_attr=torch.from_numpy(values.copy()),
        )
        for rows, pairs, values in parts
    ]


def check_same(flat: GraphSet, listed: list[Data], graphs: np.ndarray) -> None:
    """Both make the same batch, edges in another order."""
    ours, theirs = flat.cut(graphs, num_threads=1), Batch.from_data_list([listed[graph] for graph in graphs])
    edge_index, attr = sort_edge_index(theirs.edge_index, theirs.edge_attr, sort_by_row=False)
    targets = np.repeat(np.arange(len(ours.x)), np.diff(ours.indptr))
    np.testing.assert_array_equal(ours.x, theirs.x)
    np.testing.assert_array_equal(ours.node_offsets, theirs.ptr)
    np.testing.assert_array_equal(targets, edge_index[1])
    assert float(np.abs(ours.edge_attr.sum() - attr.sum().item())) <= 1e-3 * attr.numel() ** 0.5


def bytes_of(cut: CutGraphs) -> int:
    return sum(getattr(cut, name).nbytes for name in cut.__slots__)


def tell(rounds: Rounds, graphs: int, num_bytes: int) -> None:
    rows = []
    for name in rounds.seconds:
        seconds = rounds.spread(name)
        rows.append(
            [
                name,
                f"{1e3 * seconds.median:.2f}",
                f"{graphs / seconds.median:,.0f}",
                str(rounds.ratio(name, "graphmill")),
            ]
        )
    print_table(
        f"a batch of {graphs:,} graphs, {num_bytes / 2**20:.1f} MiB", ["", "ms", "graphs/s", "÷ graphmill"], rows
    )


def result(rounds: Rounds, options: argparse.Namespace, cut: CutGraphs, num_bytes: int) -> dict[str, Any]:
    return {
        "graphs": options.batch,
        "nodes": len(cut.x),
        "edges": len(cut.sources),
        "mib": num_bytes / 2**20,
        "threads": options.threads,
        "seconds": {name: vars_of(rounds.spread(name)) for name in rounds.seconds},
        "ratio_to_graphmill": {name: vars_of(rounds.ratio(name, "graphmill")) for name in rounds.seconds},
        "foreign_cores": rounds.foreign_cores,
    }


def vars_of(spread: Spread) -> dict[str, float]:
    return {"median": spread.median, "q25": spread.q25, "q75": spread.q75}


if __name__ == "__main__":
    main()
