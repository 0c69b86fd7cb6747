"""How recipes scale on this machine, from studies run now: `graphmill study run` and `graphmill scaling`, one of each.

    python benchmarks/scaling.py [--studies NAME …] [--dataset-root DIR] [--logs-root DIR]

The datasets must be prepared. Cells that are done are not run again, so remove the study's folder to measure anew. The
speed-up of each strong and weak study is drawn into docs/images. The floor stands beside what was measured: on this
many cores, no program gets more out of more ranks than cores.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from entries import write_entries
from harness import Ledger, print_table

STUDIES = (
    *("study-debian-strong", "study-debian-weak", "study-debian-sensitivity"),
    *("study-traffic-strong", "study-traffic-weak"),
)
IMAGES = Path(__file__).parent.parent / "docs" / "images"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", nargs="+", default=list(STUDIES), metavar="NAME")
    parser.add_argument("--dataset-root", default="data")
    parser.add_argument("--logs-root", default="logs")
    parser.add_argument("--images", type=Path, default=IMAGES, help="where figures are drawn to")
    options = parser.parse_args()
    entries = {name: measure(name, options) for name in options.studies}
    for name, (_, found) in entries.items():
        if found["kind"] != "sensitivity":
            columns = ["ranks", "s an epoch ± sd", "samples/s", "speed-up", "efficiency", "these cores at best"]
            print_table(f"{name}: {found['work']}", columns, [cells(row) for row in found["rows"]])
    write_entries("scaling", entries)


def measure(recipe: str, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run one study and read what it says: the origin of its runs, and the figures."""
    graphmill = [sys.executable, "-m", "graphmill.cli"]
    roots = ["--dataset-root", options.dataset_root, "--logs-root", options.logs_root]
    with Ledger(Path(options.logs_root) / study_name(recipe)) as ledger:
        subprocess.run([*graphmill, "study", "run", recipe, *roots], check=True)
    with tempfile.TemporaryDirectory() as out:
        command = [*graphmill, "scaling", recipe, "--out", out, "--logs-root", options.logs_root]
        subprocess.run(command, check=True)
        full = json.loads(next(Path(out).glob("*/*_full.json")).read_text())
        for path in Path(out).glob("*/*_speedup.png"):
            shutil.copy(path, options.images / f"{Path(recipe).stem}.png")
    kept = ("kind", "work", "rows", "fit", "fit_own_cores", "notes", "keys", "combinations", "effects")
    return ledger.origin, {key: full[key] for key in kept if key in full}


def study_name(recipe: str) -> str:
    """Its folder below the logs root."""
    path = Path(recipe) if recipe.endswith(".yaml") else Path(__file__).parent.parent / "recipes" / f"{recipe}.yaml"
    return str(yaml.safe_load(path.read_text())["name"])


def cells(row: dict[str, Any]) -> list[str]:
    """A line of the table: what was measured, and what these cores allow."""
    speedup = row.get("speedup", row.get("scaled_speedup"))
    spread = f"{row['epoch_time_sec']:.2f} ± {row['epoch_time_sec_sd']:.2f}"
    at_best = min(row["ranks"], row["cores_per_host"])
    values = (row["throughput_samples_per_sec"], speedup, row["efficiency"])
    return [str(row["ranks"]), spread, f"{values[0]:,.0f}", f"{values[1]:.2f}", f"{values[2]:.0%}", f"{at_best}"]


if __name__ == "__main__":
    main()
