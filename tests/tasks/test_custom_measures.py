"""Measures of the user's own: the same for any number of ranks, and equal to what a plain script finds."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import matthews_corrcoef

from graphmill.base.errors import UserError
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task, task_class
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.stores import Preparation, prepare_store
from graphmill.tasks.traffic.page import KIND as TRAFFIC
from graphmill.tasks.traffic.page import TrafficExperiment, TrafficPrepareOptions

ALONE = Group(0, 1, torch.device("cpu"))


def of(name: str, target: str, **spec) -> dict:
    return {name: {"target": f"strange_losses.{target}", "higher_is_better": True, **spec}}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=folder, save_as="sbm", options={"num_nodes": 200, "num_edges": 900, "features": 6})
    readings = TrafficPrepareOptions(num_sensors=5, num_steps=600, missing_share=0.2)
    prepare_store(TRAFFIC, Preparation("synthetic/traffic", folder, readings))
    programs = str(Path(__file__).parents[1] / "integration" / "programs")
    sys.path.insert(0, programs)
    yield folder
    sys.path.remove(programs)
    sys.modules.pop("strange_losses", None)


def nodes(root, measures, **train):
    experiment = NodeClassificationExperiment.model_validate(
        {
            "dataset": {"name": "sbm"},
            "model": {"kind": "graphsage", "hidden_channels": 8, "num_layers": 2},
            "train": {"epochs": 1, "num_neighbors": [3, 3], "measures": measures, **train},
        }
    )
    return plan_experiment(experiment, dataset_root=root, run_id="run")


def windows(root, measures):
    experiment = TrafficExperiment.model_validate(
        {
            "dataset": {"name": "synthetic/traffic", "history": 4, "horizon": 3},
            "model": {"kind": "dcrnn", "rnn_units": 4, "num_layers": 1},
            "train": {"epochs": 1, "measures": measures},
        }
    )
    return plan_experiment(experiment, dataset_root=root, run_id="run")


def check(plan):
    task_class(plan).check_model(plan, plan.task)


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_measure_of_a_split_is_that_of_its_predictions(root, split):
    task = build_task(nodes(root, of("mcc", "mcc")), ALONE)
    found = task.evaluate(split).values["mcc"]
    values = task.predict([split], embeddings=False).values
    assert found == matthews_corrcoef(values["label"], values["prediction"])


def test_a_measure_of_forecasts_is_that_of_its_predictions(root):
    task = build_task(windows(root, of("mse", "squared")), ALONE)
    found, predicted = task.evaluate("val").values, task.predict(["val"], embeddings=False).values
    errors = np.square(predicted["forecast"].astype(np.float64) - predicted["reading"])
    assert found["mse"] == pytest.approx(errors.mean(), rel=1e-6)
    assert math.sqrt(found["mse"]) == pytest.approx(found["rmse"], rel=1e-6)


def test_a_measure_that_is_no_number_is_left_out_and_said(root, caplog):
    task = build_task(nodes(root, of("odd", "undefined")), ALONE)
    assert "odd" not in task.evaluate("val").values
    assert "odd is nan on the val split" in caplog.text


@pytest.mark.parametrize(
    ("measures", "message"),
    [
        (of("m", "focal"), r"strange_losses\.focal makes a tensor \[20\] of outputs \[20, 10\].*\n.*one number"),
        (of("m", "squared"), r"strange_losses\.squared cannot be called with .*RuntimeError"),
        (of("m", "nowhere"), "strange_losses has no 'nowhere'"),
        (of("m", "mcc", options={"beta": 2}), "TypeError: .*beta"),
    ],
)
def test_a_measure_that_does_not_fit_is_one_sentence(root, measures, message):
    with pytest.raises(UserError, match=message):
        check(nodes(root, measures))


def test_a_measure_of_forecasts_must_add_up(root):
    check(windows(root, of("mse", "squared")))
    with pytest.raises(UserError, match=r"makes a tensor \[\] of outputs \[2, 3, 5\].*\n.*\(total, weight\)"):
        check(windows(root, of("most", "largest")))
