"""Several ranks compute what one process does: the same global batch on 1, 2 and 4 gloo ranks, loss by loss.

    python benchmarks/equality.py [EXPERIMENT] [--ranks 1 2 4] [--global-batch 4096] [--epochs 3]
        [--dataset-root DIR] [--logs-root DIR]

Dropout stays on. Prints the largest difference of any epoch's training and validation loss from those of one process,
and whether an epoch trains on every training node once, for 1 to 7 ranks: of a small graph, by the ids of the nodes
whose loss had a gradient, which the ranks write down as they train.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from graphmill.record.metrics import read_metrics
from harness import ForeignLoad, print_table, write_result
from origin import Origin

NUM_NODES = 1003


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", default="debian-packages-sage")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--global-batch", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--worlds", type=int, default=7, help="most ranks of the runs that write their ids down")
    parser.add_argument("--dataset-root", default="data")
    parser.add_argument("--logs-root", type=Path, default=Path("logs/equality"))
    options = parser.parse_args()
    shutil.rmtree(options.logs_root, ignore_errors=True)
    origin, watch = Origin.now(), ForeignLoad()
    losses = {ranks: train(options, ranks) for ranks in options.ranks}
    alone = losses[options.ranks[0]]
    differences = {
        ranks: {column: float(np.abs(np.subtract(found[column], alone[column])).max()) for column in alone}
        for ranks, found in losses.items()
    }
    covered = trained_on(options.logs_root / "trained-on", range(1, options.worlds + 1))
    rows = [[str(r), f"{d['loss']:.1e}", f"{d['val_loss']:.1e}"] for r, d in differences.items()]
    print_table(f"largest difference from {options.ranks[0]} rank", ["ranks", "training loss", "validation loss"], rows)
    print_table(
        "trained on in an epoch = training set, each once",
        ["ranks", "holds"],
        [[str(w), str(c)] for w, c in covered.items()],
    )
    write_result(
        "equality",
        {
            "experiment": options.experiment,
            "global_batch": options.global_batch,
            "epochs": options.epochs,
            "largest_difference": differences,
            "trained_on_the_training_set": covered,
            "foreign_cores": watch.cores(),
        },
        origin,
    )


def train(options: argparse.Namespace, ranks: int) -> dict[str, list[float]]:
    """One run; its losses by epoch."""
    name = f"ranks-{ranks}"
    overrides = [
        f"train.ranks={ranks}",
        f"train.batch_size={options.global_batch // ranks}",
        f"train.epochs={options.epochs}",
    ]
    command = [sys.executable, "-m", "graphmill.cli", "train", options.experiment, "--run-id", name]
    command += ["--dataset-root", options.dataset_root, "--logs-root", str(options.logs_root)]
    subprocess.run([*command, *(word for o in overrides for word in ("-O", o))], check=True)
    rows = read_metrics(options.logs_root / name / "metrics.csv")
    return {column: [float(row[column]) for row in rows] for column in ("loss", "val_loss")}


def trained_on(folder: Path, worlds: range) -> dict[int, bool]:
    """Whether an epoch of a small run trains on each training node once, by number of ranks.

    The ids are those whose loss had a gradient (peers/records_ids.py), written down by the ranks themselves.
    """
    folder.mkdir(parents=True)
    train_ids = make_dataset(folder)
    return {world: bool(np.array_equal(np.sort(ids_of_an_epoch(folder, world)), train_ids)) for world in worlds}


def make_dataset(folder: Path) -> np.ndarray:
    """A graph whose first feature is the node's id, prepared; returns the training ids, ascending."""
    rng = np.random.default_rng(3)
    split = rng.choice([0, 1, 2], NUM_NODES, p=[0.6, 0.2, 0.2])
    x = np.column_stack([np.arange(NUM_NODES), rng.normal(size=(NUM_NODES, 3))]).astype(np.float32)
    edges = rng.integers(0, NUM_NODES, (2, 4 * NUM_NODES))
    np.savez(folder / "ids.npz", edge_index=edges, x=x, y=rng.integers(0, 4, NUM_NODES), split=split)
    words = ["prepare", "ids", "--from", str(folder / "ids.npz"), "--dataset-root", str(folder / "data")]
    subprocess.run([sys.executable, "-m", "graphmill.cli", *words], check=True, capture_output=True)
    return np.flatnonzero(split == 0)


def ids_of_an_epoch(folder: Path, world_size: int) -> np.ndarray:
    """Of all ranks, one after the other."""
    ids = folder / f"ids-{world_size}"
    ids.mkdir()
    experiment = {
        "name": "ids",
        "dataset": {"name": "ids", "features": "as_stored"},  # by default ids beside noise would be standardised
        "model": {"kind": "custom", "target": "records_ids.RecordsIds", "options": {"folder": str(ids)}},
        "train": {
            **{"ranks": world_size, "epochs": 1, "batch_size": 37, "num_neighbors": [2, 2], "threads": 1},
            **{"device": "cpu", "sync": {"scheme": "local_sgd", "every": 3}},
        },
    }
    path = folder / f"ids-{world_size}.yaml"
    path.write_text(json.dumps(experiment))  # which is YAML, too
    words = ["train", str(path), "--run-id", f"ids-{world_size}", "--logs-root", str(folder / "logs")]
    command = [sys.executable, "-m", "graphmill.cli", *words, "--dataset-root", str(folder / "data")]
    peers = Path(__file__).parent / "peers"
    paths = os.pathsep.join(filter(None, (str(peers), os.environ.get("PYTHONPATH"))))
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": paths})
    return np.concatenate([np.loadtxt(file, dtype=np.int64, ndmin=1) for file in sorted(ids.glob("*.txt"))])


if __name__ == "__main__":
    main()
