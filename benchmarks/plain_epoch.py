"""An epoch of a model of plain torch as `graphmill train` runs it, against a plain PyG script of as many threads.

    python benchmarks/plain_epoch.py [--rounds 5] [--epochs 12] [--threads 2]

Graphs of the shape of ENZYMES (600 of 33 nodes, 21 features, 6 classes), made here; GIN of 4 layers × 64 with batch
norm, batches of 32. Contenders, in turns, each a process of its own that is started as a user starts it:
  graphmill            `graphmill train`, which decides how threads wait for each other (`cluster/launch/local.py`)
  graphmill, no spin   the same with GOMP_SPINCOUNT=0: threads that wait sleep at once
  PyG                  peers/pyg_gin.py in the environment that a shell has: OpenMP's threads spin for a while
  PyG, 1 thread        the same with one
Seconds are the median of a process's epochs without evaluation, less the first two; CPU seconds, of the whole process
over its epochs, stand beside them, for they move less where others use the machine.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from graphmill.record.metrics import read_metrics
from harness import ForeignLoad, Spread, print_table, write_result
from origin import Origin

PEER = Path(__file__).parent / "peers" / "pyg_gin.py"
SKIPPED = 2  # epochs at first, in which memory is got and kernels are chosen
OURS = "graphmill"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    origin, watch = Origin.now(), ForeignLoad()
    with tempfile.TemporaryDirectory(prefix="graphmill-plain-") as name:
        folder = Path(name)
        write_graphs(folder / "graphs.npz")
        graphmill(["prepare", "shaped", "--from", "graphs.npz", "--dataset-root", "data"], folder, {})
        seconds, cpu = measure(folder, options.rounds, options.epochs, options.threads)
    others = watch.cores()
    rows, found = [], {}
    for contender, values in seconds.items():
        ratio = Spread.of([mine / own for mine, own in zip(values, seconds[OURS], strict=True)])
        spent = Spread.of([mine / own for mine, own in zip(cpu[contender], cpu[OURS], strict=True)])
        times = {"epoch_s": values, "cpu_s": cpu[contender]}
        found[contender] = {**times, "times_as_long": asdict(ratio), "times_the_cpu": asdict(spent)}
        rows.append([contender, f"{1000 * statistics.median(values):.0f} ms", str(ratio), str(spent)])
    title = f"an epoch of GIN, {options.threads} threads; others used {others:.2f} cores"
    print_table(title, ["", "epoch", "÷ graphmill", "CPU ÷ graphmill's"], rows)
    result = {"threads": options.threads, "epochs": options.epochs, "foreign_cores": others, "contenders": found}
    write_result("plain_epoch", result, origin)


def measure(
    folder: Path, rounds: int, epochs: int, threads: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds and CPU seconds an epoch, by contender and round."""
    contenders: dict[str, Callable[[str], list[float]]] = {
        OURS: lambda run: train(folder, run, epochs, threads, {}),
        "graphmill, no spin": lambda run: train(folder, run, epochs, threads, {"GOMP_SPINCOUNT": "0"}),
        "PyG": lambda _: script(folder, epochs, threads),
        "PyG, 1 thread": lambda _: script(folder, epochs, 1),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for place, (name, run) in enumerate(contenders.items()):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            found = run(f"run-{number}-{place}")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds[name].append(statistics.median(found[SKIPPED:]))
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            cpu[name].append(spent / len(found))
    return seconds, cpu


def train(folder: Path, run: str, epochs: int, threads: int, environ: dict[str, str]) -> list[float]:
    experiment = folder / "gin.yaml"
    experiment.write_text(
        "task: graph_classification\n"
        "dataset: {name: shaped}\n"
        "model: {kind: gin, hidden_channels: 64, norm: batch, readout: sum}\n"
        f"train: {{epochs: {epochs}, batch_size: 32, threads: {threads}, evaluate_every_epochs: 0,"
        " optimizer: {lr: 0.005}}\n"
    )
    graphmill(["train", "gin.yaml", "--run-id", run, "--dataset-root", "data", "--logs-root", "logs"], folder, environ)
    return [float(row["train_s"]) for row in read_metrics(folder / "logs" / run / "metrics.csv")]


def graphmill(arguments: list[str], folder: Path, environ: dict[str, str]) -> None:
    command = [sys.executable, "-m", "graphmill.cli", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=plain() | environ,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        sys.exit(f"graphmill {' '.join(arguments)} ended with {done.returncode}\n{done.stdout}{done.stderr}")


def script(folder: Path, epochs: int, threads: int) -> list[float]:
    command = [sys.executable, str(PEER), str(folder / "graphs.npz"), str(epochs)]
    environ = plain() | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, text=True)
    return [float(each) for each in json.loads(done.stdout)]


def plain() -> dict[str, str]:
    """The environment, without what tells OpenMP how to wait."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "KMP_"))}


def write_graphs(path: Path) -> None:
    rng = np.random.default_rng(0)
    num_nodes = rng.integers(15, 51, 600)
    num_edges = 4 * num_nodes
    y = rng.integers(0, 6, 600)
    edge_index = rng.integers(0, np.repeat(num_nodes, num_edges), (2, num_edges.sum()))
    x = rng.normal(size=(num_nodes.sum(), 21)).astype(np.float32)
    x[:, :6] += np.eye(6, dtype=np.float32)[np.repeat(y, num_nodes)]
    split = np.repeat([0, 1, 2], [480, 60, 60])
    np.savez(path, num_nodes=num_nodes, num_edges=num_edges, edge_index=edge_index, x=x, y=y, split=split)


if __name__ == "__main__":
    main()
