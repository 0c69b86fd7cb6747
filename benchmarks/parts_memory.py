"""What a rank of a graph in parts takes of memory: no more than its part, its cache and what an interpreter takes.

    python benchmarks/parts_memory.py --dataset NAME --parts parts/NAME/4-kaminpar --dataset-root FOLDER

Prepare a graph whose parts outweigh a batch, and partition it with the fan-outs below:

    graphmill prepare synthetic/rmat --as NAME -o num_nodes=1000000 -o num_edges=5000000 -o features=256
    graphmill partition NAME --num-parts 4 --fanouts 10 --fanouts 5

The topology is in parts, too. Every file of a rank's part counts as the part, mapped or read, and what it holds of
other parts as the cache. The interpreter: the peak of ranks that train the same model on 100 nodes. Peaks
(`ru_maxrss`: file-backed pages count) are rank 0's after training, and the largest of all ranks with the evaluation at
the end, which holds a rank's rows of hidden layers. Needs root.
"""

import argparse
import csv
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from entries import write_entries
from graphmill.partition.metadata import part_folder, read_parts_metadata
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.node_classification.prepare import prepare
from harness import console, print_table
from origin import Origin
from parts_training import RANKS, namespaces, started_ranks

WAY, RATIO = "partitioned, owner, vip", 0.1
SETTINGS = ["train.batch_size=256", "train.num_neighbors=[10, 5]", "train.prefetch=1", f"partition.cache.ratio={RATIO}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--parts", required=True)
    parser.add_argument("--dataset-root", type=Path, required=True)
    options = parser.parse_args()
    options.epochs, options.train_limit = 3, 65_536
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    origin = Origin.now()
    with namespaces() as names, tempfile.TemporaryDirectory(prefix="graphmill-memory-") as folder:
        found = measured(options, names, Path(folder))
    print_table("memory of a rank, MiB", list(found), [[f"{value:,.2f}" for value in found.values()]])
    entry = f"{options.dataset}, {options.parts.rsplit('/', 1)[-1]}"
    console.print(f"[dim]{write_entries('parts_memory', {entry: (origin, found)})}[/dim]")


def measured(options: argparse.Namespace, names: list[str], folder: Path) -> dict[str, Any]:
    path = options.dataset_root / options.parts
    metadata = read_parts_metadata(path)
    sizes = [
        sum(file.stat().st_size for file in (path / part_folder(number)).rglob("*.npy")) / 2**20
        for number in range(metadata.num_parts)
    ]
    row_mib = metadata.num_features * 4 / 2**20
    cache_mib = RATIO * metadata.num_nodes * row_mib
    peak_mib, training_mib = peak_of(options, names, folder / "run", WAY, SETTINGS)
    prepare("synthetic/sbm", root=folder / "data", options={"num_nodes": 100, "num_edges": 400, "features": 4})
    trivial = argparse.Namespace(**vars(options) | {"dataset": "synthetic/sbm", "dataset_root": folder / "data"})
    trivial.train_limit = "null"
    interpreter_mib, _ = peak_of(trivial, names, folder / "trivial", "whole", SETTINGS[:-1])
    return {
        "part_mib": max(sizes),
        "cache_mib": cache_mib,
        "interpreter_mib": interpreter_mib,
        "peak_mib": peak_mib,
        "training_mib": training_mib,
        "ratio": (training_mib - interpreter_mib) / (max(sizes) + cache_mib),
        "ratio_with_evaluation": (peak_mib - interpreter_mib) / (max(sizes) + cache_mib),
    }


def peak_of(
    options: argparse.Namespace, names: list[str], folder: Path, way: str, settings: list[str]
) -> tuple[float, float]:
    """MiB: the largest peak of a rank; and of rank 0 before the evaluation at the end."""
    with started_ranks(options, names, folder, way, settings) as ranks:
        peaks = []
        for rank in ranks:
            _, status, usage = os.wait4(rank.pid, 0)
            rank.returncode = os.waitstatus_to_exitcode(status)
            peaks.append(usage.ru_maxrss / 1024)
    if [rank.returncode for rank in ranks] != [0] * RANKS:
        raise SystemExit(f"{way} failed\n{(folder / '0.log').read_text()[-3000:]}")
    with RunFolder(folder / "logs" / "run").metrics_path.open() as file:
        return max(peaks), max(float(row["peak_rss_mib"]) for row in csv.DictReader(file))


if __name__ == "__main__":
    main()
