"""Nodes with several labels: trained, evaluated, predicted, loaded, beside baselines; what does not apply says so."""

import json

import numpy as np
import polars
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from torch import nn

import graphmill as package
from graphmill.base.errors import UserError
from graphmill.graph.features import dense
from graphmill.record.run_folder import RunFolder
from graphmill.report.text_layouts import as_text
from graphmill.sync.group import Group
from graphmill.tasks.baselines import score_baselines
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.tasks.planning import plan_experiment
from graphmill.train.predict import main as predict

ALONE = Group(0, 1, torch.device("cpu"))
NUM_NODES, NUM_LABELS = 600, 4


def made_graph(num_labels: int = NUM_LABELS) -> LabelledGraph:
    """Six topics, of which each has its own labels; edges stay within a topic mostly. The last 60 are in no split."""
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 6, NUM_NODES)
    labels = (rng.random((6, num_labels)) < 0.4)[topic] ^ (rng.random((NUM_NODES, num_labels)) < 0.03)
    ends = rng.integers(0, NUM_NODES, (2, 12_000))
    stays = (topic[ends[0]] == topic[ends[1]]) | (rng.random(12_000) < 0.05)
    split = np.repeat([0, 1, 2, -1], [300, 120, 120, 60]).astype(np.int8)
    return LabelledGraph(
        edge_index=ends[:, stays],
        features=dense(rng.normal(size=(NUM_NODES, 8)).astype(np.float32) + np.eye(6, 8, dtype=np.float32)[topic]),
        labels=np.where(split[:, None] == -1, -1, labels).astype(np.int8),
        split=split,
        class_names=tuple(f"has {number}" for number in range(num_labels)),
        name="made",
        source="a test",
        synthetic=True,
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_store(made_graph(), folder / "made")
    return folder


@pytest.fixture(scope="module")
def store(root) -> LabelledGraphStore:
    return LabelledGraphStore.open(root / "made")


@pytest.fixture(scope="module")
def planned(root):
    def plan(model=None, **train):
        settings = {"epochs": 2, "batch_size": 50, "num_neighbors": [5, 5], "threads": 1, "prefetch": 0, **train}
        asked = {
            "dataset": {"name": "made"},
            "model": {"kind": "graphsage", "hidden_channels": 16, **(model or {})},
            "train": settings,
        }
        return plan_experiment(NodeClassificationExperiment.model_validate(asked), dataset_root=root, run_id="run")

    return plan


@pytest.mark.parametrize("model", [None, {"kind": "gat", "hidden_channels": 4}], ids=["graphsage", "gat"])
def test_batches_carry_the_labels_and_a_model_gives_a_logit_of_each(planned, store, model):
    task = build_task(planned(model), ALONE)
    seen = []
    for step, batch in enumerate(task.batches(0, 0)):
        assert np.array_equal(batch.labels, store.labels[batch.seeds.ids])
        assert task.model(batch).shape == batch.labels.shape
        assert task.weights(0, step) == (batch.num_seeds,)
        assert task.loss_sum(batch).isfinite()
        seen.append(batch.seeds.ids)
    assert np.array_equal(np.sort(np.concatenate(seen)), store.nodes_in("train"))


def test_the_loss_of_a_batch_is_binary_cross_entropy_by_node(planned):
    task = build_task(planned({"hidden_channels": 16, "dropout": 0.0}), ALONE)
    batch = next(iter(task.batches(0, 0)))
    logits = task.model(batch).float()
    by_node = nn.BCEWithLogitsLoss(reduction="none")(logits, batch.labels.float()).mean(dim=1)
    assert task.loss_sum(batch).item() == pytest.approx(by_node.sum().item(), rel=1e-6)


def test_balanced_weights_are_zeros_for_each_one_among_training_nodes(planned, store):
    task = build_task(planned(loss={"kind": "cross_entropy", "class_weights": "balanced"}), ALONE)
    labels = store.labels[store.nodes_in("train")]
    expected = (labels == 0).sum(axis=0) / (labels == 1).sum(axis=0)
    assert task.loss.positive_weights.tolist() == pytest.approx(expected.tolist(), rel=1e-6)
    assert task.weights(0, 0) == (50,), "a node counts 1, whatever its labels weigh"
    with pytest.raises(UserError, match=r"train\.loss\.class_weights holds 2 numbers, but made has 4"):
        planned(loss={"kind": "cross_entropy", "class_weights": [1.0, 2.0]})


@pytest.fixture(scope="module")
def trained(root, tmp_path_factory):
    """A run of the commands: its folder."""
    area = {"target": "graphmill.tasks.multilabel.roc_auc", "higher_is_better": True}
    train = {"epochs": 12, "batch_size": 50, "num_neighbors": [5, 5], "threads": 1, "optimizer": {"lr": 0.01}}
    asked = {
        "name": "labels",
        "dataset": {"name": "made"},
        "model": {"hidden_channels": 32},
        "train": {**train, "device": "cpu", "measures": {"roc_auc": area}},
    }
    logs = tmp_path_factory.mktemp("logs")
    run = package.train(asked, run_id="labels-1", logs_root=logs, dataset_root=root)
    return RunFolder.open(run.path)


def test_training_reaches_more_than_each_labels_majority(trained):
    outcome = trained.read_outcome()
    majority = outcome.baselines["test"]["majority"]["micro_f1"]
    assert outcome.test["micro_f1"] > 0.75
    assert outcome.test["micro_f1"] > majority + 0.2
    assert set(outcome.baselines["test"]) == {"majority", "labels", "logistic", "propagated", "stacked", "perceptron"}


@pytest.fixture(scope="module")
def predictions(trained):
    path = trained.path.parent / "all.parquet"
    assert predict([str(trained.path), "--split", "all", "--output", str(path)]) == 0
    return path


def columns(table: polars.DataFrame, name: str) -> np.ndarray:
    return np.stack([table[f"{name}_{number}"].to_numpy() for number in range(NUM_LABELS)], axis=1)


def test_predictions_have_a_column_for_each_label_and_give_the_measures(trained, predictions):
    table = polars.read_parquet(predictions)
    assert table.height == NUM_NODES
    assert table.filter(polars.col("split") == "none")["label_0"].null_count() == 60
    test = table.filter(polars.col("split") == "test")
    truths, guesses, shares = (columns(test, name) for name in ("label", "prediction", "probability"))
    assert np.array_equal(guesses == 1, shares > 0.5)
    found = trained.read_outcome().test
    assert found["micro_f1"] == f1_score(truths, guesses, average="micro")
    assert found["macro_f1"] == f1_score(truths, guesses, average="macro")
    assert found["roc_auc"] == pytest.approx(roc_auc_score(truths, shares, average="macro"), abs=1e-6)
    about = json.loads(polars.read_parquet_metadata(predictions)["graphmill"])
    assert about["class_names"] == [f"has {number}" for number in range(NUM_LABELS)]


def test_a_loaded_model_gives_the_logits_that_were_judged(trained, predictions, store):
    model = package.load(trained.path)
    topology = store.topology(undirected=True)
    targets = np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr))
    edges = torch.from_numpy(np.stack([topology.indices.astype(np.int64), targets]))
    with torch.no_grad():
        logits = model(torch.from_numpy(np.array(store.features.x)), edges)
    shares = columns(polars.read_parquet(predictions), "probability")
    np.testing.assert_allclose(logits.sigmoid().numpy(), shares, atol=1e-6)


def test_there_are_no_figures_of_one_class_per_node(predictions, graphmill, tmp_path):
    result = graphmill("figures", "--predictions", predictions, "--images-dir", tmp_path)
    assert result.code == 2
    assert "there is no confusion matrix of them" in result.err


def test_reports_and_other_programs_layouts_do_without(trained, graphmill, tmp_path):
    result = graphmill("report", trained.path, "--output", tmp_path / "page.html")
    assert result.code == 0, result.err
    assert "micro-F1" in (tmp_path / "page.html").read_text()
    text = as_text(trained, "dist-sage-sup")
    assert "Epoch: 011" in text
    assert "Test Acc" not in text, "a micro-F1 of several labels is no accuracy"
    assert graphmill("verify", trained.path).code == 0


def scores_of(planned, name):
    return {score.split: score for score in score_baselines(planned().task, [name], ["val", "test"])}


def test_the_majority_is_each_labels_own(planned, store):
    train, test = (store.labels[store.nodes_in(split)] for split in ("train", "test"))
    guesses = np.broadcast_to(train.mean(axis=0) > 0.5, test.shape)
    found = scores_of(planned, "majority")["test"].values
    assert found["micro_f1"] == f1_score(test, guesses, average="micro", zero_division=0)
    assert found["macro_f1"] == f1_score(test, guesses, average="macro", zero_division=0)


def test_a_regression_is_scikit_learns_for_each_label(planned, store):
    train, test = store.nodes_in("train"), store.nodes_in("test")
    x = store.features.x.astype(np.float64)
    guesses = [
        LogisticRegression(tol=1e-8, max_iter=10_000).fit(x[train], label[train]).predict(x[test])
        for label in store.labels.T
    ]
    expected = f1_score(store.labels[test], np.stack(guesses, axis=1), average="macro")
    assert scores_of(planned, "logistic")["test"].values["macro_f1"] == pytest.approx(expected, abs=1e-12)
    assert scores_of(planned, "propagated")["test"].values["micro_f1"] > 0.5


def test_labels_spread_by_themselves(planned, store):
    """Against a dense matrix: a node has the labels that more than half of what reaches it has."""
    topology, train = store.topology(undirected=True), store.nodes_in("train")
    step = np.zeros((NUM_NODES, NUM_NODES))
    np.add.at(step, (np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr)), topology.indices), 1)
    scale = np.maximum(step.sum(axis=1), 1) ** -0.5
    step, given = scale[:, None] * step * scale, np.zeros((NUM_NODES, NUM_LABELS + 1))
    given[train] = np.insert(store.labels[train], NUM_LABELS, 1, axis=1)
    found = given
    for _ in range(50):
        found = 0.9 * step @ found + 0.1 * given
    test = store.nodes_in("test")
    shares = found[test, :-1] / found[test, -1:]
    assert (np.abs(shares - 0.5) > 1e-4).all(), "no label hangs on rounding"
    expected = f1_score(store.labels[test], shares > 0.5, average="macro")
    values = scores_of(planned, "labels")["test"].values
    assert values["macro_f1"] == expected
    assert values["micro_f1"] > 0.7


def test_a_perceptron_learns_more_than_the_majority(planned):
    found, least = (scores_of(planned, name)["test"].values["micro_f1"] for name in ("perceptron", "majority"))
    assert found > least + 0.1


@pytest.mark.parametrize("target", ["torch.nn.BCEWithLogitsLoss", "torch.nn.MSELoss"])
def test_a_loss_of_ones_own_is_a_mean_over_labels(planned, target):
    loss = {"kind": "custom", "target": target, "options": {"reduction": "none"}}
    plan = planned({"hidden_channels": 16, "dropout": 0.0}, loss=loss)
    task = build_task(plan, ALONE)
    task.check_model(plan, plan.task)
    batch = next(iter(task.batches(0, 0)))
    logits = task.model(batch).float()
    exact = getattr(nn, target.rpartition(".")[2])()(logits, batch.labels.float()) * batch.num_seeds
    assert task.loss_sum(batch).item() == pytest.approx(exact.item(), rel=1e-6)
    assert task.evaluate("val").loss > 0


def test_a_loss_of_classes_is_refused_before_the_run(planned):
    loss = {"kind": "custom", "target": "torch.nn.CrossEntropyLoss", "options": {"reduction": "none"}}
    plan = planned(loss=loss)
    with pytest.raises(UserError, match=r"torch\.nn\.CrossEntropyLoss makes") as error:
        NodeClassification.check_model(plan, plan.task)
    assert "4 labels for each node" in error.value.fix
    assert "BCEWithLogitsLoss" in error.value.fix


def test_a_model_of_labels_is_not_judged_on_classes(planned, root):
    raw = made_graph()
    of_classes = np.where(raw.split == -1, -1, np.arange(NUM_NODES) % NUM_LABELS)
    other = LabelledGraph(
        edge_index=raw.edge_index,
        features=raw.features,
        labels=of_classes,
        split=raw.split,
        name="other",
        source="a test",
        synthetic=True,
    )
    own, task = planned().task, build_task(planned(), ALONE)
    store = write_store(other, root / "other")
    with pytest.raises(UserError, match="other has one class per node, and the model was trained on made with several"):
        type(task).on_other_data(own, store)
