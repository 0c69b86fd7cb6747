"""What potentials that a model predicts save the exact solver: features, model and solver counted, by family and size.

    python benchmarks/assignment_seeded.py [--sizes 512 1024 2048 4096] [--epochs 12] [--instances 2] [--repeats 5]

Prepares generated instances of 128, 256 and 512 rows of every square family, trains the recipe assignment-one-gnn on
them, and measures as `graphmill bench assignment RUN` does, on other instances, of the sizes asked for: wall time of
one thread, medians. Beside the model stand the solver without a seed, seeds that learn nothing, and the optimal
potentials, which no model can beat; `auto` is `graphmill.SeededSolver`, which measures whether predicting pays.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from graphmill import load
from graphmill.tasks.assignment.bench import measure
from graphmill.tasks.assignment.data.families import SQUARE
from graphmill.tasks.assignment.data.store import AssignmentStore
from graphmill.tasks.assignment.page.bench import AssignmentBenchOptions
from harness import CACHE, ForeignLoad, console, print_table, write_result
from origin import Origin

SHOWN = (
    *("family", "size", "vs_scipy", "vs_lap", "vs_best_trivial", "cold_vs_scipy", "cold_vs_lap", "oracle_vs_cold"),
    *("auto_vs_cold", "auto_seed", "dual_gap"),
)
TRAINED_ON = "[128:40,256:30,512:20]"
_TRAIN_SEED, _TEST_SEED = 0, 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--instances", type=int, default=2, help="of each family and size")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    origin = Origin.now()
    data, logs = CACHE / "assignment", CACHE / "assignment-runs"
    prepared(data, "train", TRAINED_ON, _TRAIN_SEED)
    # Of a split of 70/15/15 nothing is left out: what is called training here was not trained on.
    counts = f"[{','.join(f'{size}:{options.instances + 1}' for size in options.sizes)}]"
    name = prepared(data, f"test-{'-'.join(map(str, options.sizes))}-{options.instances}", counts, _TEST_SEED)
    run = f"seeded-{time.time_ns()}"
    graphmill(
        *("train", "assignment-one-gnn", "--run-id", run, "-O", "dataset.name=train"),
        *("-O", f"train.epochs={options.epochs}", "--dataset-root", str(data), "--logs-root", str(logs)),
    )
    asked = AssignmentBenchOptions(split="train", instances=options.instances, repeats=options.repeats)
    watch = ForeignLoad()
    found = measure(
        load(logs / run), AssignmentStore.open(data / name), asked, lambda line: console.print(line, end="\r")
    )
    result = {
        "summary": found.summary,
        "rows": found.rows,
        "trained_on": TRAINED_ON,
        "epochs": options.epochs,
        "foreign_cores": watch.cores(),
    }
    tell(result)
    write_result("assignment_seeded", result, origin)


def prepared(data: Path, name: str, counts: str, seed: int) -> str:
    if not (data / name).exists():
        families = f"families=[{','.join(SQUARE)}]"
        words = ("-o", f"instances_map={counts}", "-o", families, "-o", f"seed={seed}", "--dataset-root", str(data))
        graphmill("prepare", "synthetic/assignment", "--as", name, *words)
    return name


def graphmill(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "graphmill.cli", *words], check=True)


def tell(result: dict[str, Any]) -> None:
    rows = [[shown(line[name]) for name in SHOWN] for line in result["summary"]]
    print_table("speed-ups, one thread, all counted", list(SHOWN), rows)


def shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)


if __name__ == "__main__":
    main()
