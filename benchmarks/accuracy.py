"""Test errors of the recipes on real data: mean ± sd over seeds, from runs made now.

    python benchmarks/accuracy.py [--seeds 0 1 2] [--recipes NAME …] [--dataset-root DIR]

Each run is `graphmill train RECIPE -O train.seed=S`. The datasets must be prepared (`graphmill datasets`). Forecasts
stand beside the same recipe without the road graph (dataset.graph=identity) and beside the forecast that every sensor
goes on as it was last seen. Of debian-packages, where many test packages have a near-copy among the training packages,
both parts of the test split are judged (near_copies.py). Runs that are there are not made again, unless other code made
them, which is an error; the result keeps recipes that are not asked for.
"""

import argparse
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from entries import write_entries
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.traffic.data.store import TrafficStore
from graphmill.tasks.traffic.data.windows import TrafficWindows
from graphmill.tasks.traffic.nn.metrics import measures, tally
from graphmill.tasks.traffic.page import TrafficPlan
from harness import Ledger, print_table
from near_copies import near_copies


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured of a recipe, and what is asked of it: micro-F1 at least, errors at most."""

    bars: dict[str, float | None]
    overrides: tuple[str, ...] = ()
    recipe: str = ""  # of a variant


WITH_NEAR_COPIES = {"debian-packages-sage"}  # whose test split has many
FORECAST = dict.fromkeys(("mae_15min", "mae_30min", "mae_60min"))
WITHOUT_GRAPH = ("dataset.graph=identity",)
CASES = {
    "debian-packages-sage": Case({"micro_f1": 0.83}),
    "wordnet31-sage": Case({"micro_f1": 0.69}),
    "cora-sage": Case({"micro_f1": 0.80}),
    "pubmed-sage": Case({"micro_f1": 0.77}),
    "traffic-metr-la-10": Case({"mae_15min": 3.1, "mae_30min": 3.6, "mae_60min": 4.3}),
    "traffic-metr-la-10-identity": Case(FORECAST, WITHOUT_GRAPH, "traffic-metr-la-10"),
    "traffic-metr-la-week": Case({"mae_15min": None, "mae_30min": 4.34, "mae_60min": 5.77}),
    "traffic-metr-la-week-identity": Case(FORECAST, WITHOUT_GRAPH, "traffic-metr-la-week"),
    "traffic-stid-metr-la-10": Case(FORECAST),
    "traffic-stid-metr-la-week": Case(FORECAST),
    "traffic-bangkok": Case({"mae_30min": None}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--recipes", nargs="+", default=list(CASES), choices=list(CASES), metavar="NAME")
    parser.add_argument("--dataset-root", default="data")
    parser.add_argument("--logs-root", default="logs")
    options = parser.parse_args()
    entries = {name: measure(name, CASES[name], options) for name in options.recipes}
    rows = [
        [f"{name}: {column}", spread(entry), f"{entry['bar'] or ''}", f"{entry.get('last_value') or '':.4}"]
        for name, (_, found) in entries.items()
        for column, entry in found["test"].items()
    ]
    print_table("test split, best-val checkpoint", ["recipe", "mean ± sd", "bar", "last value"], rows)
    write_entries("accuracy", entries)


def measure(name: str, case: Case, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """All seeds of one case: the origin of its runs, and the figures."""
    with Ledger(Path(options.logs_root) / f"accuracy-{name}") as ledger:
        folders = [train(name, case, seed, options) for seed in options.seeds]
    outcomes = [read(folder) for folder in folders]
    naive = last_value_errors(folders[0]) if name.startswith("traffic") else {}
    test = {}
    for column, bar in case.bars.items():
        values = [outcome.test[column] for outcome in outcomes]
        sd = statistics.stdev(values) if len(values) > 1 else None
        test[column] = {"values": values, "mean": statistics.mean(values), "sd": sd, "bar": bar}
        if naive:
            test[column]["last_value"] = naive[column]
    found = {"test": test, "seeds": options.seeds, "wall_s": [outcome.wall_s for outcome in outcomes]}
    if name in WITH_NEAR_COPIES:
        found["near_copies"] = near_copies(folders)
    return ledger.origin, {**found, "foreign_cores": ledger.foreign_cores()}


def train(name: str, case: Case, seed: int, options: argparse.Namespace) -> Path:
    """One run. Returns its folder."""
    run = f"accuracy-{name}/seed{seed}"
    folder = Path(options.logs_root) / run
    if not (folder / "outcome.json").exists():
        words = [word for text in (f"train.seed={seed}", *case.overrides) for word in ("-O", text)]
        command = [sys.executable, "-m", "graphmill.cli", "train", case.recipe or name, "--run-id", run, *words]
        subprocess.run([*command, "--dataset-root", options.dataset_root, "--logs-root", options.logs_root], check=True)
    return folder


def read(folder: Path) -> Any:
    outcome = RunFolder.open(folder).read_outcome()
    if outcome is None or outcome.test is None:
        raise SystemExit(f"{folder} did not finish; remove it and run this again")
    return outcome


def last_value_errors(folder: Path) -> dict[str, float]:
    """Errors on the test split of the forecast that repeats the last reading known in the window; where there is none,
    there is no forecast, and its targets count nowhere.
    """
    task = RunFolder.open(folder).read_plan().task
    assert isinstance(task, TrafficPlan)
    windows = TrafficWindows(TrafficStore.open(Path(task.dataset.path)), task.history, task.horizon)
    starts = windows.of("test")
    batch = windows.batch(Seeds(0, 0, SeedIds(starts)))
    history = batch.readings[:, : task.history]
    ages = torch.arange(1, task.history + 1).view(1, -1, 1) * ~history.isnan()
    latest = ages.argmax(dim=1, keepdim=True)
    last = history.gather(1, latest)
    total = tally(last.expand_as(batch.targets), batch.targets, batch.is_known & ~last.isnan())
    return measures(total, task.dataset.interval_s)


def spread(entry: dict[str, Any]) -> str:
    return f"{entry['mean']:.4f}" + (f" ± {entry['sd']:.4f}" if entry["sd"] is not None else "")


if __name__ == "__main__":
    main()
