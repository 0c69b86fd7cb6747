"""A regression on means and counts, beside graph networks: as scikit-learn computes it, and what it cannot see."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.preprocessing import StandardScaler

from graphmill.graph.graph_set import GraphSet
from graphmill.tasks.baselines import score_baselines
from graphmill.tasks.graph_classification.baselines import of_whole_graphs
from graphmill.tasks.graph_classification.data.store import GraphSetStore, RawGraphs, write_graphs
from graphmill.tasks.graph_classification.page import MAJORITY, MEANS, GraphClassificationExperiment
from graphmill.tasks.planning import plan_experiment


def made(root, seed=0):
    """Classes differ in their mean features and in how many edges a node has, with much noise."""
    rng = np.random.default_rng(seed)
    num_nodes, y = rng.integers(4, 12, 200), rng.integers(0, 3, 200)
    num_edges = num_nodes * (1 + y)
    edges = rng.integers(0, np.repeat(num_nodes, num_edges), (2, int(num_edges.sum())))
    x = rng.normal(size=(int(num_nodes.sum()), 4)) + 0.5 * np.repeat(y, num_nodes)[:, None]
    graphs = GraphSet.of(num_nodes, num_edges, edges, x.astype(np.float32), None)
    split = (np.arange(200) % 5 // 3 + (np.arange(200) % 5 == 4)).astype(np.int8)
    raw = RawGraphs(name="made", source="here", synthetic=True, graphs=graphs, labels=y, class_names=(), split=split,
                    split_note="by number")  # fmt: skip
    write_graphs(raw, root / "made")
    return num_nodes, num_edges, x, y, split


def plan_of(root):
    experiment = GraphClassificationExperiment.model_validate(
        {"dataset": {"name": "made"}, "train": {"epochs": 1, "ranks": 1, "batch_size": 8}}
    )
    return plan_experiment(experiment, dataset_root=root, run_id="r")


@pytest.mark.parametrize("split", ["val", "test"])
def test_it_is_scikit_learns_regression_on_means_and_counts(tmp_path, split):
    num_nodes, num_edges, x, y, codes = made(tmp_path)
    begins = np.concatenate([[0], np.cumsum(num_nodes)])
    means = np.array([x[begin:end].astype(np.float32).mean(axis=0, dtype=np.float64)
                      for begin, end in pairwise(begins)])  # fmt: skip
    whole = np.column_stack([means, np.log1p(num_nodes), np.log1p(num_edges), num_edges / num_nodes])
    np.testing.assert_allclose(of_whole_graphs(GraphSetStore.open(tmp_path / "made").graphs), whole, rtol=1e-12)
    train, judged = codes == 0, codes == {"val": 1, "test": 2}[split]
    scaled = StandardScaler().fit(whole[train]).transform(whole)
    guesses = LogisticRegression(C=1.0, max_iter=5000, tol=1e-8).fit(scaled[train], y[train]).predict(scaled[judged])
    (found,) = score_baselines(plan_of(tmp_path).task, [MEANS.name], [split])
    assert found.values == {
        "accuracy": pytest.approx(accuracy_score(y[judged], guesses)),
        "macro_f1": pytest.approx(f1_score(y[judged], guesses, average="macro")),
    }
    (majority,) = score_baselines(plan_of(tmp_path).task, [MAJORITY.name], [split])
    assert found.values["accuracy"] > majority.values["accuracy"]


def test_a_set_that_is_too_much_beside_a_run_says_so(tmp_path):
    made(tmp_path)
    own = plan_of(tmp_path).task
    large = own.model_copy(update={"dataset": own.dataset.model_copy(update={"num_nodes": 10**9})})
    (found,) = score_baselines(large, [MEANS.name], ["val"], bounded=True)
    assert found.values is None
    assert "graphmill baseline made" in found.why_not
