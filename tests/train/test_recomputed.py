"""What a run reports is what scikit-learn, and a script without a library, make of the file that `predict` writes."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from graphmill.graph.features import dense
from graphmill.spec.kinds.node_classification import NodeClassificationExperiment
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.labelled import LabelledGraph
from graphmill.tasks.node_classification.store import write_store
from graphmill.tasks.planning import plan_experiment
from graphmill.train.evaluate import Judged, measured
from graphmill.train.predict import predict

NUM_NODES = 90
LABELS = {  # of training, validation and test nodes
    "gaps in the numbers": ([0, 10, 20, 30], [0, 10, 20, 30], [0, 10, 20, 30]),
    "classes absent from splits": ([0, 1, 2, 3, 4], [0, 1], [1, 2, 5]),
    "one class": ([0], [0], [0]),
    "1000 classes": ([*range(0, 1000, 37), 999], [*range(0, 1000, 41)], [*range(0, 1000, 43)]),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_measures_can_be_recomputed_from_the_predictions(tmp_path: Path, labels, seed):
    run = judged(tmp_path, labels, seed)
    for split in ("val", "test"):
        reported = measured(run, split)
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
    store = write_store(raw, folder / "store")
    asked = {"dataset": {"name": str(store.path)}, "train": {"seed": seed, "threads": 1, "device": "cpu", "epochs": 1}}
    plan = plan_experiment(
        NodeClassificationExperiment.model_validate(asked), dataset_root=folder, run_id=f"seed-{seed}"
    )
    return Judged(plan, build_task(plan, Group(0, 1, torch.device("cpu"))), "last", 0)


def plain_macro_f1(rows: list[tuple[int, int]]) -> float:
    """By the definition: classes that occur or are predicted."""
    scores = []
    for each in {label for row in rows for label in row}:
        right = sum(truth == guess == each for truth, guess in rows)
        scores.append(2 * right / sum((truth == each) + (guess == each) for truth, guess in rows))
    return sum(scores) / len(scores)
