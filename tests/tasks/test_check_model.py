"""A user-defined model that does not fit ends in one sentence, before there is a run folder."""

import sys
from types import SimpleNamespace

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.launch.check_model import refuse_unfit_model
from graphmill.tasks.build import task_class
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.stores import Preparation, prepare_store
from graphmill.tasks.traffic.page import KIND as TRAFFIC
from graphmill.tasks.traffic.page import TrafficExperiment, TrafficPrepareOptions

MODELS = """
import torch
from torch import nn


class Good(nn.Module):
    dtype = torch.float32

    def __init__(self, in_channels, out_channels, hops=2, width=None, lazy=False, returns="tensor"):
        super().__init__()
        width = width or out_channels
        self.linear = nn.LazyLinear(width) if lazy else nn.Linear(in_channels, width, dtype=self.dtype)
        self.hops, self.returns = hops, returns

    def forward(self, x, edge_index):
        for _ in range(self.hops):
            x = x.index_add(0, edge_index[1], x[edge_index[0]])
        out = self.linear(x)
        return {"tensor": out, "tuple": (out, out), "none": None, "nan": out / 0 * 0, "whole": out.argmax(1, True)
                .expand_as(out), "constant": torch.ones_like(out)}[self.returns]


class Float64(Good):
    dtype = torch.float64


class OneArgument(Good):
    def forward(self, x):
        return self.linear(x)


class NoParameters(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()

    def forward(self, x, edge_index):
        return x


class Forecaster(nn.Module):
    def __init__(self, in_channels, out_channels, horizon=3):
        super().__init__()
        self.linear = nn.Linear(in_channels, horizon)

    def forward(self, x, edge_index, edge_weight):
        return self.linear(x[:, -1]).transpose(1, 2)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=folder, save_as="sbm", options={"num_nodes": 200, "num_edges": 900, "features": 6})
    readings = TrafficPrepareOptions(num_sensors=5, num_steps=600)
    prepare_store(TRAFFIC, Preparation("synthetic/traffic", folder, readings))
    (folder / "ownmodels.py").write_text(MODELS)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("ownmodels", None)


def check(experiment, root) -> None:
    plan = plan_experiment(experiment, dataset_root=root, run_id="run")
    task_class(plan).check_model(plan, plan.task)


def nodes(target: str, **options) -> NodeClassificationExperiment:
    return NodeClassificationExperiment.model_validate(
        {
            "dataset": {"name": "sbm"},
            "model": {"kind": "custom", "target": target, "options": options},
            "train": {"epochs": 1, "batch_size": 50, "num_neighbors": [3, 3]},
        }
    )


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("Good", {"returns": "tuple"}, "makes a tuple, not a tensor"),
        ("Good", {"returns": "none"}, r"makes nothing \(None\)"),
        ("Good", {"returns": "nan"}, "values that are not finite"),
        ("Good", {"returns": "whole"}, "makes whole numbers"),
        ("Good", {"returns": "constant"}, "depend on no parameter"),
        ("Good", {"width": 3}, r"makes \[4, 3\] of a batch of x \[4, 6\], edge_index \[2, 3\]\n.*return \[4, "),
        ("Good", {"lazy": True}, "leaves the shape of linear.* open"),
        (
            "Good",
            {"in_channels": 4},
            r"in_channels is 4, but the inputs of a batch have 6 channels\n.*remove in_channels",
        ),
        ("Good", {"hops": 3}, r"more than 2 hops away.*\n.*as many fan-outs as the model has layers"),
        ("Float64", {}, "linear.weight is torch.float64"),
        ("OneArgument", {}, r"TypeError: .*\n.*forward take \(x, edge_index\)"),
        ("NoParameters", {}, "no parameter to train"),
    ],
)
def test_a_model_that_does_not_fit_is_one_sentence(root, model, options, message):
    with pytest.raises(UserError, match=message):
        check(nodes(f"ownmodels.{model}", **options), root)


@pytest.mark.parametrize("hops", [0, 1, 2])
def test_a_model_that_fits_passes(root, hops):
    check(nodes("ownmodels.Good", hops=hops), root)


@pytest.mark.parametrize(("horizon", "fits"), [(3, True), (4, False)])
def test_a_forecaster_is_tried_on_windows(root, horizon, fits):
    experiment = TrafficExperiment.model_validate(
        {
            "dataset": {"name": "synthetic/traffic", "history": 4, "horizon": 3},
            "model": {"kind": "custom", "target": "ownmodels.Forecaster", "options": {"horizon": horizon}},
            "train": {"epochs": 1, "batch_size": 8},
        }
    )
    if fits:
        check(experiment, root)
        return
    with pytest.raises(UserError, match=r"makes \[2, 4, 5\] of .*\n.*return \[2, 3, 5\] or \[2, 3, 5, 1\]"):
        check(experiment, root)


@pytest.mark.slow
def test_nothing_is_made_for_a_model_that_does_not_fit(root, tmp_path, monkeypatch):
    from graphmill.cluster.launch.run import start_run

    monkeypatch.setenv("PYTHONPATH", str(root))
    plan = plan_experiment(nodes("ownmodels.Good", returns="tuple"), dataset_root=root, run_id="run")
    never = SimpleNamespace(__iter__=None)  # no rank is started
    with pytest.raises(UserError, match="makes a tuple"):
        start_run(plan, logs_root=tmp_path / "logs", program=never)
    assert not (tmp_path / "logs").exists()


@pytest.mark.slow
def test_plans_are_tried_together_and_those_that_differ_in_the_rng_seed_once(root, tmp_path, monkeypatch, capfd):
    from graphmill.cluster.launch.check_model import unfit_models, unfit_problems

    (root / "countedmodels.py").write_text(
        "import sys\nfrom ownmodels import Good\n\n\nclass Counted(Good):\n    def __init__(self, **given):\n"
        "        super().__init__(**given)\n        print('made', file=sys.stderr)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(root))

    def plan(name, seed, **options):
        experiment = nodes(name, **options)
        train = experiment.train.model_copy(update={"seed": seed})
        return plan_experiment(experiment.model_copy(update={"train": train}), dataset_root=root, run_id=f"run-{seed}")

    plans = [plan("countedmodels.Counted", seed) for seed in range(3)]
    plans += [plan("ownmodels.Good", 0, returns="tuple"), plan("ownmodels.Good", 1, returns="tuple")]
    found = unfit_models(plans)
    assert [problem is None for problem in found] == [True, True, True, False, False]
    assert capfd.readouterr().err.splitlines().count("made") == 1
    problems = list(unfit_problems(["a", "b", "c", "d", "e"], plans))
    assert [problem.where for problem in problems] == ["d"]
    assert "makes a tuple" in problems[0].what


def test_a_study_tries_all_models_before_it_runs_one(root, tmp_path, monkeypatch):
    from graphmill.cluster.launch.study import run_study
    from graphmill.spec.study import Study

    monkeypatch.setenv("PYTHONPATH", str(root))
    study = Study.model_validate(
        {
            "name": "three",
            "experiment": nodes("ownmodels.Good").model_dump(mode="json", exclude_unset=True),
            "vary": {"model.options": [{}, {"width": 7}, {"returns": "tuple"}]},
        }
    )

    def planner(experiment, run_id):
        return plan_experiment(experiment, dataset_root=root, run_id=run_id)

    never = SimpleNamespace(__iter__=None)  # no rank is started
    with pytest.raises(UserError, match="2 problems in study three") as raised:
        run_study(study, logs_root=tmp_path / "logs", planner=planner, program=never)
    assert "makes a tuple" in raised.value.message
    assert not (tmp_path / "logs").exists()


def test_what_pygs_code_goes_on_computing_is_said_when_a_run_is_planned(root, capfd):
    pytest.importorskip("torch_geometric")
    experiment = nodes("torch_geometric.nn.GraphSAGE", hidden_channels=4, num_layers=2, aggr="max")
    model = experiment.model.model_copy(update={"fused": True})
    plan = plan_experiment(experiment.model_copy(update={"model": model}), dataset_root=root, run_id="run")
    refuse_unfit_model(plan)
    assert "model.fused: PyG's own code computes convs.0 (SAGEConv with aggr=max)" in capfd.readouterr().err
