"""Does a model with defaults beat the simple methods, or does its run say that it lost? Nodes, three seeds.

    python benchmarks/defaults.py --data FOLDER [--sets NAME …] [--seeds 0 1 2] [--logs-root DIR]

FOLDER holds arrays as `graphmill prepare NAME --from FILE.npz` reads them (cora.npz, citeseer.npz, pubmed.npz,
debian_packages.npz, wordnet31.npz). Three sets are made here, each of a kind on which defaults may lose: `scales`,
features of unlike scale; `regions`, where labels follow the graph and features tell nothing; `loners`, where the graph
tells nothing. Each run is `graphmill train` on an experiment that names the data and GraphSAGE, and nothing else.
A run is as it should be if its test micro-F1 is at least the best baseline's less 0.005, or it says that it loses.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from entries import write_entries
from graphmill.record.run_folder import RunFolder
from harness import Ledger, print_table
from origin import Origin

AT_HAND = ("cora", "citeseer", "pubmed", "debian_packages", "wordnet31")
MADE = ("scales", "regions", "loners")
ROOM = 0.005
SAID = "loses to a baseline"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--sets", nargs="+", default=[*AT_HAND, *MADE], choices=[*AT_HAND, *MADE], metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--dataset-root", type=Path, default=Path("data"))
    parser.add_argument("--logs-root", type=Path, default=Path("logs"))
    options = parser.parse_args()
    Origin.now()  # fails early where it cannot be said what is measured
    entries = {name: measured(name, options) for name in options.sets}
    write_entries("defaults", entries)
    rows = [
        [name, spread(found["test"]), found["best"], f"{found['baselines'][found['best']]:.4f}", verdict(found)]
        for name, (_, found) in entries.items()
    ]
    print_table("test micro-F1, defaults", ["data", "GraphSAGE", "best baseline", "its score", "as it should be"], rows)


def measured(name: str, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Origin of the runs, what each scored and said, and what the baselines scored."""
    prepare(name, options)
    with Ledger(options.logs_root / f"defaults-{name}") as ledger:
        told = [train(name, seed, options) for seed in options.seeds]
    outcomes = [outcome_of(options.logs_root / f"defaults-{name}" / f"seed{seed}") for seed in options.seeds]
    scored = outcomes[0].baselines["test"]
    baselines = {each: measures["micro_f1"] for each, measures in scored.items()}
    return ledger.origin, {
        "test": [float(outcome.test["micro_f1"]) for outcome in outcomes],
        "baselines": baselines,
        "not_below": [outcome.test["micro_f1"] >= max(baselines.values()) - ROOM for outcome in outcomes],
        "best": max(baselines, key=baselines.__getitem__),
        "said": told,
        "seeds": options.seeds,
        "foreign_cores": ledger.foreign_cores(),
    }


def outcome_of(folder: Path) -> Any:
    outcome = RunFolder.open(folder).read_outcome()
    if outcome is None or outcome.test is None:
        raise SystemExit(f"{folder} did not finish; remove it and run this again")
    return outcome


def prepare(name: str, options: argparse.Namespace) -> None:
    called = f"defaults-{name}"
    if (options.dataset_root / called).exists():
        return
    with tempfile.TemporaryDirectory(prefix="graphmill-defaults-") as folder:
        path = options.data / f"{name}.npz"
        if name in MADE:
            path = Path(folder) / f"{name}.npz"
            np.savez(path, **made(name))
        graphmill("prepare", called, "--from", str(path), "--dataset-root", str(options.dataset_root))


def train(name: str, seed: int, options: argparse.Namespace) -> bool:
    """One run. Returns whether it said that it loses: what it printed is kept beside it."""
    run = options.logs_root / f"defaults-{name}" / f"seed{seed}"
    printed = run.with_suffix(".txt")
    if not (run / "outcome.json").exists():
        experiment = options.logs_root / f"defaults-{name}" / "experiment.yaml"
        experiment.parent.mkdir(parents=True, exist_ok=True)
        experiment.write_text(f"dataset: {{name: defaults-{name}}}\nmodel: {{kind: graphsage}}\n")
        roots = ("--dataset-root", str(options.dataset_root), "--logs-root", str(options.logs_root))
        words = ("train", str(experiment), "--run-id", f"defaults-{name}/seed{seed}", "-O", f"train.seed={seed}")
        printed.write_text(graphmill(*words, *roots))
    return SAID in printed.read_text()


def made(name: str) -> dict[str, Any]:
    """A graph of 6,000 nodes in 6 classes; a tenth is for training, a tenth for validation."""
    rng = np.random.default_rng(0)
    num_nodes, num_classes = 6_000, 6
    y = rng.integers(0, num_classes, num_nodes)
    x = rng.normal(size=(num_nodes, 24)).astype(np.float32)
    order = rng.permutation(num_nodes)
    split = np.full(num_nodes, 2)
    split[order[:600]], split[order[600:1200]] = 0, 1
    source = rng.integers(0, num_nodes, 24_000)
    target = rng.integers(0, num_nodes, 24_000)
    if name in ("scales", "regions"):  # nine in ten edges within a class
        within = rng.random(24_000) < 0.9
        by_class = np.argsort(y, kind="stable")
        first, count = np.searchsorted(y[by_class], np.arange(num_classes)), np.bincount(y, minlength=num_classes)
        host_ranks = by_class[first[y[source]] + rng.integers(0, count[y[source]])]
        target = np.where(within, host_ranks, target)
    if name != "regions":
        x[:, :num_classes] += 1.5 * np.eye(num_classes, dtype=np.float32)[y]
    if name == "scales":
        x *= np.float32(10) ** rng.uniform(-2, 3, 24).astype(np.float32)
    return {"edge_index": np.stack([source, target]), "x": x, "y": y, "split": split}


def graphmill(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "graphmill.cli", *words],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"graphmill {' '.join(words)} ended with {done.returncode}\n{done.stdout}")
    return done.stdout


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"


def verdict(found: dict[str, Any]) -> str:
    not_below, said = found["not_below"], found["said"]
    right = sum(one or other for one, other in zip(not_below, said, strict=True))
    return f"{right} of {len(said)} ({sum(not_below)} not below it, {sum(said)} said that they lose)"


if __name__ == "__main__":
    main()
