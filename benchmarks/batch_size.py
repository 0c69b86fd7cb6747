"""Batches as large as the memory allows: found by trial, and what a run with them, and with 1.15 times as many, holds.

    python benchmarks/batch_size.py [--budgets 1 2 4] [--sets enzymes proteins can] [--target 0.95]
        --tu FOLDER --capture FILE

For each set of graphs and each amount of memory (GiB) a model is asked for whose batches reach the limit before all
graphs are in one: GAT with 8 heads of 128 channels, deeper where there is more memory. Then, each in a process of its
own as a user starts it:
  graphmill batch-size    how many attempts; the largest budget that fits; what it predicts of the budget that is used
  graphmill train         two epochs with that budget: the peak of the rank
  graphmill train         the same with 1.15 times the nodes and edges: its peak, which should be over the limit
The sets: ENZYMES and PROTEINS (FOLDER holds their .zip), and windows of the CAN capture FILE, 100 frames each, a new
one every 20 frames. The limit itself is the floor: how much of it the run with the budget uses is told beside.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.record.metrics import read_metrics
from graphmill.tasks.intrusion.data.captures import iterate
from graphmill.tasks.intrusion.data.frames import Problems
from graphmill.tasks.intrusion.data.windows import Leftover, graphs_of, joined_graphs
from harness import console, print_table, write_result
from origin import Origin

LAYERS = {"enzymes": {1: 4, 2: 8, 4: 16}, "proteins": {1: 3, 2: 6, 4: 10}, "can": {1: 2, 2: 3, 4: 5}}
OVER = 1.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tu", type=Path, help="folder of ENZYMES.zip and PROTEINS.zip")
    parser.add_argument("--capture", type=Path, help="a CAN capture with labels")
    parser.add_argument("--budgets", type=int, nargs="+", default=[1, 2, 4], choices=(1, 2, 4), help="GiB")
    parser.add_argument("--sets", nargs="+", default=list(LAYERS), choices=list(LAYERS))
    parser.add_argument("--target", type=float, default=0.95)
    options = parser.parse_args()
    needed = {"--tu": {"enzymes", "proteins"} & set(options.sets), "--capture": {"can"} & set(options.sets)}
    for name, sets in needed.items():
        if sets and getattr(options, name[2:]) is None:
            parser.error(f"{', '.join(sorted(sets))} needs {name}")
    origin = Origin.now()
    cells: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="graphmill-batch-size-") as folder:
        here = Path(folder)
        for name in options.sets:
            prepare(name, options, here)
            for budget in options.budgets:
                cells.append(cell(name, budget, options.target, here))
                console.print_json(data=cells[-1])
    tell(cells)
    write_result("batch_size", {"target": options.target, "over": OVER, "cells": cells}, origin)


def prepare(name: str, options: argparse.Namespace, here: Path) -> None:
    """The set under the name of `stored`."""
    source = options.tu and options.tu.absolute() / f"{name.upper()}.zip"
    if name == "can":
        source = here / "can.npz"
        save_windows(options.capture, source)
    graphmill(["prepare", stored(name), "--from", str(source)], here)


def save_windows(capture: Path, path: Path) -> None:
    graphs = joined_graphs(list(graphs_of(iterate(capture, Problems()), Leftover(), size=100, stride=20)))
    np.savez(
        path,
        num_nodes=graphs.num_nodes,
        num_edges=graphs.num_edges,
        edge_index=graphs.edge_index,
        x=graphs.x,
        edge_attr=graphs.edge_attr,
        y=graphs.labels,
    )


def stored(name: str) -> str:
    return "can-windows" if name == "can" else f"tu/{name}"


def cell(name: str, budget: int, target: float, here: Path) -> dict[str, Any]:
    limit = 1024 * budget
    layers = LAYERS[name][budget]
    model = f"model={{kind: gat, hidden_channels: 128, heads: 8, num_layers: {layers}}}"
    asked = ["motifs-gin", "-O", f"dataset.name={stored(name)}", "-O", model, "-O", f"train.batch.target={target}"]
    asked += ["-O", "train.batch.mode=trial", "--memory-budget", f"{budget}G", "--ranks", "1", "--epochs", "2"]
    found = json.loads(graphmill(["batch-size", *asked, "--json"], here))
    of_all, over = f"{name}-{budget}-safe", f"{name}-{budget}-over"
    graphmill(["train", *asked, "--run-id", of_all], here)
    more = {side: int(OVER * found[side]) for side in ("max_nodes", "max_edges")}
    batch = f"train.batch={{mode: budget, max_nodes: {more['max_nodes']}, max_edges: {more['max_edges']}}}"
    plain = [*asked[: asked.index("-O", 5)], "--ranks", "1", "--epochs", "2", "-O", batch]
    graphmill(["train", *plain, "--run-id", over], here)
    peak, peak_over = (peak_mib(here / "logs" / run) for run in (of_all, over))
    return {
        "set": name,
        "limit_mib": limit,
        "layers": layers,
        "attempts": len(found["attempts"]),
        "max_fit": found["max_fit"],
        "safe": found["safe"],
        "max_nodes": found["max_nodes"],
        "predicted_mib": found["predicted_mib"],
        "peak_mib": peak,
        "peak_over_mib": peak_over,
        "within": peak <= limit,
        "over_exceeds": peak_over > limit,
        "wall_s": sum(attempt["wall_s"] for attempt in found["attempts"]),
    }


def graphmill(words: Sequence[str], here: Path) -> str:
    command = [sys.executable, "-m", "graphmill", *words]
    return subprocess.run(command, cwd=here, stdout=subprocess.PIPE, text=True, check=True).stdout


def peak_mib(run: Path) -> float:
    return max(float(row["peak_rss_mib"]) for row in read_metrics(run / "metrics.csv"))


def tell(cells: Sequence[dict[str, Any]]) -> None:
    rows = [
        [
            each["set"],
            f"{each['limit_mib']:,}",
            str(each["attempts"]),
            f"{each['wall_s']:.0f}",
            f"{each['max_fit']:,}",
            f"{each['safe']:,}",
            f"{each['predicted_mib']:,.0f}",
            f"{each['peak_mib']:,.0f}",
            f"{each['predicted_mib'] / each['peak_mib']:.3f}",
            f"{each['peak_mib'] / each['limit_mib']:.2f}",
            f"{each['peak_over_mib']:,.0f}" + ("" if each["over_exceeds"] else " (fits)"),
        ]
        for each in cells
    ]
    columns = ["", "limit MiB", "attempts", "s", "max_fit", "used", "predicted MiB", "peak MiB", "ratio", "of limit"]
    print_table("budgets found by trial", [*columns, f"peak at {OVER} times, MiB"], rows)


if __name__ == "__main__":
    main()
