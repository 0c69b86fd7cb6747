"""Nodes with several labels each: two ranks train the same weights whole, in parts, served, presampled and resumed."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import Tally, assert_same, run_with_kills

from graphmill.graph.features import dense
from graphmill.record.events import Sync, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.tasks.node_classification.access import epochs_of
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment
from graphmill.train.evaluate import evaluate

pytestmark = pytest.mark.distributed

WAYS: dict[str, dict[str, Any]] = {
    "replicated": {"topology": "replicated", "cache": {"policy": "vip", "ratio": 0.05}},
    "partitioned": {"topology": "partitioned", "cache": {"policy": "none"}},
}
AREA = {"target": "graphmill.tasks.multilabel.roc_auc", "higher_is_better": True}


@pytest.fixture(scope="module")
def several(data_root: Path) -> str:
    """A graph of which each node has some of five labels; some nodes are in no split, and have none."""
    rng = np.random.default_rng(0)
    split = rng.permutation(np.repeat([0, 1, 2, -1], [140, 60, 60, 40])).astype(np.int8)
    labels = rng.integers(0, 2, (300, 5)).astype(np.int8)
    raw = LabelledGraph(
        edge_index=rng.integers(0, 300, (2, 1500)),
        features=dense((rng.normal(size=(300, 6)) + labels @ rng.normal(size=(5, 6))).astype(np.float32)),
        labels=np.where(split[:, None] == -1, -1, labels).astype(np.int8),
        split=split,
        name="several",
        source="a test",
        synthetic=True,
    )
    write_store(raw, data_root / "several")
    return "several"


@pytest.fixture
def planned_several(several, data_root, cut_into):
    """Two ranks, or two trainers with as many samplers; 7 steps of each an epoch. `way`: "": the graph is whole."""

    def plan(way: str = "", *, samplers: int = 0) -> Plan:
        train = {"epochs": 3, "batch_size": 10, "num_neighbors": [3, 3], "threads": 1, "device": "cpu", "prefetch": 3}
        train["baselines"] = False
        raw: dict[str, Any] = {
            "dataset": {"name": cut_into(several, 2) if way else several},
            "model": {"kind": "graphsage", "hidden_channels": 8},
            "train": {
                **train,
                "loss": {"kind": "cross_entropy", "class_weights": "balanced"},
                "measures": {"roc_auc": AREA},
                "sync": {"scheme": "local_sgd", "every": 2},
                "checkpoint": {"every_steps": 2},
            },
        }
        if way:
            raw["partition"] = {"placement": "per_rank", "seeds": "equal", **WAYS[way]}
        if samplers:
            raw["roles"] = {"samplers": samplers, "trainers": 2}
        else:
            raw["train"]["ranks"] = 2
        return plan_experiment(NodeClassificationExperiment.model_validate(raw), dataset_root=data_root, run_id="run")

    return plan


@pytest.fixture
def trained(zygote, tmp_path):
    def train(plan: Plan, name: str) -> RunFolder:
        folder = RunFolder.create(plan, tmp_path / name)
        assert set(zygote.wait(zygote.start(folder, resume=False))) == {0}, zygote.said(folder)
        return folder

    return train


def hashes(folder: RunFolder) -> list[str]:
    """Of the parameters after every sync."""
    return [event.parameter_hash for event in events_in(folder.events_path(0), Sync)]


def presampled(plan: Plan, path: Path) -> Plan:
    """The same, over epochs that are sampled into a folder."""
    source = epochs_of(plan)
    (folder := source.folder(path)).begin()
    for epoch in range(plan.calendar.num_epochs):
        folder.write(epoch, source.schedule, source.sampler(), lambda steps, num_bytes: None)
    return plan.model_copy(update={"task": plan.task.reading_presampled(str(path))})


@pytest.mark.parametrize(
    "names",
    [
        ("partitioned", "served in parts", "presampled"),
        pytest.param(("replicated", "served"), marks=pytest.mark.slow),
    ],
    ids=" and ".join,
)
def test_weights_and_scores_are_the_same_wherever_batches_come_from(trained, planned_several, tmp_path, names):
    whole = trained(planned_several(), "whole")
    assert len(hashes(whole)) == 12
    plans = {way: planned_several(way) for way in WAYS}
    plans["served"] = planned_several(samplers=2)
    plans["served in parts"] = planned_several("partitioned", samplers=2)
    plans["presampled"] = presampled(planned_several(), tmp_path / "epochs")
    expected = whole.read_outcome().test
    for name in names:
        folder = trained(plans[name], name.replace(" ", "-"))
        assert hashes(folder) == hashes(whole), name
        found = folder.read_outcome().test
        assert (found["micro_f1"], found["macro_f1"]) == (expected["micro_f1"], expected["macro_f1"]), name
        assert found["loss"] == pytest.approx(expected["loss"], abs=1e-6), name
        assert found["roc_auc"] == pytest.approx(expected["roc_auc"], abs=1e-3), name  # a sum in another order: ties


def test_one_process_scores_what_two_ranks_trained(trained, planned_several):
    folder = trained(planned_several(), "whole")
    outcome, found = folder.read_outcome(), evaluate(folder, split="test", which="best")
    assert {name: found[name] for name in ("micro_f1", "macro_f1", "num_seeds")} == {
        name: outcome.test[name] for name in ("micro_f1", "macro_f1", "num_seeds")
    }
    assert outcome.baselines["test"]["majority"]["micro_f1"] == found["majority_micro_f1"]


@pytest.mark.slow
def test_killed_and_resumed(zygote, trained, planned_several, tmp_path):
    reference = trained(planned_several("partitioned"), "reference")
    folder, tally = RunFolder.create(planned_several("partitioned"), tmp_path / "killed"), Tally()
    wall_s = reference.read_outcome().wall_s
    run_with_kills(zygote, folder, random.Random(0), tally, num_kills=1, most_s=wall_s / 2)
    assert tally.kills == 1
    assert_same(folder, reference)
