"""Test accuracy of the recipes on real data: mean ± sd over seeds, from runs made now.

    python benchmarks/accuracy.py [--seeds 0 1 2] [--recipes NAME …] [--dataset-root DIR]

Each run is `graphmill train RECIPE -O train.seed=S`. The datasets must be prepared (`graphmill datasets`).
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

from graphmill.record.run_folder import RunFolder
from harness import print_table, write_result

BARS = {"debian-packages-sage": 0.83, "wordnet31-sage": 0.69, "cora-sage": 0.80, "pubmed-sage": 0.77}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--recipes", nargs="+", default=list(BARS))
    parser.add_argument("--dataset-root", default="data")
    parser.add_argument("--logs-root", default="logs")
    options = parser.parse_args()
    result, rows = {}, []
    for recipe in options.recipes:
        outcomes = [train(recipe, seed, options) for seed in options.seeds]
        scores = [outcome["micro_f1"] for outcome in outcomes]
        mean, sd = statistics.mean(scores), statistics.stdev(scores) if len(scores) > 1 else None
        walls = [outcome["wall_s"] for outcome in outcomes]
        result[recipe] = {
            "test_micro_f1": scores,
            "mean": mean,
            "sd": sd,
            "seeds": options.seeds,
            "wall_s": walls,
            "bar": BARS.get(recipe),
        }
        spread = f"{mean:.4f} ± {sd:.4f}" if sd is not None else f"{mean:.4f}"
        rows.append([recipe, spread, f"{BARS.get(recipe, '')}", f"{statistics.median(walls):.1f}"])
    print_table("test micro-F1, best-val checkpoint, exact inference", ["recipe", "mean ± sd", "bar", "wall s"], rows)
    write_result("accuracy", result)


def train(recipe: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """One run; its outcome on the test split."""
    name = f"accuracy-{recipe}/seed{seed}"
    folder = Path(options.logs_root) / name
    if not (folder / "outcome.json").exists():
        command = [sys.executable, "-m", "graphmill.cli", "train", recipe, "-O", f"train.seed={seed}", "--run-id", name]
        subprocess.run([*command, "--dataset-root", options.dataset_root, "--logs-root", options.logs_root], check=True)
    outcome = RunFolder.open(folder).read_outcome()
    if outcome is None or outcome.test is None:
        raise SystemExit(f"{folder} did not finish; remove it and run this again")
    return {"micro_f1": outcome.test["micro_f1"], "wall_s": outcome.wall_s}


if __name__ == "__main__":
    main()
