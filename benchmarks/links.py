"""Link prediction on real graphs: MRR and Hits@10 of recipes over seeds, beside every simple method.

    python benchmarks/links.py --data FOLDER [--sets NAME …] [--seeds 0 1 2] [--dataset-root DIR] [--logs-root DIR]

FOLDER holds cora.npz, pubmed.npz and wordnet31.npz as `graphmill prepare --from` reads them; Debian's dependencies ship
with graphmill. Cora, PubMed and WordNet are split at random (5 % validation, 10 % test links, all links between two
nodes in one split), Debian's dependencies by time. Each run is `graphmill train RECIPE -O train.seed=S`; all baselines
are scored, however long they take. A set is as it should be if the mean test MRR and Hits@10 are above those of every
baseline.
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
from harness import Ledger, print_table
from loader_tables import best_baseline
from origin import Origin

JUDGED = ("mrr", "hits_at_10")


@dataclass(frozen=True, slots=True)
class LinkSet:
    """Where links come from, and the recipe that learns them."""

    recipe: str
    file: str = ""  # in FOLDER; "": ships with graphmill
    overrides: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()  # of the recipe, what baselines depend on


SETS = {
    "debian-dependencies": LinkSet("debian-dependencies-sage", reads=("dataset.undirected=false",)),
    "wordnet31-links": LinkSet("wordnet-links-sage", "wordnet31.npz", reads=("dataset.undirected=true",)),
    "cora-links": LinkSet("citation-links-sage", "cora.npz"),
    "pubmed-links": LinkSet(
        "citation-links-sage",
        "pubmed.npz",
        ("dataset.name=pubmed-links", "train.epochs=10"),  # about as many steps as Cora's 60 epochs
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--dataset-root", type=Path, default=Path("data"))
    parser.add_argument("--logs-root", type=Path, default=Path("logs"))
    options = parser.parse_args()
    Origin.now()  # fails early where it cannot be said what is measured
    entries = {}
    for name in options.sets:
        entries[name] = measured(name, SETS[name], options)
        write_entries("links", {name: entries[name]})  # what is done stays if the next one is cut off
    rows = [
        [name, measure, spread(found["test"][measure]), best, f"{score:.4f}"]
        for name, (_, found) in entries.items()
        for measure in JUDGED
        for best, score in [best_baseline(found, measure)]
    ]
    print_table("test links, best-val checkpoint", ["data", "measure", "mean ± sd", "best baseline", "its score"], rows)
    lost = [row[0] for row, passed in zip(rows, verdicts(entries), strict=True) if not passed]
    if lost:
        sys.exit(f"not above every baseline: {', '.join(sorted(set(lost)))}")


def measured(name: str, of: LinkSet, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Origin of the runs, what each scored, and what the baselines scored."""
    root = ("--dataset-root", str(options.dataset_root))
    if of.file:
        given = ("--from", str(options.data / of.file), "--task", "link_prediction", "-o", "random_split=true")
        graphmill("prepare", name, *given, "--force", *root)
    words = [word for text in of.reads for word in ("-O", text)]
    graphmill("baseline", name, "--all", *words, *root, "--logs-root", str(options.logs_root))
    with Ledger(options.logs_root / f"links-{name}") as ledger:
        outcomes = [train(name, of, seed, options, root) for seed in options.seeds]
    return ledger.origin, {
        "test": {measure: [float(outcome.test[measure]) for outcome in outcomes] for measure in JUDGED},
        "baselines": {each: dict(found) for each, found in outcomes[0].baselines["test"].items()},
        "seeds": options.seeds,
        "wall_s": [outcome.wall_s for outcome in outcomes],
        "foreign_cores": ledger.foreign_cores(),
    }


def train(name: str, of: LinkSet, seed: int, options: argparse.Namespace, root: tuple[str, ...]) -> Any:
    """The outcome of one run."""
    run = f"links-{name}/seed{seed}"
    folder = options.logs_root / run
    if not (folder / "outcome.json").exists():
        words = [word for text in (f"train.seed={seed}", *of.overrides) for word in ("-O", text)]
        graphmill("train", of.recipe, "--run-id", run, *words, *root, "--logs-root", str(options.logs_root))
    outcome = RunFolder.open(folder).read_outcome()
    if outcome is None or outcome.test is None:
        raise SystemExit(f"{folder} did not finish; remove it and run this again")
    return outcome


def graphmill(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "graphmill.cli", *words], check=True)


def verdicts(entries: dict[str, Any]) -> list[bool]:
    """Of each set and measure: whether the mean is above every baseline's."""
    return [
        statistics.mean(found["test"][measure]) > best_baseline(found, measure)[1]
        for _, found in entries.values()
        for measure in JUDGED
    ]


def spread(values: list[float]) -> str:
    sd = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f}{sd}"


if __name__ == "__main__":
    main()
