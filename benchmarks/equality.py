"""Several ranks compute what one process does: the same global batch on 1, 2 and 4 gloo ranks, loss by loss.

    python benchmarks/equality.py [EXPERIMENT] [--ranks 1 2 4] [--global-batch 4096] [--epochs 3]
        [--dataset-root DIR] [--logs-root DIR]

Dropout stays on. Prints the largest difference of any epoch's training and validation loss from those of one process,
and whether the seeds of an epoch are the training set, none twice, for 1 to 7 ranks.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from graphmill.graph.store import GraphStore
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.sample.schedule import SeedSchedule
from harness import ForeignLoad, print_table, write_result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", default="debian-packages-sage")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--global-batch", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--dataset-root", default="data")
    parser.add_argument("--logs-root", type=Path, default=Path("logs/equality"))
    options = parser.parse_args()
    shutil.rmtree(options.logs_root, ignore_errors=True)
    watch = ForeignLoad()
    losses = {ranks: train(options, ranks) for ranks in options.ranks}
    alone = losses[options.ranks[0]]
    differences = {
        ranks: {column: float(np.abs(np.subtract(found[column], alone[column])).max()) for column in alone}
        for ranks, found in losses.items()
    }
    plan = RunFolder.open(options.logs_root / f"ranks-{options.ranks[0]}").read_plan()
    covered = {world: covers(Path(plan.dataset.path), world) for world in range(1, 8)}
    rows = [[str(r), f"{d['loss']:.1e}", f"{d['val_loss']:.1e}"] for r, d in differences.items()]
    print_table(f"largest difference from {options.ranks[0]} rank", ["ranks", "training loss", "validation loss"], rows)
    print_table("seeds of an epoch = training set", ["ranks", "holds"], [[str(w), str(c)] for w, c in covered.items()])
    write_result(
        "equality",
        {
            "experiment": options.experiment,
            "global_batch": options.global_batch,
            "epochs": options.epochs,
            "largest_difference": differences,
            "seeds_are_the_training_set": covered,
            "foreign_cores": watch.cores(),
        },
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


def covers(store: Path, world_size: int) -> bool:
    """Whether the seeds of all ranks in an epoch are the training nodes, each once."""
    train_ids = GraphStore.open(store).nodes_in("train")
    schedule = SeedSchedule(train_ids, 1000, world_size, seed=7)
    steps = range(schedule.steps_per_epoch)
    seen = np.concatenate([schedule.seeds(0, step, rank).ids for step in steps for rank in range(world_size)])
    return bool(np.array_equal(np.sort(seen), train_ids))


if __name__ == "__main__":
    main()
