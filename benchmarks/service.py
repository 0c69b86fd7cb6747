"""A sampling service beside ranks that sample for themselves: an epoch of as many trainers, on one host.

    python benchmarks/service.py --dataset NAME --dataset-root FOLDER [--trainers 2] [--samplers 1]
        [--rounds 3] [--epochs 4] [--train-limit 65536] [--fanouts 25 10]

The two take turns, a run each a round: seconds of an epoch (the first is left out: it warms up), and the share of it
that a step waited for its batch. Of the service: what a sampler handed over in an epoch, and the floor of that, the
seconds that copying so many bytes takes one core, measured in the same run. The weights must be the same after every
sync, or nothing is written.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from entries import write_entries
from graphmill.record.events import Served, Sync, events_in
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from harness import Spread, console, print_table
from origin import Origin

EXPERIMENT = """
name: service
model: {kind: graphsage, hidden_channels: 256, num_layers: 2}
train: {batch_size: 1024, device: cpu, threads: 1, evaluate_every_epochs: 0, prefetch: 3}
"""
WAYS = ("ranks", "service")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--dataset-root", type=Path, required=True)
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--samplers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--train-limit", type=int)
    parser.add_argument("--fanouts", type=int, nargs="+", default=[25, 10])
    options = parser.parse_args()
    origin = Origin.now()
    with tempfile.TemporaryDirectory(prefix="graphmill-service-") as folder:
        found = measured(options, Path(folder))
    show(found)
    entry = f"{options.dataset}, {options.trainers} trainers, {options.samplers} samplers"
    console.print(f"[dim]{write_entries('service', {entry: (origin, found)})}[/dim]")


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    hashes = set()
    for number in range(options.rounds):
        for way in WAYS:
            run, its_hashes = one_run(options, folder / f"{way}-{number}", way)
            runs[way].append(run)
            hashes.add(its_hashes)
            console.print(f"[dim]round {number + 1}, {way}: {run['epoch_s']:.2f} s an epoch[/dim]")
    if len(hashes) != 1:
        raise SystemExit("the two do not have the same weights after every sync: nothing is written")
    ratio = Spread.of([one["epoch_s"] / other["epoch_s"] for one, other in zip(*reversed(runs.values()), strict=True)])
    return {
        "rounds": options.rounds,
        "ways": {way: {key: statistics.median(run[key] for run in its) for key in its[0]} for way, its in runs.items()},
        "service_over_ranks": {"median": ratio.median, "q25": ratio.q25, "q75": ratio.q75},
    }


def one_run(options: argparse.Namespace, folder: Path, way: str) -> tuple[dict[str, float], tuple[str, ...]]:
    """A run of all epochs. Returns what it measured, and the hashes of its parameters."""
    folder.mkdir()
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    keys = [
        f"dataset.name={options.dataset}",
        f"train.num_neighbors=[{','.join(map(str, options.fanouts))}]",
        f"train.epochs={options.epochs}",
    ]
    keys += [f"dataset.train_limit={options.train_limit}"] if options.train_limit else []
    roles = [f"roles.samplers={options.samplers}", f"roles.trainers={options.trainers}"]
    keys += roles if way == "service" else [f"train.ranks={options.trainers}"]
    command = [sys.executable, "-m", "graphmill.cli", "train", str(folder / "experiment.yaml"), "--run-id", "run"]
    command += ["--dataset-root", str(options.dataset_root), "--logs-root", str(folder)]
    command += [word for key in keys for word in ("-O", key)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    run = RunFolder(folder / "run")
    rows = read_metrics(run.metrics_path)[1:]
    epoch_s = statistics.fmean(float(row["train_s"]) for row in rows)
    found = {"epoch_s": epoch_s, "waiting": sum(float(row["wait_s"]) for row in rows) / (epoch_s * len(rows))}
    if way == "service":
        served = events_in(run.events_dir / "sampler_0.jsonl", Served)[1:]
        found["handed_over_mib"] = statistics.fmean(event.bytes for event in served) / 2**20
        found["floor_s"] = found["handed_over_mib"] / copied_mib_per_s()
    return found, tuple(event.parameter_hash for event in events_in(run.events_path(0), Sync))


def copied_mib_per_s(mib: int = 256, times: int = 5) -> float:
    """Of one core, between two pieces of memory that are larger than its caches."""
    torch.set_num_threads(1)
    source, target = torch.ones(mib << 20, dtype=torch.uint8), torch.zeros(mib << 20, dtype=torch.uint8)
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - began)
    return mib / min(seconds)


def show(found: dict[str, Any]) -> None:
    rows = [
        [way, f"{its['epoch_s']:.2f}", f"{100 * its['waiting']:.0f} %"]
        + ([f"{its['handed_over_mib']:,.0f}", f"{its['floor_s']:.3f}"] if way == "service" else ["", ""])
        for way, its in found["ways"].items()
    ]
    ratio = found["service_over_ranks"]
    print_table(
        f"an epoch; service over ranks: {ratio['median']:.2f} ({ratio['q25']:.2f} to {ratio['q75']:.2f})",
        ["who samples", "s", "waiting", "handed over by a sampler, MiB", "floor of that, s"],
        rows,
    )


if __name__ == "__main__":
    main()
