"""Partitioning: what is cut, how even the parts are, time and memory of each method, on R-MAT graphs.

    python benchmarks/partitioning.py --root FOLDER [--graphs rmat-1m rmat-5m] [--parts 2 4 8] [--methods kaminpar …]
        [--graph NAME NODES EDGES FEATURES]

Each cell is `graphmill partition … --force --json` in a process of its own, as a user starts it. FOLDER keeps the
prepared graphs (rmat-5m: 3 GiB, and as much again for parts). Beside the figures of each cell:
  KaMinPar alone   the same package with degrees as weights and nothing evened out: the cut to reach, and its imbalance
  estimate         the memory that was said before the work began, of this process and of the partitioner's
  floor            the time to copy as many bytes as the parts have, in the same chunks, with nothing done to them
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from entries import write_entries
from graphmill.graph.store import GraphStore
from graphmill.partition.balance import imbalance
from graphmill.partition.methods.packages import partition_with
from graphmill.partition.problem import PartitionProblem
from graphmill.partition.write import CHUNK_BYTES
from graphmill.spec.partition import METHODS
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from harness import ForeignLoad, print_table
from origin import Origin

GRAPHS = {"rmat-1m": (1_048_576, 20_000_000, 16), "rmat-5m": (5_000_000, 100_000_000, 128)}
LARGE = 50_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="dataset root to prepare and partition in")
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS))
    parser.add_argument("--graph", nargs=4, metavar=("NAME", "NODES", "EDGES", "FEATURES"), help="another graph")
    parser.add_argument("--parts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--without-kaminpar-alone", action="store_true")
    options = parser.parse_args()
    graphs = dict(GRAPHS)
    if options.graph:
        name, *sizes = options.graph
        num_nodes, num_edges, num_features = map(int, sizes)
        graphs[name] = (num_nodes, num_edges, num_features)
        options.graphs = [name]
    for name in options.graphs:
        origin = Origin.now()
        watch = ForeignLoad()
        store, prepared = prepare(name, *graphs[name], options.root)
        cells = [cell(store, options.root, method, parts) for parts in options.parts for method in options.methods]
        alone = [] if options.without_kaminpar_alone else [kaminpar_alone(store, parts) for parts in options.parts]
        result = {
            **{key: getattr(store.metadata, key) for key in ("num_nodes", "num_edges", "num_features")},
            "num_isolated_nodes": store.metadata.num_isolated_nodes,
            "prepared": prepared,
            "cells": cells,
            "kaminpar_alone": alone,
            "foreign_cores": watch.cores(),
        }
        tell(name, result)
        # Files of their own, for each holds figures of one code, and the large graph takes long to measure again.
        file = "partitioning_large" if store.metadata.num_edges >= LARGE else "partitioning"
        write_entries(file, {name: (origin, result)})


def prepare(name: str, nodes: int, edges: int, features: int, root: Path) -> tuple[LabelledGraphStore, dict[str, Any]]:
    """The graph, and what it took to generate it, if that was now."""
    if (root / name / "metadata.json").exists():
        return LabelledGraphStore.open(root / name), {}
    sizes = (f"num_nodes={nodes}", f"num_edges={edges}", f"features={features}")
    words = ["prepare", "synthetic/rmat", "--as", name, *(word for size in sizes for word in ("-o", size))]
    peak = Path(root) / f".{name}.peak"
    root.mkdir(parents=True, exist_ok=True)
    program = (
        "import sys; from pathlib import Path; from graphmill.cli.app import commands\n"
        "from graphmill.runtime.machine import peak_bytes\n"
        "commands(sys.argv[2:])(sys.argv[2:], standalone_mode=False)\n"
        "Path(sys.argv[1]).write_text(str(peak_bytes()))"
    )
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", program, str(peak), *words, "--dataset-root", str(root)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    took = {"seconds": time.monotonic() - began, "peak_bytes": int(peak.read_text())}
    peak.unlink()
    return LabelledGraphStore.open(root / name), took


def cell(store: LabelledGraphStore, root: Path, method: str, parts: int) -> dict[str, Any]:
    name = store.path.relative_to(root).as_posix()
    command = [sys.executable, "-m", "graphmill", "partition", name, "--num-parts", str(parts), "--method", method]
    command += ["--name", "benchmark", "--force", "--json", "--dataset-root", str(root)]
    began = time.monotonic()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.monotonic() - began
    found = json.loads(done.stdout)
    num_bytes = sum(record["bytes"] for record in found["arrays"].values())
    print(f"{name} {method} {parts}: {seconds:.1f} s", flush=True)
    return {
        "method": method,
        "parts": parts,
        "seconds": seconds,
        "steps": found["took"]["seconds"],
        "floor_of_writing_s": copying_s(store, num_bytes, root),
        "bytes": num_bytes,
        "memory": {key: value for key, value in found["took"].items() if key != "seconds"},
        "quality": found["quality"],
    }


def copying_s(store: GraphStore, num_bytes: int, root: Path) -> float:
    """Seconds to copy so many bytes of the store's largest array, over and over, to the disk that parts are on."""
    source = max((store.path / f"{name}.npy" for name in store.metadata.arrays), key=lambda path: path.stat().st_size)
    target, left = root / ".copied", num_bytes
    began = time.monotonic()
    with target.open("wb", buffering=0) as copy:
        while left > 0:
            with source.open("rb", buffering=0) as file:
                while left > 0 and (chunk := file.read(min(CHUNK_BYTES, left))):
                    copy.write(chunk)
                    left -= len(chunk)
    seconds = time.monotonic() - began
    target.unlink()
    return seconds


def kaminpar_alone(store: LabelledGraphStore, parts: int) -> dict[str, Any]:
    """KaMinPar with degrees as weights; nodes without edges are then all put into part 0, and cost no cut."""
    graph = store.topology(undirected=True)
    degree = np.diff(graph.indptr)
    empty = np.empty(0, np.int64)
    problem = PartitionProblem(
        graph=graph,
        amounts=np.empty((len(degree), 0), np.uint32),
        limits=empty,
        weights=degree,
        train=empty,
        num_parts=parts,
        rng_seed=0,
    )
    found = partition_with("kaminpar", problem, store.path.parent).parts
    crossing = 0
    for start in range(0, len(degree), 2**18):
        stop = min(start + 2**18, len(degree))
        rows = np.repeat(found[start:stop], degree[start:stop])
        crossing += int(np.count_nonzero(rows != found[graph.indices[graph.indptr[start] : graph.indptr[stop]]]))
    with_edges = found[degree > 0]
    loads = np.bincount(with_edges, weights=degree[degree > 0], minlength=parts).astype(np.int64)
    return {
        "parts": parts,
        "edge_cut": crossing / graph.num_edges,
        "imbalance_edges": imbalance(loads),
        "imbalance_nodes_with_edges": imbalance(np.bincount(with_edges, minlength=parts)),
    }


def tell(name: str, result: dict[str, Any]) -> None:
    rows = [
        [
            f"{each['parts']}",
            each["method"],
            f"{each['quality']['edge_cut']:.2%}",
            *(f"{each['quality'][f'imbalance_{what}']:.1%}" for what in ("nodes", "edges", "train")),
            f"{each['seconds']:.1f}",
            f"{each['memory']['peak_bytes'] / 2**20:,.0f}",
            f"{each['memory']['estimated_bytes'] / each['memory']['peak_bytes']:.2f}",
        ]
        for each in result["cells"]
    ]
    columns = ["parts", "method", "cut", "nodes", "edges", "train", "s", "peak MiB", "estimate ÷ peak"]
    print_table(name, columns, rows)


if __name__ == "__main__":
    main()
