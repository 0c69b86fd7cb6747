"""Node regression as the loop sees it: standardised by training nodes, judged in the data's units, beside baselines."""

import numpy as np
import polars
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error, r2_score
from torch import nn

import graphmill as package
from graphmill.base.errors import UserError
from graphmill.graph.features import dense
from graphmill.nn.weights import Weights
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import Origin
from graphmill.sync.group import Group
from graphmill.tasks.baselines import score_baselines
from graphmill.tasks.build import build_task
from graphmill.tasks.node_regression.data.store import ValuesStore, write_values
from graphmill.tasks.node_regression.data.values import ValuedGraph
from graphmill.tasks.node_regression.page import NodeRegressionExperiment
from graphmill.tasks.node_regression.task import NodeRegression
from graphmill.tasks.planning import plan_experiment
from graphmill.train.evaluate import evaluate
from graphmill.train.predict import main as predict

ALONE = Group(0, 1, torch.device("cpu"))
NUM_NODES = 500


def made_graph(*, holes: bool = True) -> ValuedGraph:
    """Two values far from 0, by a node's features and those of its neighbours; some are not known."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_NODES, 5)).astype(np.float32)
    edges = rng.integers(0, NUM_NODES, (2, 2000))
    edges = np.concatenate([edges, edges[::-1]], axis=1)
    total = np.zeros_like(x)
    np.add.at(total, edges[1], x[edges[0]])
    mean = total / np.bincount(edges[1], minlength=NUM_NODES).clip(min=1)[:, None]
    y = x @ rng.normal(size=(5, 2)) + 3 * mean @ rng.normal(size=(5, 2)) + 0.05 * rng.normal(size=(NUM_NODES, 2))
    y = np.array([1000.0, -20.0]) + np.array([50.0, 0.1]) * y
    split = rng.permutation(np.repeat([0, 1, 2, -1], [250, 100, 100, 50])).astype(np.int8)
    if holes:
        y[rng.random(y.shape) < 0.1] = np.nan
        split[np.isnan(y).all(axis=1)] = -1
    return ValuedGraph(
        edge_index=edges,
        features=dense(x),
        values=y.astype(np.float32),
        split=split,
        target_names=("high", "low"),
        name="made",
        source="a test",
        synthetic=True,
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_values(made_graph(), folder / "made")
    return folder


@pytest.fixture(scope="module")
def store(root) -> ValuesStore:
    return ValuesStore.open(root / "made")


@pytest.fixture(scope="module")
def planned(root):
    def plan(model=None, **train):
        settings = {"epochs": 2, "batch_size": 50, "num_neighbors": [5, 5], "threads": 1, "prefetch": 0, **train}
        wanted = {"kind": "graphsage", "hidden_channels": 16, "dropout": 0.0} if model is None else model
        asked = {"task": {"kind": "node_regression"}, "dataset": {"name": "made"}, "model": wanted, "train": settings}
        return plan_experiment(NodeRegressionExperiment.model_validate(asked), dataset_root=root, run_id="run")

    return plan


def test_values_are_standardised_by_those_of_training_nodes(planned, store):
    task = build_task(planned(), ALONE)
    train = store.values[store.nodes_in("train")].astype(np.float64)
    np.testing.assert_allclose(task.model.targets.mean, np.nanmean(train, axis=0), rtol=1e-6)
    np.testing.assert_allclose(task.model.targets.sd, np.nanstd(train, axis=0), rtol=1e-6)
    assert not any(each.requires_grad for each in task.model.targets.parameters())


@pytest.mark.parametrize("model", [None, {"kind": "gat", "hidden_channels": 4}], ids=["graphsage", "gat"])
def test_an_epochs_loss_is_a_mean_over_known_values(planned, store, model):
    task = build_task(planned(model), ALONE)
    sums, weights, seen = [], [], []
    for step, batch in enumerate(task.batches(0, 0)):
        values = torch.from_numpy(store.values[batch.seeds.ids])
        known = ~values.isnan()
        task.model.eval()
        scaled = (values - task.model.targets.mean) / task.model.targets.sd
        errors = (task.model(batch) - scaled)[known]
        assert task.loss_sum(batch).item() == pytest.approx(errors.square().sum().item(), rel=1e-5)
        sums.append(errors.square().sum().item())
        weights += task.weights(0, step)
        assert weights[-1] == known.sum()
        seen.append(batch.seeds.ids)
    assert np.array_equal(np.sort(np.concatenate(seen)), store.nodes_in("train"))
    assert sum(weights) == np.count_nonzero(~np.isnan(store.values[store.nodes_in("train")]))


def test_weights_of_ranks_are_those_of_their_seeds(planned, store):
    plan = planned(ranks=2)
    tasks = [build_task(plan, Group(rank, 2, torch.device("cpu"))) for rank in (0, 1)]
    for step, parts in enumerate(zip(*(task.batches(0, 0) for task in tasks), strict=True)):
        own = tuple(float(np.count_nonzero(~np.isnan(store.values[part.seeds.ids]))) for part in parts)
        assert tasks[0].weights(0, step) == tasks[1].weights(0, step) == own


@pytest.fixture(scope="module")
def trained(root, tmp_path_factory):
    train = {"epochs": 25, "batch_size": 50, "num_neighbors": [10], "threads": 1, "optimizer": {"lr": 0.02}}
    asked = {
        "name": "values",
        "task": "node_regression",
        "dataset": {"name": "made"},
        "model": {"hidden_channels": 32, "num_layers": 1, "dropout": 0.0},
        "train": {**train, "device": "cpu"},
    }
    run = package.train(asked, run_id="values-1", logs_root=tmp_path_factory.mktemp("logs"), dataset_root=root)
    return RunFolder.open(run.path)


def test_training_beats_both_baselines_on_both_scales(trained):
    outcome = trained.read_outcome()
    beside = outcome.baselines["test"]
    assert set(beside) == {"mean", "linear"}
    assert outcome.test["rmse"] < 0.5 * beside["linear"]["rmse"] < beside["mean"]["rmse"]
    assert outcome.test["r2"] > 0.9, "a mean over values of which one is 500 times the other's size"
    assert beside["mean"]["r2"] < 0.05


def test_predictions_give_the_measures_and_leave_out_what_is_not_known(trained, store):
    path = trained.path.parent / "all.parquet"
    assert predict([str(trained.path), "--split", "all", "--output", str(path)]) == 0
    table = polars.read_parquet(path)
    assert table.height == NUM_NODES
    assert table["value_0"].null_count() == np.isnan(store.values[:, 0]).sum()
    test, outcome = table.filter(polars.col("split") == "test"), trained.read_outcome().test
    pairs = [test.select(f"value_{n}", f"prediction_{n}").drop_nulls().to_numpy() for n in (0, 1)]
    r2 = np.mean([r2_score(each[:, 0], each[:, 1]) for each in pairs])
    every = np.concatenate(pairs).astype(np.float64)
    assert outcome["mae"] == pytest.approx(mean_absolute_error(every[:, 0], every[:, 1]), rel=1e-9)
    assert outcome["r2"] == pytest.approx(r2, rel=1e-6)
    facts = evaluate(trained, split="test", which="best")
    assert (facts["rmse"], facts["mae"], facts["r2"]) == (outcome["rmse"], outcome["mae"], outcome["r2"])


def test_a_loaded_model_predicts_in_the_datas_units(trained, store):
    model = package.load(trained.path)
    topology = store.topology(undirected=True)
    targets = np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr))
    edges = torch.from_numpy(np.stack([topology.indices.astype(np.int64), targets]))
    with torch.no_grad():
        found = model(torch.from_numpy(np.array(store.features.x)), edges).numpy()
    test = store.nodes_in("test")
    errors = np.abs(found - store.values)[test]
    assert np.nanmean(errors) == pytest.approx(trained.read_outcome().test["mae"], rel=1e-4)


@pytest.mark.slow
def test_pages_and_checks_of_the_run(trained, graphmill, tmp_path):
    assert graphmill("verify", trained.path).code == 0
    result = graphmill("report", trained.path, "--output", tmp_path / "page.html")
    assert result.code == 0, result.err
    assert "RMSE" in (tmp_path / "page.html").read_text()
    refused = graphmill("predict", trained.path, "--embeddings", "--output", tmp_path / "e.npz")
    assert refused.code == 2
    assert "leave --embeddings out" in refused.err


def test_linear_regression_is_scikit_learns(planned, store):
    x, train, test = store.features.x.astype(np.float64), store.nodes_in("train"), store.nodes_in("test")
    errors = []
    for values in store.values.T.astype(np.float64):
        ids, judged = train[~np.isnan(values[train])], test[~np.isnan(values[test])]
        errors.append(np.abs(LinearRegression().fit(x[ids], values[ids]).predict(x[judged]) - values[judged]))
    (found,) = score_baselines(planned().task, ["linear"], ["test"])
    assert found.values["mae"] == pytest.approx(np.concatenate(errors).mean(), rel=1e-9)


@pytest.mark.parametrize("kind", ["l1", "huber"])
def test_other_losses(planned, kind):
    task = build_task(planned(loss={"kind": kind}), ALONE)
    batch = next(iter(task.batches(0, 0)))
    assert 0 < task.loss_sum(batch).item() < np.inf
    assert task.evaluate("val").loss > 0


def test_a_loss_and_a_measure_of_ones_own_are_in_the_datas_units(planned):
    loss = {"kind": "custom", "target": "torch.nn.L1Loss", "options": {"reduction": "none"}}
    plan = planned(loss=loss)
    NodeRegression.check_model(plan, plan.task)
    task = build_task(plan, ALONE)
    found = task.evaluate("val")
    assert found.loss == pytest.approx(found.values["mae"], rel=1e-5)
    batch = next(iter(task.batches(0, 0)))
    task.loss_sum(batch).backward()
    assert all(each.grad.isfinite().all() for each in task.model.encoder.parameters() if each.grad is not None)
    plan = planned(loss={**loss, "options": {"reduction": "mean"}})
    with pytest.raises(UserError, match="one number"):
        NodeRegression.check_model(plan, plan.task)


def test_a_strangers_model(planned, monkeypatch):
    class Linear(nn.Module):
        def __init__(self, in_channels: int, out_channels: int) -> None:
            super().__init__()
            self.linear = nn.Linear(in_channels, out_channels)

        def forward(self, x, edge_index):
            return self.linear(x)

    monkeypatch.setattr(torch.nn, "OurLinear", Linear, raising=False)
    plan = planned({"kind": "custom", "target": "torch.nn.OurLinear"}, num_neighbors=[3])
    task = build_task(plan, ALONE)
    assert task.evaluate("test").num_seeds == len(task.store.nodes_in("test"))


def test_other_data_must_have_as_many_values(planned, root):
    raw = made_graph(holes=False)
    other = ValuedGraph(
        edge_index=raw.edge_index,
        features=raw.features,
        values=raw.values[:, :1],
        split=raw.split,
        name="other",
        source="a test",
        synthetic=True,
    )
    with pytest.raises(UserError, match="other has 1 values of each node, and the model was trained on made with 2"):
        NodeRegression.on_other_data(planned().task, write_values(other, root / "other"))


def test_values_are_not_propagated_as_labels(root):
    asked = {
        "task": {"kind": "node_regression"},
        "dataset": {"name": "made"},
        "model": {"kind": "sign", "label_propagation": True},
    }
    with pytest.raises(UserError, match=r"model\.label_propagation is true.* nodes of made have values") as refused:
        plan_experiment(NodeRegressionExperiment.model_validate(asked), dataset_root=root, run_id="run")
    assert "leave model.label_propagation out" in refused.value.fix


def test_sign_reads_propagated_features_and_a_loaded_one_predicts_in_the_datas_units(root, store):
    model = {"kind": "sign", "hops": 2, "hidden_channels": 16, "dropout": 0.0}
    asked = {"task": {"kind": "node_regression"}, "dataset": {"name": "made"}, "model": model, "train": {"epochs": 1}}
    plan = plan_experiment(NodeRegressionExperiment.model_validate(asked), dataset_root=root, run_id="run")
    task = build_task(plan, ALONE)
    optimizer = torch.optim.Adam([each for each in task.model.parameters() if each.requires_grad], lr=0.05)
    for _ in range(200):
        for batch in task.batches(0, 0):
            task.loss_sum(batch).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert task.evaluate("test").values["r2"] > 0.5
    origin = Origin(run_id="run", task="t", dataset="d", step=0, epoch=0, plan_hash="", measures={})
    loaded = NodeRegression.inference_model(plan, Weights.of(task.model.state_dict(), origin)).eval()
    topology = store.topology(undirected=True)
    targets = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    edges = torch.from_numpy(np.stack([np.asarray(topology.indices, dtype=np.int64), targets]))
    found = loaded(torch.from_numpy(np.array(store.features.x)), edges).detach().numpy()
    np.testing.assert_allclose(found, task.predict(None, embeddings=False).values["prediction"], rtol=1e-4)
