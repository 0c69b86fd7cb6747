"""A regression on means and counts, beside graph networks: as scikit-learn computes it, and what it cannot see."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.preprocessing import StandardScaler

from graphmill.graph.graph_set import GraphSet
from graphmill.record.kept_baselines import KeptBaselines
from graphmill.tasks.baselines import score_baselines
from graphmill.tasks.graph_classification.baselines import of_whole_graphs, subtree_counts
from graphmill.tasks.graph_classification.data.store import GraphSetStore, RawGraphs, write_graphs
from graphmill.tasks.graph_classification.page import MAJORITY, MEANS, GraphClassificationExperiment
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.regression import fit


def made(root, seed=0, scale=1.0):
    """Classes differ in their mean features and in how many edges a node has, with much noise."""
    rng = np.random.default_rng(seed)
    num_nodes, y = rng.integers(4, 12, 200), rng.integers(0, 3, 200)
    num_edges = num_nodes * (1 + y)
    edges = rng.integers(0, np.repeat(num_nodes, num_edges), (2, int(num_edges.sum())))
    x = rng.normal(size=(int(num_nodes.sum()), 4)) + 0.5 * np.repeat(y, num_nodes)[:, None]
    x[:, 0] *= scale
    graphs = GraphSet.of(num_nodes, num_edges, edges, x.astype(np.float32), None)
    split = (np.arange(200) % 5 // 3 + (np.arange(200) % 5 == 4)).astype(np.int8)
    raw = RawGraphs(name="made", source="here", synthetic=True, graphs=graphs, labels=y, class_names=(), split=split,
                    split_note="by number")  # fmt: skip
    write_graphs(raw, root / "made")
    return num_nodes, num_edges, x, y, split


def plan_of(root, model="gin", **dataset):
    experiment = GraphClassificationExperiment.model_validate(
        {
            "dataset": {"name": "made", **dataset},
            "model": {"kind": model},
            "train": {"epochs": 1, "ranks": 1, "batch_size": 8},
        }
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


def test_subtrees_tell_apart_what_means_cannot():
    """A ring of six, and one with a chord moved: alike in features and numbers, not in degrees."""
    ring, other = [(n, (n + 1) % 6) for n in range(6)], [(0, 1), (1, 2), (2, 3), (3, 4), (1, 5), (4, 1)]
    both = [[*edges, *((b, a) for a, b in edges)] for edges in (ring, other)]
    edges = np.array([each for graph in range(20) for each in both[graph % 2]]).T
    graphs = GraphSet.of(np.full(20, 6), np.full(20, 12), edges, np.ones((120, 1), np.float32), None)
    labels, train = np.arange(20) % 2, np.arange(10)
    assert len(np.unique(of_whole_graphs(graphs), axis=0)) == 1
    counts = subtree_counts(graphs, train)
    assert np.array_equal(fit([counts.rows(train)], labels[train], 2).logits([counts]).argmax(dim=1).numpy(), labels)


def test_counts_of_subtrees_are_those_counted_by_hand():
    """A path of three nodes, of which the middle one is of another kind; twice, and once with the kinds exchanged."""
    edges = np.tile([[0, 1, 1, 2], [1, 0, 2, 1]], 3)
    kinds = np.array([0, 1, 0, 0, 1, 0, 1, 0, 1], np.float32)[:, None]
    noise = np.random.default_rng(0).normal(size=(9, 1)).astype(np.float32)
    graphs = GraphSet.of(np.full(3, 3), np.full(3, 4), edges, np.hstack([kinds, noise]), None)
    counts = subtree_counts(graphs, np.array([0, 1]), rounds=1)
    dense = np.expm1(counts.tensor().to_dense().numpy()).round().astype(int)
    assert dense[0].tolist() == dense[1].tolist()
    # Kinds 0 and 1; then an end beside a middle, and a middle between ends. The third graph has only kinds in common.
    assert sorted(dense[0]) == [1, 1, 2, 2]
    assert sorted(dense[2]) == [0, 0, 1, 2]


def test_pairs_of_kinds_in_a_row_are_three_subtrees():
    """0 - 1, 1 - 2, 2 - 3: no two have an end in common that stands for the same."""
    kinds = np.array([0, 1, 1, 2, 2, 3] * 2, np.float32)[:, None]
    edges = np.tile([[0, 1], [1, 0]], 6)
    graphs = GraphSet.of(np.full(6, 2), np.full(6, 2), edges, kinds, None)
    dense = subtree_counts(graphs, np.arange(6), rounds=1).tensor().to_dense().numpy()
    assert dense.shape[1] == 4 + 6
    assert (dense[:3, 4:] > 0).sum(axis=0).tolist() == [1] * 6


def test_a_set_that_is_too_much_beside_a_run_says_so(tmp_path):
    made(tmp_path)
    own = plan_of(tmp_path).task
    large = own.model_copy(update={"dataset": own.dataset.model_copy(update={"num_nodes": 10**9})})
    (found,) = score_baselines(large, [MEANS.name], ["val"], bounded=True)
    assert found.values is None
    assert "graphmill baseline made" in found.why_not


@pytest.mark.parametrize(("scale", "features"), [(1.0, "as_stored"), (100.0, "standardised")])
def test_features_of_unlike_scale_are_standardised_by_default(tmp_path, scale, features):
    made(tmp_path, scale=scale)
    assert plan_of(tmp_path).task.features == features
    store = GraphSetStore.open(tmp_path / "made")
    assert ("scales_differ" in (tmp_path / "made/metadata.json").read_text()) == (scale > 1), "old checksums hold"
    assert ("scales of features" in dict(store.described())) == (scale > 1)


def test_scores_are_kept_for_all_models_on_the_same_folds(tmp_path):
    made(tmp_path)

    def kept(*asked, **dataset):
        return KeptBaselines.of(tmp_path, plan_of(tmp_path, *asked, **dataset).task)

    assert kept("gat") == kept("gin", features="standardised") == kept()
    assert kept(fold=1) not in (kept(), kept(fold=2))
