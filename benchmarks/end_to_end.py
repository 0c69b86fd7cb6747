"""`graphmill train` against a plain script of the same training, from the start of the one command to its end.

    python benchmarks/end_to_end.py [--rows "SAGE 3k" …] [--rounds 5] [--epochs N] [--temporal FOLDER]

Both read the same file, train as many epochs of the same model with the same batches' size, fan-outs and optimizer,
evaluate after each epoch on all nodes (graphs) and test the best weights. Imports, start of ranks and reading are in.
Not compared: `graphmill prepare`, once for a data set, and simple methods (`train.baselines: false`).
Of assignment problems the script's model is the one that the task comes from: a plain one of ours does not exist.
The scripts (peers/plain_*.py) are run as users run them: `python`, and `torchrun` for several ranks, with as many
threads as cores, in the environment of a shell. FOLDER is where `pip install --no-deps --target FOLDER
torch-geometric-temporal` put the peer of DCRNN; without it that row is left out.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from entries import write_entries
from graphmill.record.run_folder import RunFolder
from harness import ForeignLoad, Spread, print_table
from origin import Origin
from plain_epoch import plain, write_graphs

PEERS = Path(__file__).parent / "peers"
OURS, PEER = "graphmill", "plain script"
NODES_YAML = {
    "task": "node_classification",
    "train": {"num_neighbors": [10, 10], "optimizer": {"lr": 0.003}, "evaluate_every_epochs": 1},
}
GRAPHS_YAML = {
    "task": "graph_classification",
    "model": {"kind": "gin", "hidden_channels": 64, "norm": "batch", "readout": "sum"},
    "train": {"batch_size": 32, "optimizer": {"lr": 0.005}, "evaluate_every_epochs": 1},
}


WINDOWS_YAML = {**GRAPHS_YAML, "model": {"kind": "gat", "hidden_channels": 16, "heads": 4, "num_layers": 3}}
ROADS_YAML = {
    "task": "traffic",
    "model": {"kind": "dcrnn", "rnn_units": 16, "num_layers": 2, "cl_decay_steps": 0},
    "train": {"batch_size": 32, "optimizer": {"lr": 0.01}, "evaluate_every_epochs": 1},
}
COSTS_YAML = {
    "task": "assignment",
    "train": {"batch_size": 8, "optimizer": {"kind": "adamw", "lr": 0.003}, "evaluate_every_epochs": 1},
}
TEMPORAL = "DCRNN, 20 sensors"


@dataclass(frozen=True, slots=True)
class Row:
    """One training, both ways."""

    data: str  # its file, or folder
    experiment: Mapping[str, Any]
    script: str
    epochs: int
    words: tuple[str, ...] = ()  # of the script, after the file of data and the epochs
    ranks: int = 1
    train: Mapping[str, Any] = field(default_factory=dict)
    score: str = "accuracy"  # what the run calls it


def dotted(layers: str, *, fused: bool = False, **options: object) -> dict[str, Any]:
    """A model of PyG by dotted path."""
    own = {"hidden_channels": 128, "num_layers": 2, "dropout": 0.5, **options}
    target = f"torch_geometric.nn.models.{layers}"
    return {**NODES_YAML, "model": {"kind": "custom", "target": target, "options": own, "fused": fused}}


SAGE = {**NODES_YAML, "model": {"kind": "graphsage", "hidden_channels": 128, "num_layers": 2, "dropout": 0.5}}


def nodes(data: str, name: str, experiment: Mapping[str, Any], *, ranks: int = 1) -> Row:
    """A row of node classification: as many epochs as a first look takes."""
    epochs, batch = (20, 256) if data == "3k" else (3, 1024)
    words, train = (str(batch), name), {"batch_size": batch // ranks}
    return Row(f"{data}.npz", experiment, "plain_nodes.py", epochs, words, ranks, train, "micro_f1")


ROWS = {
    "SAGE 3k": nodes("3k", "GraphSAGE", SAGE),
    "SAGE 100k": nodes("100k", "GraphSAGE", SAGE),
    "SAGE 100k, 2 ranks": nodes("100k", "GraphSAGE", SAGE, ranks=2),
    "SAGE 100k, 4 ranks": nodes("100k", "GraphSAGE", SAGE, ranks=4),
    "GCN by dotted path, 3k": nodes("3k", "GCN", dotted("GCN")),
    "GCN by dotted path, 100k": nodes("100k", "GCN", dotted("GCN")),
    "GCN by dotted path, fused, 3k": nodes("3k", "GCN", dotted("GCN", fused=True)),
    "GCN by dotted path, fused, 100k": nodes("100k", "GCN", dotted("GCN", fused=True)),
    "GraphSAGE by dotted path, fused, 100k": nodes("100k", "GraphSAGE", dotted("GraphSAGE", fused=True)),
    "GAT by dotted path, 3k": nodes("3k", "GAT", dotted("GAT", heads=4)),
    "GAT by dotted path, 100k": nodes("100k", "GAT", dotted("GAT", heads=4)),
    "GAT by dotted path, fused, 3k": nodes("3k", "GAT", dotted("GAT", fused=True, heads=4)),
    "GAT by dotted path, fused, 100k": nodes("100k", "GAT", dotted("GAT", fused=True, heads=4)),
    "GIN, 600 graphs": Row("graphs.npz", GRAPHS_YAML, "plain_graphs.py", 40, ("GIN",)),
    "GIN, 600 graphs, 2 ranks": Row(
        "graphs.npz", GRAPHS_YAML, "plain_graphs.py", 40, ("GIN",), ranks=2, train={"batch_size": 16}
    ),
    "GAT, 2,000 graphs like CAN windows": Row("windows.npz", WINDOWS_YAML, "plain_graphs.py", 15, ("GAT",)),
    "OneGNN, 320 assignment problems": Row("costs", COSTS_YAML, "plain_assignment.py", 10, ("8",), score="dual_gap"),
    TEMPORAL: Row("roads.npz", ROADS_YAML, "plain_traffic.py", 2, ("32", "16"), score="mae"),
}
MADE: dict[str, Callable[[Path], None]] = {
    "3k.npz": lambda path: write_nodes(path, num_nodes=3_000, num_edges=12_000, features=500),
    "100k.npz": lambda path: write_nodes(path, num_nodes=100_000, num_edges=2_000_000, features=100),
    "graphs.npz": write_graphs,
    "windows.npz": lambda path: write_windows(path, 2_000),
    "roads.npz": lambda path: write_roads(path, num_sensors=20, num_steps=500),
    "costs": lambda path: write_costs(path, size=128, instances=320),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="ROW")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="in place of each row's own")
    parser.add_argument("--temporal", type=Path, help="folder of torch-geometric-temporal")
    options = parser.parse_args()
    names = options.rows or [name for name in ROWS if name != TEMPORAL or options.temporal]
    if TEMPORAL in names and options.temporal is None:
        parser.error(f"the row {TEMPORAL} needs --temporal")
    rows = {name: replace(ROWS[name], epochs=options.epochs or ROWS[name].epochs) for name in names}
    if TEMPORAL in names:
        words = (*rows[TEMPORAL].words, str(options.temporal.resolve()))
        rows[TEMPORAL] = replace(rows[TEMPORAL], words=words)
    found: dict[str, tuple[Origin, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="graphmill-end-to-end-") as made:
        folder = Path(made)
        for data in {row.data for row in rows.values()}:
            MADE[data](folder / data)
            graphmill(["prepare", Path(data).stem, "--from", data, "--dataset-root", "data"], folder)
        for name, row in rows.items():
            found[name] = (Origin.now(), measured(row, folder, options.rounds))
            write_entries("end_to_end", {name: found[name]})  # what is done stays if the next one is cut off
    table = []
    for name, (_, result) in found.items():
        seconds, scores = result["seconds"], result["scores"]
        cells = [f"{seconds[side].median:.3g} s, {scores[side]:.3f}" for side in (OURS, PEER)]
        table.append([name, *cells, str(result["times_as_long"]), str(result["times_the_cpu"])])
    ratios = [result["times_as_long"].median for _, result in found.values()]
    mean = statistics.geometric_mean(ratios)
    table.append(["geometric mean", "", "", f"{mean:.3g}", ""])
    print_table("from start to end, and the score", ["", OURS, PEER, f"time ÷ {OURS}'s", f"CPU ÷ {OURS}'s"], table)


def measured(row: Row, folder: Path, rounds: int) -> dict[str, Any]:
    """Both sides in turns; the first round, which compiles and reads from the disk, is left out."""
    sides: dict[str, Callable[[str], float]] = {
        OURS: lambda run: ours(row, folder, run),
        PEER: lambda _: script(row, folder),
    }
    wall: dict[str, list[float]] = {side: [] for side in sides}
    cpu: dict[str, list[float]] = {side: [] for side in sides}
    scores: dict[str, list[float]] = {side: [] for side in sides}
    watch = ForeignLoad()
    for number in range(rounds + 1):
        for side, train in sides.items():
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            score = train(f"run-{time.time_ns()}")
            seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            if number:
                wall[side].append(seconds)
                cpu[side].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
                scores[side].append(score)
    ratios = {key: [b / a for a, b in zip(of[OURS], of[PEER], strict=True)] for key, of in (("w", wall), ("c", cpu))}
    return {
        "ranks": row.ranks,
        "epochs": row.epochs,
        "seconds": {side: Spread.of(values) for side, values in wall.items()},
        "cpu_seconds": {side: Spread.of(values) for side, values in cpu.items()},
        "scores": {side: statistics.fmean(values) for side, values in scores.items()},
        "times_as_long": Spread.of(ratios["w"]),
        "times_the_cpu": Spread.of(ratios["c"]),
        "foreign_cores": watch.cores(),
    }


def ours(row: Row, folder: Path, run: str) -> float:
    """Train by the command. Returns the test score."""
    train = {**row.experiment["train"], "epochs": row.epochs, "ranks": row.ranks, "baselines": False, **row.train}
    experiment = {**row.experiment, "dataset": {"name": Path(row.data).stem}, "train": train}
    (folder / "experiment.yaml").write_text(json.dumps(experiment))  # JSON is YAML
    roots = ("--dataset-root", "data", "--logs-root", "logs")
    graphmill(["train", "experiment.yaml", "--run-id", run, *roots], folder)
    outcome = RunFolder(folder / "logs" / run).read_outcome()
    assert outcome is not None
    assert outcome.test is not None
    return float(outcome.test[row.score])


def script(row: Row, folder: Path) -> float:
    """Train by the script. Returns the test score."""
    start = [sys.executable]
    if row.ranks > 1:
        start += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={row.ranks}"]
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // row.ranks))}
    command = [*start, str(PEERS / row.script), row.data, str(row.epochs), *row.words]
    said = call(command, folder, plain() | threads)
    return float(json.loads(said.splitlines()[-1])["test"])


def graphmill(words: list[str], folder: Path) -> None:
    call([sys.executable, "-m", "graphmill.cli", *words], folder, plain())


def call(command: list[str], folder: Path, environ: dict[str, str]) -> str:
    """Standard output of a command that succeeds."""
    given = {"cwd": folder, "env": environ, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, check=False, capture_output=True, text=True, **given)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def write_nodes(path: Path, *, num_nodes: int, num_edges: int, features: int, classes: int = 8) -> None:
    """A graph whose classes are seen in its edges and, dimly, in its features."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, num_nodes)
    source = rng.integers(0, num_nodes, num_edges // 2)
    target = rng.integers(0, num_nodes, num_edges // 2)
    by_class = np.argsort(y, kind="stable")
    first = np.searchsorted(y[by_class], np.arange(classes + 1))
    alike = rng.random(num_edges // 2) < 0.6
    own = y[source[alike]]
    target[alike] = by_class[rng.integers(first[own], first[own + 1])]
    x = rng.normal(size=(num_nodes, features)).astype(np.float32)
    x[:, :classes] += np.eye(classes, dtype=np.float32)[y]
    edges = np.stack([np.concatenate([source, target]), np.concatenate([target, source])])
    split = rng.choice(3, num_nodes, p=[0.5, 0.25, 0.25])
    np.savez(path, x=x, y=y, edge_index=edges, split=split)


def write_windows(path: Path, count: int) -> None:
    """Graphs of the size of CAN windows, with 11 features of each node and edge, and two classes."""
    rng = np.random.default_rng(0)
    num_nodes, num_edges = rng.integers(20, 51, count), rng.integers(30, 101, count)
    y = rng.integers(0, 2, count)
    edge_index = rng.integers(0, np.repeat(num_nodes, num_edges), (2, num_edges.sum()))
    x, attr = (rng.normal(size=(total.sum(), 11)).astype(np.float32) for total in (num_nodes, num_edges))
    x[:, 0] += np.repeat(y, num_nodes)
    split = np.repeat([0, 1, 2], [count * 8 // 10, count // 10, count // 10])
    of_graphs: dict[str, Any] = {"num_nodes": num_nodes, "num_edges": num_edges, "y": y, "split": split}
    np.savez(path, edge_index=edge_index, x=x, edge_attr=attr, **of_graphs)


def write_roads(path: Path, *, num_sensors: int, num_steps: int) -> None:
    """Speeds that follow the time of day and the sensors before, every five minutes."""
    rng = np.random.default_rng(0)
    near = np.abs(np.subtract.outer(np.arange(num_sensors), np.arange(num_sensors)))
    adjacency = np.exp(-(near.astype(np.float32) ** 2) / 4) * (near <= 3)
    seconds = 1_704_067_200 + 300 * np.arange(num_steps)
    wave = np.sin(2 * np.pi * (seconds[:, None] / 86_400 - np.arange(num_sensors) / 200))
    noise = rng.normal(size=(num_steps, num_sensors)) @ adjacency
    names = np.array([f"s{number}" for number in range(num_sensors)])
    values = (55 + 10 * wave + noise).astype(np.float32)
    np.savez(path, values=values, timestamps=seconds, sensor_ids=names, adj=adjacency)


def write_costs(path: Path, *, size: int, instances: int) -> None:
    """Uniform problems and their optimal potentials, in a file for each split."""
    asked = f"sizes=[{size}]", "families=[uniform]", f"instances={instances}"
    options = [word for each in asked for word in ("-o", each)]
    roots = ["--dataset-root", "made"]
    graphmill(["prepare", "synthetic/assignment", "--as", "made", *options, *roots], path.parent)
    graphmill(["convert", "made", "--output", path.name, *roots], path.parent)


if __name__ == "__main__":
    main()
