"""Baselines of node classification: the majority class by hand, regressions against scikit-learn's."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from graphmill.graph.features import SparseFeatures, dense, sparse
from graphmill.spec.kinds.node_classification import KIND, NodeClassificationExperiment
from graphmill.tasks.baselines import score_baselines, score_beside_runs
from graphmill.tasks.node_classification.labelled import LabelledGraph
from graphmill.tasks.node_classification.store import LabelledGraphStore, write_store


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
    found = {score.split: score.values for score in score_beside_runs(plan_of(store))}
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
@pytest.mark.parametrize(("name", "num_hops"), [("logistic", 0), ("propagated", 2)])
def test_regressions_are_those_of_scikit_learn(store, name, num_hops, undirected):
    topology = store.topology(undirected=undirected)
    rows = np.repeat(np.arange(60), np.diff(topology.indptr))
    adjacency = np.eye(60)
    np.add.at(adjacency, (rows, topology.indices), 1)
    scale = adjacency.sum(axis=1) ** -0.5
    x = np.linalg.matrix_power(scale[:, None] * adjacency * scale, num_hops) @ matrix(store)
    model = LogisticRegression(tol=1e-8, max_iter=10_000).fit(x[:20], store.labels[:20])
    scores = {score.split: score for score in score_baselines(plan_of(store, undirected=undirected), [name], ["test"])}
    guesses = model.predict(x[40:])
    assert scores["test"].values["micro_f1"] == np.mean(guesses == store.labels[40:])
    expected = f1_score(store.labels[40:], guesses, average="macro", zero_division=0)
    assert scores["test"].values["macro_f1"] == expected
