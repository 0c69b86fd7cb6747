"""Baselines of node classification: the majority class by hand, regressions against scikit-learn's."""

import json
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from graphmill.graph.features import SparseFeatures, dense, sparse
from graphmill.tasks import perceptron
from graphmill.tasks.baselines import score_at_start, score_baselines
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store
from graphmill.tasks.node_classification.page import KIND, LOGISTIC, NodeClassificationExperiment
from graphmill.tasks.regression import Csr
from graphmill.train.baseline import main as score_alone
from graphmill.train.baselines_after import costly_scores


def plan_of(store: LabelledGraphStore, **dataset):
    asked = {"dataset": {"name": str(store.path), **dataset}}
    experiment = NodeClassificationExperiment.model_validate(asked)
    return KIND.resolve(experiment, store.info(experiment.dataset))


@pytest.fixture(scope="module", params=["dense", "sparse"])
def store(request, tmp_path_factory) -> LabelledGraphStore:
    """60 nodes, directed edges; five classes, of which one is in no split and one is the test split's alone."""
    draw = np.random.default_rng(3)
    labels = np.array([0, 1, 1, 2] * 15)
    labels[-3:] = 4
    x = draw.normal(size=(60, 6)).astype(np.float32) + np.eye(5, 6)[labels].astype(np.float32)
    if request.param == "sparse":
        csr = scipy.sparse.csr_array(np.where(np.abs(x) > 0.8, x, 0))
        features = sparse(csr.indptr, csr.indices, csr.data, 6)
    else:
        features = dense(x)
    raw = LabelledGraph(
        edge_index=draw.integers(0, 60, (2, 150)),
        features=features,
        labels=labels,
        split=np.repeat([0, 1, 2], 20).astype(np.int8),
        name="made",
        source="a test",
        synthetic=True,
    )
    return write_store(raw, tmp_path_factory.mktemp(request.param) / "store")


def test_the_majority_is_that_of_the_training_nodes(store):
    found = {score.split: score.values for score in score_at_start(plan_of(store))}
    assert found["val"]["micro_f1"] == 10 / 20
    assert found["test"]["micro_f1"] == np.mean(store.labels[40:] == 1)
    assert found["test"]["macro_f1"] == f1_score(store.labels[40:], [1] * 20, average="macro", zero_division=0)


def matrix(store: LabelledGraphStore) -> np.ndarray:
    features = store.features
    if not isinstance(features, SparseFeatures):
        return features.x.astype(np.float64)
    parts = (features.values, features.indices, features.indptr)
    return scipy.sparse.csr_array(parts, shape=(60, 6)).toarray().astype(np.float64)


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize(("name", "hops"), [("logistic", [0]), ("propagated", [2]), ("stacked", [0, 1, 2])])
def test_regressions_are_those_of_scikit_learn(store, name, hops, undirected):
    topology = store.topology(undirected=undirected)
    rows = np.repeat(np.arange(60), np.diff(topology.indptr))
    adjacency = np.eye(60)
    np.add.at(adjacency, (rows, topology.indices), 1)
    scale = adjacency.sum(axis=1) ** -0.5
    step = scale[:, None] * adjacency * scale
    x = np.hstack([np.linalg.matrix_power(step, hop) @ matrix(store) for hop in hops])
    model = LogisticRegression(tol=1e-8, max_iter=10_000).fit(x[:20], store.labels[:20])
    scores = {score.split: score for score in score_baselines(plan_of(store, undirected=undirected), [name], ["test"])}
    guesses = model.predict(x[40:])
    assert scores["test"].values["micro_f1"] == np.mean(guesses == store.labels[40:])
    expected = f1_score(store.labels[40:], guesses, average="macro", zero_division=0)
    assert scores["test"].values["macro_f1"] == expected


@pytest.mark.parametrize("undirected", [True, False])
def test_labels_are_propagated_by_the_formula(store, undirected):
    topology = store.topology(undirected=undirected)
    rows = np.repeat(np.arange(60), np.diff(topology.indptr))
    adjacency = np.zeros((60, 60))
    np.add.at(adjacency, (rows, topology.indices), 1)
    scale = np.maximum(adjacency.sum(axis=1), 1) ** -0.5
    known = np.zeros((60, 5))
    known[np.arange(20), store.labels[:20]] = 1
    found = known
    for _ in range(50):
        found = 0.9 * (scale[:, None] * adjacency * scale) @ found + 0.1 * known
    guesses = np.where(found.sum(axis=1) > 0, found.argmax(axis=1), 1)
    scores = {
        score.split: score for score in score_baselines(plan_of(store, undirected=undirected), ["labels"], ["test"])
    }
    assert scores["test"].values["micro_f1"] == np.mean(guesses[40:] == store.labels[40:])


def test_a_perceptron_of_sparse_rows_learns_what_one_of_dense_rows_does():
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 90)
    dense_rows = (draw.random((90, 12)) < 0.4) * draw.random((90, 12)) + 2 * np.eye(3, 12)[labels]
    csr = scipy.sparse.csr_array(dense_rows)
    train, val = np.arange(60), np.arange(60, 75)
    rows = Csr(csr.indptr.astype(np.int64), csr.indices.astype(np.int64), csr.data, 12)
    before = torch.random.get_rng_state()
    of_sparse = perceptron.guesses(rows, labels, train, val, 3)
    assert torch.equal(torch.random.get_rng_state(), before)  # a run's own draws do not hang on it
    assert np.array_equal(of_sparse, perceptron.guesses(torch.from_numpy(dense_rows).float(), labels, train, val, 3))
    assert np.mean(of_sparse[75:] == labels[75:]) == 1


def test_rows_of_a_sparse_matrix_are_those_of_scipy():
    csr = scipy.sparse.random_array((9, 7), density=0.3, format="csr", rng=np.random.default_rng(1))
    found = Csr(csr.indptr.astype(np.int64), csr.indices.astype(np.int64), csr.data, 7).rows(np.array([8, 0, 0, 3]))
    assert np.array_equal(found.tensor().to_dense().numpy(), csr.toarray()[[8, 0, 0, 3]].astype(np.float32))


def test_what_would_take_too_much_is_left_out_of_a_run_and_not_of_the_command(store, monkeypatch):
    monkeypatch.setattr("graphmill.tasks.node_classification.baselines.MOST_OPERATIONS", 1.0)
    names = ["majority", "logistic"]
    beside = {score.baseline: score for score in score_baselines(plan_of(store), names, ["test"], bounded=True)}
    assert beside["majority"].values
    assert beside["logistic"].values is None
    assert "--all" in beside["logistic"].why_not
    asked = {score.baseline: score for score in score_baselines(plan_of(store), names, ["test"])}
    assert asked["logistic"].values


def test_a_run_that_left_one_out_says_so_each_time_and_keeps_no_score(store, tmp_path, monkeypatch):
    own, said = plan_of(store), []
    monkeypatch.setattr("graphmill.tasks.node_classification.baselines.MOST_OPERATIONS", 1.0)
    for times in (1, 2):
        assert costly_scores(tmp_path, own, LOGISTIC, said.append) == {}
        assert len([line for line in said if "is not scored" in line]) == times
    monkeypatch.undo()
    assert costly_scores(tmp_path, own, LOGISTIC, said.append)["test"]


def test_the_command_leaves_out_what_takes_too_much_and_all_scores_it(store, tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.setattr("graphmill.tasks.node_classification.baselines.MOST_OPERATIONS", 1.0)
    section = tmp_path / "section.json"
    section.write_text(plan_of(store).model_dump_json())

    def found(*options: str) -> dict[str, dict[str, Any]]:
        assert score_alone([str(section), *options]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return {name["baseline"]: answer for name, answer in zip(lines[::2], lines[1::2], strict=True)}

    left_out = found()
    assert left_out["majority"]["scores"].keys() == {"val", "test"}
    assert not left_out["logistic"]["scores"]
    assert "GFLOP" in left_out["logistic"]["why_not"]
    with caplog.at_level("INFO"):
        assert found("--all")["logistic"]["scores"].keys() == {"val", "test"}
    assert "logistic takes" in caplog.text
