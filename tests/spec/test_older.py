"""Plans that earlier versions wrote are read, and their hash stays that of the file."""

import json
from pathlib import Path

import pytest

from graphmill.record.manifest import hash_text
from graphmill.record.run_folder import RunFolder
from graphmill.spec.classification import CrossEntropySpec
from graphmill.spec.older import upgrade_plan
from graphmill.spec.optimizer import AdamSpec, ConstantSchedule, MultistepSchedule
from graphmill.tasks.node_classification.page import NodeClassificationPlan

FIRST = {  # as commit a258eaa wrote it
    "name": "cora-sage", "run_id": "old",
    "task": {
        "kind": "node_classification",
        "dataset": {
            "name": "planetoid/cora", "path": "/data/cora", "checksum": "0", "synthetic": False, "num_train": 140,
            "num_nodes": 2708, "num_edges": 5278, "num_features": 1433, "num_classes": 7, "has_sparse_features": True,
        },
        "undirected": True, "features": "row_normalised", "num_neighbors": [25, 10],
        "model": {"kind": "graphsage", "hidden_channels": 64, "num_layers": 2, "dropout": 0.5, "input_dropout": 0.5},
    },
    "hosts": 1, "ranks": 2, "epochs": 6, "steps_per_epoch": 5, "steps_per_rank": 28, "batch_size": 16, "lr": 0.02,
    "lr_schedule": "constant", "lr_milestones": [], "lr_gamma": 0.1, "weight_decay": 0.0005, "adam_eps": 1e-6,
    "max_grad_norm": None, "seed": 1234, "precision": "fp32", "device": "cpu", "backend": "gloo", "threads": 1,
    "prefetch": 2, "sync": {"scheme": "local_sgd", "every": 3, "payload": "fp32", "average_optimizer_state": False,
                            "warmup_steps": 0},
    "checkpoint": {"every_epochs": 1, "every_steps": 0, "keep_every_epochs": 0}, "evaluate_every_epochs": 1,
    "hang_timeout_s": 45.0,
}  # fmt: skip


def test_the_first_plans_are_read(tmp_path: Path):
    text = json.dumps(FIRST, indent=2) + "\n"
    (tmp_path / "plan.json").write_text(text)
    folder = RunFolder.open(tmp_path)
    plan = folder.read_plan()
    assert (plan.calendar.num_epochs, plan.calendar.steps_in(0), plan.calendar.steps_in(5)) == (6, 5, 3)
    assert plan.calendar.last_step == 28
    assert plan.optimizer == AdamSpec(lr=0.02, weight_decay=0.0005, eps=1e-6, schedule=ConstantSchedule())
    assert folder.plan_hash() == hash_text(text)


def test_a_schedule_in_steps_keeps_its_milestones():
    upgraded = upgrade_plan({**FIRST, "lr_schedule": "multistep", "lr_milestones": [2, 4], "lr_gamma": 0.5})
    read = AdamSpec.model_validate(upgraded["optimizer"]).schedule
    assert read == MultistepSchedule(kind="multistep", milestones=(2, 4), gamma=0.5)


def test_a_loss_without_a_kind_is_cross_entropy():
    weighted = {"class_weights": "balanced", "label_smoothing": 0.1}
    upgraded = upgrade_plan({**FIRST, "task": {**FIRST["task"], "loss": weighted}})
    assert NodeClassificationPlan.model_validate(upgraded["task"]).loss == CrossEntropySpec(**weighted)
    forecast = {"task": {"kind": "traffic", "loss": {"kind": "huber", "delta": 2.0}}}
    assert upgrade_plan(forecast) == forecast


@pytest.mark.parametrize("document", [{}, {"epochs": 3}, upgrade_plan(FIRST)])
def test_what_is_no_older_plan_is_left_as_it_is(document):
    assert upgrade_plan(document) == document
