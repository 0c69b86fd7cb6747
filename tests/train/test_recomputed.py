"""What a run reports is what scikit-learn, and a script without a library, make of the file that `predict` writes."""

import csv
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from graphmill.graph.features import dense
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment
from graphmill.train.evaluate import Judged, measured, open_run
from graphmill.train.predict import predict

NUM_NODES = 90
SEEDS = (1, 2)
LABELS = {  # of training, validation and test nodes
    "gaps in the numbers": ([0, 10, 20, 30], [0, 10, 20, 30], [0, 10, 20, 30]),
    "classes absent from splits": ([0, 1, 2, 3, 4], [0, 1], [1, 2, 5]),
    "one class": ([0], [0], [0]),
    "1000 classes": ([*range(0, 1000, 37), 999], [*range(0, 1000, 41)], [*range(0, 1000, 43)]),
}


@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[1:])])
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_measures_can_be_recomputed_from_the_predictions(tmp_path: Path, labels, seed):
    run = judged(tmp_path, labels, seed)
    for split in ("val", "test"):
        reported = measured(run, split, RunFolder(tmp_path / run.plan.run_id))
        predict(run, split, tmp_path / f"{split}.csv", embeddings=False)
        with (tmp_path / f"{split}.csv").open(newline="") as file:
            rows = [(int(row["label"]), int(row["prediction"])) for row in csv.DictReader(file)]
        truth, guesses = zip(*rows, strict=True)
        assert reported["num_seeds"] == len(rows) == NUM_NODES // 3
        assert reported["micro_f1"] == accuracy_score(truth, guesses)
        assert reported["macro_f1"] == f1_score(truth, guesses, average="macro", zero_division=0)
        assert f"{reported['macro_f1']:.4f}" == f"{plain_macro_f1(rows):.4f}"
        majority = min(
            labels[0], key=lambda label: (-np.resize(labels[0], NUM_NODES // 3).tolist().count(label), label)
        )
        assert reported["majority_micro_f1"] == accuracy_score(truth, [majority] * len(rows))


def judged(folder: Path, labels: tuple[list[int], ...], seed: int) -> Judged:
    """A model that learnt nothing: its guesses are spread over the classes by chance."""
    plan = planned(written(folder, labels, seed), f"seed-{seed}", seed)
    return Judged(plan, build_task(plan, Group(0, 1, torch.device("cpu"))), "last", 0)


def written(folder: Path, labels: tuple[list[int], ...], seed: int) -> Path:
    """Where the prepared graph lies."""
    draw = np.random.default_rng(seed)
    raw = LabelledGraph(
        edge_index=draw.integers(0, NUM_NODES, (2, 200)),
        features=dense(draw.normal(size=(NUM_NODES, 5)).astype(np.float32)),
        labels=np.concatenate([np.resize(of_split, NUM_NODES // 3) for of_split in labels]),
        split=np.repeat([0, 1, 2], NUM_NODES // 3).astype(np.int8),
        class_names=tuple(map(str, range(max(map(max, labels)) + 1))),
        name="made",
        source="a test",
        synthetic=True,
    )
    return write_store(raw, folder / "store").path


def planned(store: Path, run_id: str, seed: int, epochs: int = 1) -> Plan:
    train = {"seed": seed, "threads": 1, "device": "cpu", "epochs": epochs, "batch_size": 10}
    asked = {"dataset": {"name": str(store)}, "train": train}
    experiment = NodeClassificationExperiment.model_validate(asked)
    return plan_experiment(experiment, dataset_root=store.parent, run_id=run_id)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, str]:
    """For each case two runs of other rng seeds, `logs/<number of the case>-<seed>`, and what they printed."""
    folder = tmp_path_factory.mktemp("trained")
    runs = []
    for number, labels in enumerate(LABELS.values()):
        store = written(folder / str(number), labels, 0)
        for seed in SEEDS:
            plan = planned(store, f"{number}-{seed}", seed, epochs=3)
            runs.append(RunFolder.create(plan, folder / "logs"))
            runs[-1].begin_attempt(resumed=False, command=["test"])
    program = (
        "import sys; from graphmill.train.worker import main; sys.exit(any([main([each]) for each in sys.argv[1:]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *(str(run.path) for run in runs)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "logs", done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(LABELS)), ids=LABELS)
def test_every_digit_that_is_printed_of_two_runs_can_be_recomputed(trained, graphmill, tmp_path, number):
    logs, printed = trained
    scores: dict[str, list[float]] = {"val": [], "test": []}
    for seed in SEEDS:
        run = RunFolder(logs / f"{number}-{seed}")
        by_hand = {}
        for split in ("val", "test"):
            rows = predicted(run, split, tmp_path)
            truth, guesses = zip(*rows, strict=True)
            micro = accuracy_score(truth, guesses)
            macro = f1_score(truth, guesses, average="macro", zero_division=0)
            assert (f"{plain_micro_f1(rows):.4f}", f"{plain_macro_f1(rows):.4f}") == (f"{micro:.4f}", f"{macro:.4f}")
            scores[split].append(micro)
            by_hand[split] = (micro, macro)
        outcome = run.read_outcome()
        assert (outcome.test["micro_f1"], outcome.test["macro_f1"]) == by_hand["test"]
        assert outcome.best["micro_f1"] == by_hand["val"][0]
        assert "test micro-F1 {:.4f}  macro-F1 {:.4f}".format(*by_hand["test"]) in printed
        assert graphmill("report", run.path, "--markdown", "-o", "report.md").code == 0
        report = (tmp_path / "report.md").read_text()
        for place, words in enumerate(("micro-F1", "macro-F1")):
            assert f"| {words} | higher | {by_hand['val'][place]:.4f} | {by_hand['test'][place]:.4f} |" in report
    shown = graphmill("compare", *(logs / f"{number}-{seed}" for seed in SEEDS)).out
    for split in ("val", "test"):
        assert f"{fmean(scores[split]):.4f} ± {stdev(scores[split]):.4f}" in shown, shown


def predicted(run: RunFolder, split: str, folder: Path) -> list[tuple[int, int]]:
    """Label and prediction of every node, from the file that `predict` writes."""
    predict(open_run(run, "best"), split, folder / f"{run.path.name}-{split}.csv", embeddings=False)
    with (folder / f"{run.path.name}-{split}.csv").open(newline="") as file:
        return [(int(row["label"]), int(row["prediction"])) for row in csv.DictReader(file)]


def plain_micro_f1(rows: list[tuple[int, int]]) -> float:
    return sum(truth == guess for truth, guess in rows) / len(rows)


def plain_macro_f1(rows: list[tuple[int, int]]) -> float:
    """By the definition: classes that occur or are predicted."""
    scores = []
    for each in {label for row in rows for label in row}:
        right = sum(truth == guess == each for truth, guess in rows)
        scores.append(2 * right / sum((truth == each) + (guess == each) for truth, guess in rows))
    return sum(scores) / len(scores)
