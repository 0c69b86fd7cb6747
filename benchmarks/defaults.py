"""Does a model beat the simple methods, with defaults and tuned, or does its run say that it lost? Three seeds.

    python benchmarks/defaults.py KIND --data FOLDER [--sets NAME …] [--seeds 0 1 2] [--trials N] [--logs-root DIR]

KIND is nodes, graphs, series, captures, links or costs; FOLDER holds nodes/, graphs/, traffic/, can/, lap/ and
raw_layouts/, as `graphmill prepare NAME --from` reads them. Of each kind some sets are made here, also such on which a
model may lose. `default_sets.py` has all of them. With defaults is `graphmill train` on an experiment that names the
data and nothing else (of series 6 epochs: else they take hours). Tuned is the best by validation of `graphmill tune`,
trained again from each seed. Both are judged on the test split by the measure that runs of the kind are chosen by: not
below is at most 0.005 worse than the best baseline (of errors: 0.5 %). A run that is worse must say so.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from default_sets import SETS, DataSet
from entries import write_entries
from graphmill.record.run_folder import RunFolder
from graphmill.spec.columns import Measure
from graphmill.spec.kinds import find_kind
from harness import Ledger, print_table
from origin import Origin

ROOM = 0.005
SAID = "loses to a baseline"


@dataclass(frozen=True, slots=True)
class Place:
    """Folders that the runs of one set read and write."""

    name: str
    of: DataSet
    data: Path
    dataset_root: Path
    logs: Path  # of this set

    @property
    def dataset(self) -> str:
        """Name of the prepared data."""
        return f"defaults-{self.name}"

    @property
    def roots(self) -> tuple[str, ...]:
        return ("--dataset-root", str(self.dataset_root), "--logs-root", str(self.logs))

    @property
    def experiment(self) -> dict[str, Any]:
        """What is asked for."""
        dataset = {"name": self.dataset, **self.of.dataset}
        return {"name": self.name, "dataset": dataset, **self.of.asked.experiment}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(SETS), metavar="KIND")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--sets", nargs="+", metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--trials", type=int, help="of each search; else its own number")
    parser.add_argument("--dataset-root", type=Path, default=Path("data"))
    parser.add_argument("--logs-root", type=Path, default=Path("logs"))
    options = parser.parse_args()
    if unknown := sorted(set(options.sets or []) - set(SETS[options.kind])):
        parser.error(f"no set of {options.kind}: {', '.join(unknown)}; there are {', '.join(SETS[options.kind])}")
    Origin.now()  # fails early where it cannot be said what is measured
    rows = []
    for name in options.sets or SETS[options.kind]:
        logs = options.logs_root / f"defaults-{name}"
        place = Place(name, SETS[options.kind][name], options.data.resolve(), options.dataset_root.resolve(), logs)
        origin, found = measured(place, options)
        write_entries(f"defaults_{options.kind}", {name: (origin, found)})  # stays if the next set is cut off
        best = found["baselines"][found["best"]]
        rows.append(
            [name, found["measure"], spread(found["defaults"]), spread(found["tuned"]), found["best"], f"{best:.4f}"]
        )
    print_table("on the test split", ["data", "measure", "defaults", "tuned", "best baseline", "its score"], rows)


def measured(place: Place, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Origin of the runs, what each scored and said, and what the baselines scored."""
    prepare(place)
    with Ledger(place.logs) as ledger:
        place.logs.mkdir(parents=True, exist_ok=True)
        file = place.logs / "experiment.yaml"
        file.write_text(json.dumps(place.experiment))  # JSON is YAML
        defaults = [train(place, file, f"defaults-seed{seed}", seed) for seed in options.seeds]
        search = tune(place, options.trials or place.of.asked.trials)
        tuned = [train(place, place.logs / "search/best.yaml", f"tuned-seed{seed}", seed) for seed in options.seeds]
    measure, values, baselines = judged(place, [*defaults, *tuned])
    best = (max if measure.higher_is_better else min)(baselines, key=baselines.__getitem__)
    not_below = [is_not_below(value, baselines[best], measure) for value in values]
    said = [SAID in (place.logs / f"{run}.txt").read_text() for run in [*defaults, *tuned]]
    count = len(defaults)
    return ledger.origin, {
        "measure": measure.name,
        "higher_is_better": measure.higher_is_better,
        "defaults": values[:count],
        "tuned": values[count:],
        "baselines": baselines,
        "best": best,
        "not_below": {"defaults": not_below[:count], "tuned": not_below[count:]},
        "said": {"defaults": said[:count], "tuned": said[count:]},
        "values": next(
            trial["values"] for trial in search["trials"] if Path(trial["run"]).name == search["best"]["trial"]
        ),
        "trials": len(search["trials"]),
        "seeds": options.seeds,
        "foreign_cores": ledger.foreign_cores(),
    }


def judged(place: Place, runs: list[str]) -> tuple[Measure, list[float], dict[str, float]]:
    """The measure that runs of the kind are chosen by, what each run scores, and what each baseline scores."""
    outcomes = [RunFolder.open(place.logs / run).read_outcome() for run in runs]
    tests = [outcome.test for outcome in outcomes if outcome is not None and outcome.test is not None]
    if len(tests) < len(runs) or outcomes[0] is None:
        raise SystemExit(f"a run in {place.logs} has no score on the test split; remove it and run this again")
    kind = find_kind(RunFolder.open(place.logs / runs[0]).read_plan().task.kind)
    bounds = {each.name for each in kind.baselines.methods if each.is_bound}
    scored = {name: values for name, values in outcomes[0].baselines["test"].items() if name not in bounds}
    measure = next(each for each in kind.measures if any(each.name in values for values in scored.values()))
    known = {name: values[measure.name] for name, values in scored.items() if measure.name in values}
    return measure, [float(test[measure.name]) for test in tests], known


def is_not_below(value: float, best: float, measure: Measure) -> bool:
    return value >= best - ROOM if measure.higher_is_better else value <= best * (1 + ROOM)


def prepare(place: Place) -> None:
    """Prepare its data, unless that is done."""
    if (place.dataset_root / place.dataset).exists():
        return
    source, words = place.of.source, list(place.of.words)
    if "--adjacency" in words:
        at = words.index("--adjacency") + 1
        words[at] = str(place.data / words[at])
    with tempfile.TemporaryDirectory(prefix="graphmill-defaults-") as folder:
        path = Path(folder) / f"{place.name}.npz"
        if callable(source):
            np.savez(path, **source())
        elif source:
            path = place.data / source
        given = ["--from", str(path)] if source else []
        known = [place.of.known_as, "--as", place.dataset] if place.of.known_as else [place.dataset]
        graphmill("prepare", *known, *given, *words, "--dataset-root", str(place.dataset_root))


def train(place: Place, file: Path, run: str, seed: int) -> str:
    """Train once, unless that is done, or go on where it was cut off. What it printed is kept beside it."""
    words: tuple[str, ...] = ("train", str(file), "--run-id", run, "-O", f"train.seed={seed}")
    if (place.logs / run).exists():
        outcome = RunFolder.open(place.logs / run).read_outcome()
        if outcome is not None and outcome.test is not None:
            return run
        words = ("train", "--resume", run)
    (place.logs / f"{run}.txt").write_text(graphmill(*words, *place.roots))
    return run


def tune(place: Place, trials: int) -> dict[str, Any]:
    """Search, or go on with it. Returns what `graphmill tune --json` prints."""
    search = {"name": "search", "experiment": place.experiment, "space": place.of.asked.space, "trials": trials}
    file = place.logs / "search.yaml"
    file.write_text(json.dumps(search))
    printed: dict[str, Any] = json.loads(graphmill("tune", str(file), "--json", *place.roots, only_stdout=True))
    return printed


def graphmill(*words: str, only_stdout: bool = False) -> str:
    command = [sys.executable, "-m", "graphmill.cli", *words]
    errors = None if only_stdout else subprocess.STDOUT
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=errors, text=True)
    if done.returncode:
        raise SystemExit(f"graphmill {' '.join(words)} ended with {done.returncode}\n{done.stdout}")
    return done.stdout


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"


if __name__ == "__main__":
    main()
