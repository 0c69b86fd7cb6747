"""Raw neighbour sampling against pyg-lib and torch-sparse (frontier semantics) and DGL (blocks, see sampler_dgl.py).

    python benchmarks/sampler.py [--rounds 25] [--threads 2] [--graphs NAME …] [--data FOLDER]

The graphs are three synthetic ones and, with a FOLDER that has `.npz` files with `edge_index` in `nodes/` and
`graphs/`, three real ones: a mesh, WordNet and Debian's packages, with the edges that the files have. Batch 1024,
fan-outs [25, 10], without replacement; all make edge ids, as PyG's loaders ask for. Same semantics for all: min(degree,
fan-out) distinct in-edges per node, unique relabelled nodes. Our ids are int32. pyg-lib takes int32 and int64 ids, and
is measured with both; torch-sparse takes int64 only. The peers sample a batch on one thread: the ratio that counts is
that to our one thread. The other column sets our threads against the best of a peer, whatever it can use.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from entries import write_entries
from graphmill import _native
from graphs import Graph, load, load_real
from harness import Rounds, Spread, interleave, print_table
from origin import Origin

FANOUTS = [25, 10]
BATCH = 1024
SYNTHETIC = ("sbm", "rmat", "ba")
REAL = ("mdual", "wordnet31", "debian_packages")
ONE = "graphmill 1 thread"
Runs = dict[str, Callable[[int], object]]


def contenders(graph: Graph, seeds: list[np.ndarray], threads: int) -> Runs:
    """Ours first, on one thread and on `threads`; then the peers that are installed."""
    ours = _native.NeighborSampler(graph.indptr, graph.indices)
    runs: Runs = {ONE: lambda i: ours.sample(seeds[i], FANOUTS, i, with_edge_ids=True)}
    if threads > 1:
        runs[f"graphmill {threads} threads"] = lambda i: ours.sample(
            seeds[i], FANOUTS, i, num_threads=threads, with_edge_ids=True
        )
    return runs | pyg_lib_forms(graph, seeds) | torch_sparse_form(graph, seeds)


def pyg_lib_forms(graph: Graph, seeds: list[np.ndarray]) -> Runs:
    try:
        import pyg_lib  # noqa: F401
    except ImportError:
        return {}
    return {
        f"pyg-lib {dtype}": pyg_lib_form(graph, seeds, np.dtype(dtype), torch.ops.pyg.neighbor_sample)
        for dtype in ("int32", "int64")
    }


def pyg_lib_form(graph: Graph, seeds: list[np.ndarray], dtype: np.dtype, sample: Callable) -> Callable[[int], object]:
    """`sample`: pyg-lib's operator. All of its ids are of one type."""
    arrays: list[np.ndarray] = [graph.indptr, graph.indices, *seeds]
    colptr, row, *tensors = (torch.from_numpy(array.astype(dtype)) for array in arrays)
    return lambda i: sample(colptr, row, tensors[i], FANOUTS, csc=True, return_edge_id=True)


def torch_sparse_form(graph: Graph, seeds: list[np.ndarray]) -> Runs:
    try:
        import torch_sparse  # noqa: F401
    except ImportError:
        return {}
    colptr, row = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices.astype(np.int64))
    tensors = [torch.from_numpy(s) for s in seeds]
    return {
        "torch-sparse": lambda i: torch.ops.torch_sparse.neighbor_sample(colptr, row, tensors[i], FANOUTS, False, True)
    }


def edges_sampled(graph: Graph, seeds: list[np.ndarray]) -> float:
    ours = _native.NeighborSampler(graph.indptr, graph.indices)
    return float(np.mean([sum(ours.sample(s, FANOUTS, i).num_edges_per_hop) for i, s in enumerate(seeds)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--graphs", nargs="+", help="all that are there, if none is named")
    parser.add_argument("--data", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.data is None and set(options.graphs or ()) & set(REAL):
        parser.error(f"{', '.join(REAL)} are read from files: give --data FOLDER")
    torch.set_num_threads(options.threads)
    entries = {}
    for name in options.graphs or (*SYNTHETIC, *(REAL if options.data else ())):
        origin, graph = Origin.now(), load_real(options.data, name) if name in REAL else load(name)
        rng = np.random.default_rng(0)
        candidates = np.flatnonzero(np.diff(graph.indptr) > 0)
        batch = min(BATCH, len(candidates))
        seeds = [rng.choice(candidates, batch, replace=False) for _ in range(options.rounds + 2)]
        rounds = interleave(contenders(graph, seeds, options.threads), rounds=options.rounds)
        edges = edges_sampled(graph, seeds[:5])
        title = f"{name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {edges:,.0f} edges a batch"
        found = report(title, rounds, batch)
        entries[name] = (
            origin,
            {"batch": batch, "fanouts": FANOUTS, "edge_ids": True, "edges_per_batch": edges, **found},
        )
    write_entries("sampler", entries)


def report(title: str, rounds: Rounds, batch: int) -> dict[str, object]:
    """Table, and what the result file holds of one graph. Ours on one thread comes first."""
    ours, *_ = rounds.seconds
    most, best = our_threads(rounds)
    measured = {
        peer: {
            "seconds": rounds.spread(peer),
            "ratio_to_graphmill": rounds.ratio(peer, ours),
            "ratio_to_graphmill_threads": rounds.ratio(peer, most),
        }
        for peer in rounds.seconds
    }
    rows = [
        [peer, f"{seconds.median * 1e3:.2f}", f"{batch / seconds.median:,.0f}", str(one), str(many)]
        for peer, (seconds, one, many) in ((peer, _spreads(found)) for peer, found in measured.items())
    ]
    columns = ["sampler", "ms", "seeds/s", f"time ÷ {ours}", f"time ÷ {most}"]
    print_table(f"{title}; others used {rounds.foreign_cores:.2f} cores", columns, rows)
    return {"foreign_cores": rounds.foreign_cores, "rounds": best, "contenders": measured}


def our_threads(rounds: Rounds) -> tuple[str, int]:
    """Our form with the most threads, and the number of rounds."""
    ours = [name for name in rounds.seconds if name.startswith("graphmill")]
    return ours[-1], len(rounds.seconds[ours[-1]])


def _spreads(found: dict[str, Spread]) -> tuple[Spread, Spread, Spread]:
    return found["seconds"], found["ratio_to_graphmill"], found["ratio_to_graphmill_threads"]


if __name__ == "__main__":
    main()
