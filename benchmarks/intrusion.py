"""Intrusion detection on CAN buses: F1 and AUC of every model, beside a statistic that knows no graph.

    python benchmarks/intrusion.py --captures FOLDER [--seeds 0 1 2] [--cases NAME …]

FOLDER holds can-train-and-test/…/DoS-1.csv.gz and ROAD's *.npz. Each case divides captures into training, validation
and test windows in its own way, and trains on each rng seed: a VGAE on benign windows, a GAT, a GAT without features of
edges, a student of the GAT, and the fusion of VGAE and GAT. The statistic (counts of ids, gaps between frames) sees the
same windows. Thresholds are chosen on validation windows. Runs that are there are not made again.

In "captured" cases a test window is of a capture that was trained on, from another stretch of time; in "held out" ones
it is of a capture, a kind of attack, or a vehicle, that was not.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from entries import write_entries
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.intrusion.baselines import score
from graphmill.tasks.intrusion.data.splits import SPLITS
from graphmill.tasks.intrusion.data.store import CaptureStore
from graphmill.tasks.intrusion.page import RATES, IntrusionPlan
from harness import CACHE, Ledger, print_table

DOS, ROAD = "DoS-1.csv.gz", "masquerade"
ROAD_CAPTURES = ("correlated_signal_attack_1", "correlated_signal_attack_2", "correlated_signal_attack_3")
SPEED = "max_speedometer_attack_2"
STAGES = {"autoencoder": "VGAE", "normal": "GAT", "no_edges": "GAT, no edge features", "student": "student"}
MODELS = {**STAGES, "fusion": "fusion"}
PIPELINE: dict[str, Any] = {
    "name": "intrusion",
    "experiment": "can-gat",
    "stages": [
        {"name": "autoencoder", "set": {"model.kind": "vgae", "dataset.train_on": "benign", "train.epochs": 6}},
        {"name": "normal", "set": {"train.epochs": 8}},
        {"name": "no_edges", "set": {"model.edge_features": False, "train.epochs": 8}},
        {
            "name": "student",
            "set": {"model.scale": "small", "train.distill": {"alpha": 0.7, "temperature": 4.0}, "train.epochs": 20},
            "sources": {"teacher": {"stage": "normal", "weights": "best"}},
        },
        {
            "name": "fusion",
            "set": {
                "model": {"kind": "fusion"},
                "dataset.train_on": "validation",
                "train.epochs": 1,
                "train.optimizer.lr": 1.0e-6,
            },
            "sources": {
                "gat": {"stage": "normal", "weights": "best"},
                "vgae": {"stage": "autoencoder", "weights": "best"},
            },
        },
    ],
}


@dataclass(frozen=True, slots=True)
class Case:
    """Captures, and which of them, or which parts of each, are for what."""

    captures: tuple[str, ...]  # what their names hold; none: generated
    train: str = ""  # what the names of training captures hold; "": those that are not for testing
    test: str = ""  # "": the last part of every block of every capture


def cases() -> dict[str, Case]:
    every_road = (*ROAD_CAPTURES, SPEED)
    found = {"DoS-1, captured": Case((DOS,))}
    found |= {f"{name}, captured": Case((name,)) for name in every_road}
    found |= {f"{name}, held out": Case((ROAD,), test=name) for name in every_road}
    found["ROAD from DoS-1, held out"] = Case((DOS, ROAD), train=DOS, test=ROAD)
    found["DoS-1 from ROAD, held out"] = Case((DOS, ROAD), train=ROAD, test=DOS)
    for kind in ("dos", "fuzzing", "spoofing"):
        found[f"generated {kind}, held out"] = Case((), test=kind)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captures", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--cases", nargs="+", default=list(cases()), choices=list(cases()), metavar="NAME")
    parser.add_argument("--epochs", type=int, help="of every stage; else its own number")
    parser.add_argument("--logs-root", type=Path, default=Path("logs"))
    options = parser.parse_args()
    entries = {name: measured(name, cases()[name], options) for name in options.cases}
    write_entries("intrusion", entries)
    for column in ("f1", "auc"):
        rows = [[name, *cells(result, column)] for name, (_, result) in entries.items()]
        print_table(f"{column} of test windows", ["case", "statistic", *MODELS.values(), "attacked"], rows)


def cells(result: dict[str, Any], column: str) -> Iterator[str]:
    """Of one row: mean ± sd over seeds."""
    yield f"{result['statistic'][column]:.4f}"
    for model in MODELS.values():
        values = result["models"][model][column]
        sd = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
        yield f"{statistics.mean(values):.4f}{sd}"
    yield f"{result['num_attacked']}/{result['num_test']}"


def measured(name: str, case: Case, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Origin of the runs, and the measures of each model on the test windows."""
    slug = name.replace(", ", "-").replace(" ", "-").lower()
    folder, data = options.logs_root / f"intrusion-{slug}", CACHE / "can"
    dataset = prepared(case, options.captures, data)
    with Ledger(folder) as ledger:
        runs = {seed: run_all(folder, seed, case, dataset, data, options.epochs) for seed in options.seeds}
    plan = RunFolder.open(next(iter(runs.values())) / "normal").read_plan().task
    assert isinstance(plan, IntrusionPlan)
    trivial = next(iter(score(plan, [RATES.name], ["test"], bounded=False)))
    store = CaptureStore.open(Path(plan.dataset.path))
    tested = np.asarray(store.labels)[store.split_codes(plan.division) == SPLITS.index("test")]
    if trivial.values is None:
        raise SystemExit(f"{name}: {trivial.why_not}")
    models = {model: over_seeds([runs[seed] / stage for seed in options.seeds]) for stage, model in MODELS.items()}
    result = {
        "num_test": len(tested),
        "num_attacked": int(tested.sum()),
        "statistic": dict(trivial.values),
        "models": models,
        "seeds": options.seeds,
        "foreign_cores": ledger.foreign_cores(),
    }
    return ledger.origin, result


def prepared(case: Case, captures: Path, data: Path) -> str:
    """Name of the dataset; it is prepared if it is not there."""
    if not case.captures:
        graphmill("prepare", "synthetic/can", "--dataset-root", str(data))
        return "synthetic/can"
    files = [file for file in sorted(captures.rglob("*.*z")) if any(part in file.name for part in case.captures)]
    if len(files) < len(case.captures):
        raise SystemExit(f"{captures} has {len(files)} captures called like {', '.join(case.captures)}")
    name = "-".join(part.split(".")[0].lower() for part in case.captures)
    links = data / "captures" / name
    links.mkdir(parents=True, exist_ok=True)
    for file in files:
        link = links / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(file.resolve())
    if not (data / name).exists():
        graphmill("prepare", name, "--task", "intrusion", "--from", str(links), "--dataset-root", str(data))
    return name


def run_all(folder: Path, seed: int, case: Case, dataset: str, data: Path, epochs: int | None) -> Path:
    """The folder of the stages, all of them done."""
    sets: dict[str, Any] = {"dataset.name": dataset, "dataset.blocks": 10, "train.seed": seed}
    sets |= {"train.ranks": 1, "train.device": "cpu"}
    if case.test:
        sets["dataset.test_captures"] = [f"*{case.test}*"]
    if case.train:
        sets["dataset.train_captures"] = [f"*{case.train}*"]
    of_all = {} if epochs is None else {"train.epochs": epochs}
    stages = [{**stage, "set": {**stage["set"], **of_all}} for stage in PIPELINE["stages"]]
    folder.mkdir(parents=True, exist_ok=True)
    run = f"seed{seed}"
    file = folder / f"{run}.yaml"
    file.write_text(json.dumps({**PIPELINE, "name": run, "set": sets, "stages": stages}, indent=1))  # JSON is YAML
    graphmill("pipeline", "run", str(file), "--dataset-root", str(data), "--logs-root", str(folder))
    return folder / run


def over_seeds(folders: Sequence[Path]) -> dict[str, Any]:
    """Measures of the test windows, and the number of parameters."""
    outcomes = [RunFolder.open(folder).read_outcome() for folder in folders]
    tests = [outcome.test for outcome in outcomes if outcome is not None and outcome.test is not None]
    if len(tests) < len(folders):
        raise SystemExit(f"a run of {', '.join(map(str, folders))} did not finish; remove it and run this again")
    plan = RunFolder.open(folders[0]).read_plan().task
    assert isinstance(plan, IntrusionPlan)
    return {
        "num_parameters": plan.model.num_parameters,
        **{column: [test[column] for test in tests] for column in ("f1", "auc", "precision", "recall")},
    }


def graphmill(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "graphmill.cli", *words], check=True)


if __name__ == "__main__":
    main()
