"""Accuracy on ENZYMES and PROTEINS over ten stratified folds, each the test set once, beside published figures.

    python benchmarks/tu.py --tu FOLDER [--studies NAME …] [--logs-root DIR]

FOLDER holds ENZYMES.zip and PROTEINS.zip as TUDataset has them. Each study is `graphmill study run study-NAME`; of a
fold the next one chooses the epoch, and the test fold is read once. Runs that are there are not made again. The
published figures are means over ten folds too, of other divisions into folds and of searches over settings, which
were not made here: within one standard deviation of theirs is what can be asked. They were written down without the
papers at hand, but for GIN on ENZYMES: check them before you cite them.
"""

import argparse
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entries import write_entries
from graphmill.record.run_folder import RunFolder
from graphmill.spec.study import expand, load_study
from harness import Ledger, print_table


@dataclass(frozen=True, slots=True)
class Published:
    """Accuracy over ten folds, mean and standard deviation."""

    mean: float
    sd: float
    by: str


ERRICA = "Errica et al. 2020, arXiv 1912.09893"
DWIVEDI = "Dwivedi et al. 2020, arXiv 2003.00982v3"
STUDIES = {
    "enzymes-gin": Published(0.596, 0.045, ERRICA),
    "enzymes-gat": Published(0.685, 0.052, DWIVEDI),
    "proteins-gin": Published(0.733, 0.040, ERRICA),
    "proteins-gat": Published(0.763, 0.024, f"{DWIVEDI}, of PROTEINS_full, whose nodes have 29 attributes more"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tu", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--studies", nargs="+", default=list(STUDIES), choices=list(STUDIES), metavar="NAME")
    parser.add_argument("--dataset-root", type=Path, default=Path("data"))
    parser.add_argument("--logs-root", type=Path, default=Path("logs"))
    options = parser.parse_args()
    entries = {name: measured(name, options) for name in options.studies}
    write_entries("tu", entries)
    rows = [
        [
            name,
            f"{found['mean']:.3f} ± {found['sd']:.3f}",
            f"{found['published']['mean']:.3f}",
            found["published"]["by"],
        ]
        for name, (_, found) in entries.items()
    ]
    print_table("test accuracy over ten folds", ["study", "mean ± sd", "published", "by"], rows)


def measured(name: str, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Origin of the runs, and the accuracy of every fold."""
    source = name.partition("-")[0]
    dataset = f"tu/{source}"
    if not (options.dataset_root / dataset).exists():
        archive = options.tu / f"{source.upper()}.zip"
        graphmill("prepare", dataset, "--from", str(archive), "--dataset-root", str(options.dataset_root))
    study = load_study(f"study-{name}")
    with Ledger(options.logs_root / study.name) as ledger:
        roots = ("--dataset-root", str(options.dataset_root), "--logs-root", str(options.logs_root))
        graphmill("study", "run", f"study-{name}", *roots)
    outcomes = [RunFolder.open(options.logs_root / study.name / cell.name).read_outcome() for cell in expand(study)]
    accuracies = [outcome.test["accuracy"] for outcome in outcomes if outcome is not None and outcome.test is not None]
    if len(accuracies) < len(outcomes):
        raise SystemExit(f"{len(outcomes) - len(accuracies)} folds of {name} did not finish; run this again")
    published = STUDIES[name]
    found = {
        "folds": accuracies,
        "mean": statistics.mean(accuracies),
        "sd": statistics.stdev(accuracies),
        "published": {"mean": published.mean, "sd": published.sd, "by": published.by},
        "foreign_cores": ledger.foreign_cores(),
    }
    return ledger.origin, found


def graphmill(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "graphmill.cli", *words], check=True)


if __name__ == "__main__":
    main()
