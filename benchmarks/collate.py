"""Collation: a mini-batch of thousands of small graphs cut out of flat arrays, against PyG's list of graphs.

    python benchmarks/collate.py [--graphs 20000] [--batches 32 64 5000] [--rounds 15] [--threads 2]

Graphs of the size of CAN windows: 20 to 50 nodes, 30 to 100 edges, 11 features of each. Contenders, in turns in one
process, on the same graphs:
  graphmill   GraphSet.cut: rows are gathered, nothing is sorted; the batch has its edges by target and by source
  fresh       the same in fresh memory, where training uses that of earlier batches again
  PyG         Batch.from_data_list on a list of Data that exist already: what a DataLoader's worker does
  PyG by target  the same and its edges sorted by target (EdgeIndex-style CSR), which a fused kernel would need
The floor: the bytes of the batch, read once and written once, at the speed of numpy's copy of as many, measured in
the same rounds.
"""

import argparse
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import sort_edge_index

from graphmill.graph.graph_set import CutGraphs, GraphSet
from graphmill.sample.collect import reused_buffers
from harness import Rounds, Spread, interleave, print_table, write_result
from origin import Origin

NUM_FEATURES = 11
PREFETCH = 2  # of training
Graphs = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=20_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 64, 5_000], help="graphs of a batch")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    origin = Origin.now()
    graphs = made(options.graphs)
    flat, listed = GraphSet.of(*graphs), as_list(*graphs)
    found = [measured(flat, listed, size, options.rounds, options.threads) for size in options.batches]
    write_result("collate", {"threads": options.threads, "batches": found}, origin)


def measured(flat: GraphSet, listed: list[Data], size: int, num_rounds: int, threads: int) -> dict[str, Any]:
    """Of batches of `size` graphs: small ones many times a turn, so that a turn is no shorter than the clock tells."""
    calls = max(1, 2_000 // size)
    first = np.random.default_rng(1).permutation(len(listed))[:size]
    check_same(flat, listed, np.sort(first))
    cut = flat.cut(first, num_threads=threads)
    num_bytes = bytes_of(cut)
    source = np.ones(num_bytes // 8)
    target = np.empty_like(source)

    def pyg_by_target(graphs: np.ndarray) -> None:
        batch: Any = Batch.from_data_list([listed[graph] for graph in graphs])
        sort_edge_index(batch.edge_index, batch.edge_attr, num_nodes=batch.num_nodes, sort_by_row=False)

    allocate = reused_buffers(PREFETCH)
    contenders: dict[str, Callable[[np.ndarray], object]] = {
        "graphmill": lambda graphs: flat.cut(graphs, num_threads=threads, allocate=allocate),
        "fresh": lambda graphs: flat.cut(graphs, num_threads=threads),
        "PyG": lambda graphs: Batch.from_data_list([listed[graph] for graph in graphs]),
        "PyG by target": pyg_by_target,
        "floor": lambda _: np.copyto(target, source),
    }

    def turn(make: Callable[[np.ndarray], object], seed: int) -> Callable[[int], None]:
        rng = np.random.default_rng(seed)  # its own batches: rows that another has just read would be in the caches
        wanted = [[rng.permutation(len(listed))[:size] for _ in range(calls)] for _ in range(2 * (num_rounds + 2))]
        alive = deque[object](maxlen=PREFETCH + 3)  # as in training: a batch lives until others behind it are computed

        def run(number: int) -> None:
            for graphs in wanted[number]:
                alive.append(make(graphs))

        return run

    rounds = interleave(
        {name: turn(contenders[name], seed) for seed, name in enumerate(contenders)}, rounds=num_rounds, calls=2
    )
    tell(rounds, size, calls, num_bytes)
    return result(rounds, size, calls, cut, num_bytes)


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


def tell(rounds: Rounds, graphs: int, calls: int, num_bytes: int) -> None:
    rows = []
    for name in rounds.seconds:
        seconds = rounds.spread(name).median / calls
        rows.append([name, f"{1e3 * seconds:.3g}", f"{graphs / seconds:,.0f}", str(rounds.ratio(name, "graphmill"))])
    print_table(
        f"a batch of {graphs:,} graphs, {num_bytes / 2**20:.3g} MiB", ["", "ms", "graphs/s", "÷ graphmill"], rows
    )


def result(rounds: Rounds, graphs: int, calls: int, cut: CutGraphs, num_bytes: int) -> dict[str, Any]:
    return {
        "graphs": graphs,
        "nodes": len(cut.x),
        "edges": len(cut.sources),
        "mib": num_bytes / 2**20,
        "seconds": {name: vars_of(rounds.spread(name), 1 / calls) for name in rounds.seconds},
        "ratio_to_graphmill": {name: vars_of(rounds.ratio(name, "graphmill")) for name in rounds.seconds},
        "foreign_cores": rounds.foreign_cores,
    }


def vars_of(spread: Spread, times: float = 1.0) -> dict[str, float]:
    return {name: times * getattr(spread, name) for name in ("median", "q25", "q75")}


if __name__ == "__main__":
    main()
