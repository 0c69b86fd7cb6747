"""Raw neighbour sampling against pyg-lib and torch-sparse (frontier semantics) and DGL (blocks, see sampler_dgl.py).

    python benchmarks/sampler.py [--rounds 25] [--threads 2]

Batch 1024, fan-outs [25, 10], without replacement, no edge ids. Same semantics for all: min(degree, fan-out)
distinct in-edges per node, unique relabelled nodes. pyg-lib and torch-sparse get int64 column ids, the only ones
they take; ours are int32."""

import argparse

import numpy as np
import torch

from graphmill import _native
from graphs import Graph, load
from harness import Rounds, interleave, print_table, write_result

FANOUTS = [25, 10]
BATCH = 1024


def contenders(graph: Graph, seeds: list[np.ndarray], threads: int) -> dict[str, object]:
    ours = _native.NeighborSampler(graph.indptr, graph.indices)
    runs = {f"graphmill {threads} threads": lambda i: ours.sample(seeds[i], FANOUTS, i, num_threads=threads)}
    runs["graphmill 1 thread"] = lambda i: ours.sample(seeds[i], FANOUTS, i)
    colptr, row = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices.astype(np.int64))
    tensors = [torch.from_numpy(s) for s in seeds]
    try:
        import pyg_lib  # noqa: F401

        runs["pyg-lib"] = lambda i: torch.ops.pyg.neighbor_sample(
            colptr, row, tensors[i], FANOUTS, csc=True, return_edge_id=False
        )
    except ImportError:
        pass
    try:
        import torch_sparse  # noqa: F401

        runs["torch-sparse"] = lambda i: torch.ops.torch_sparse.neighbor_sample(
            colptr, row, tensors[i], FANOUTS, False, True
        )
    except ImportError:
        pass
    return runs


def edges_sampled(graph: Graph, seeds: list[np.ndarray]) -> float:
    ours = _native.NeighborSampler(graph.indptr, graph.indices)
    return float(np.mean([sum(ours.sample(s, FANOUTS, i).num_edges_per_hop) for i, s in enumerate(seeds)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--graphs", nargs="+", default=["sbm", "rmat", "ba"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result: dict[str, object] = {"rounds": options.rounds, "batch": BATCH, "fanouts": FANOUTS}
    for name in options.graphs:
        graph = load(name)
        rng = np.random.default_rng(0)
        candidates = np.flatnonzero(np.diff(graph.indptr) > 0)
        seeds = [rng.choice(candidates, BATCH, replace=False) for _ in range(options.rounds + 2)]
        rounds = interleave(contenders(graph, seeds, options.threads), rounds=options.rounds)
        result[name] = report(name, graph, edges_sampled(graph, seeds[:5]), rounds)
    write_result("sampler", result)


def report(name: str, graph: Graph, edges: float, rounds: Rounds) -> dict[str, object]:
    ours = next(iter(rounds.seconds))
    rows, measured = [], {}
    for peer in rounds.seconds:
        spread, ratio = rounds.spread(peer), rounds.ratio(peer, ours)
        rows.append(
            [
                peer,
                f"{spread.median * 1e3:.2f}",
                f"{BATCH / spread.median:,.0f}",
                f"{edges / spread.median / 1e6:.1f}",
                str(ratio),
            ]
        )
        measured[peer] = {"seconds": spread, "ratio_to_graphmill": ratio}
    title = f"{name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {edges:,.0f} edges a batch"
    title += f"; others used {rounds.foreign_cores:.2f} cores"
    print_table(title, ["sampler", "ms", "seeds/s", "M edges/s", "time ÷ ours (quartiles)"], rows)
    return {"edges_per_batch": edges, "foreign_cores": rounds.foreign_cores, "contenders": measured}


if __name__ == "__main__":
    main()
