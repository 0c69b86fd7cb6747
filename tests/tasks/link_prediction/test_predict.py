"""What a model of typed links says: scores by ids and names, the best new links, refusals."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphmill.base.errors import UserError
from graphmill.graph.features import dense
from graphmill.graph.typed import RawTypes, Relation
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.link_prediction.data.links import LinkGraph, Links
from graphmill.tasks.link_prediction.data.store import write_links
from graphmill.tasks.link_prediction.page import LinkPredictionExperiment
from graphmill.tasks.planning import plan_experiment

NODES = 40


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Two relations between named nodes; `likes` is no relation backwards."""
    root, rng = tmp_path_factory.mktemp("typed"), np.random.default_rng(0)
    triples = np.unique(np.stack([rng.integers(0, n, 300) for n in (NODES, 2, NODES)]), axis=1)
    triples = triples[:, triples[0] != triples[2]]
    triples = triples[:, rng.permutation(triples.shape[1])]
    parts = {"val": triples[:, :20], "test": triples[:, 20:40], "train": triples[:, 40:]}
    read = parts["train"]
    raw = LinkGraph(
        edge_index=read[[0, 2]],
        features=dense(rng.normal(size=(NODES, 4))),
        name="typed",
        source="test",
        synthetic=True,
        types=RawTypes(
            node_type=np.zeros(NODES, np.int8),
            node_names=("n",),
            edge_type=read[1],
            relations=(Relation("n", "knows", "n"), Relation("n", "likes", "n")),
        ),
        links={split: Links(its[0], its[2], its[1]) for split, its in parts.items()},
        links_have_direction=True,
        num_relations=2,
        split_note="random",
        node_names=tuple(f"node{number}" for number in range(NODES)),
    )
    write_links(raw, root / "typed")
    return root


def task_of(root, model, head, **more):
    experiment = LinkPredictionExperiment.model_validate(
        {
            "task": {"kind": "link_prediction"},
            "dataset": {"name": "typed", "undirected": False},
            "model": model,
            "embedding_channels": 8,
            "head": {"kind": head},
            "train": {"epochs": 1, "batch_size": 64, "num_neighbors": [4, 3], "threads": 1},
            **more,
        }
    )
    plan = plan_experiment(experiment, dataset_root=root, run_id="run")
    return build_task(plan, Group(0, 1, torch.device("cpu")))


@pytest.fixture(scope="module")
def task(root):
    return task_of(root, {"kind": "rgcn", "hidden_channels": 8}, "complex")


def test_a_relational_encoder_learns_from_typed_links(task):
    losses = [task.loss_sum(batch).item() / batch.num_seeds for batch in task.batches(0, 0)]
    assert np.isfinite(losses).all()
    found = task.evaluate("test")
    assert 0 < found.values["mrr"] <= 1
    assert task.task_plan.ranked == "both"


def test_scores_and_ranks_of_a_split(task):
    links = task.judge.store.links("test")
    found = task.predict(["test"], embeddings=False)
    np.testing.assert_array_equal(found.values["source"], links.sources)
    assert found.values["source_name"][0] == f"node{links.sources[0]}"
    assert set(found.values["relation"]) <= {"knows", "likes"}
    ranks = np.concatenate([found.values["rank"], found.values["rank_of_source"]])
    assert np.mean(1 / ranks) == pytest.approx(task.evaluate("test").values["mrr"])


def test_given_pairs_by_id_and_by_name_score_alike(task):
    by_id = task.scores({"source": [0, 3], "target": [1, 2], "relation": ["likes", "knows"]})
    by_name = task.scores({"source": ["node0", "node3"], "target": ["node1", 2], "relation": ["likes", "knows"]})
    np.testing.assert_array_equal(by_id.values["score"], by_name.values["score"])


def test_the_best_pairs_are_no_known_links_and_ordered(task):
    found = task.best_pairs({"source": ["node5"], "relation": ["knows"]}, 10).values
    assert len(found["target"]) == 10
    assert (np.diff(found["score"]) <= 0).all()
    known = task.judge.store.links("train")
    of_source = known.targets[(known.sources == 5) & (known.relations == 0)]
    assert not set(found["target"]) & {5, *of_source}
    scores = task.scores({"source": [5] * 10, "target": found["target"].tolist(), "relation": ["knows"] * 10})
    np.testing.assert_allclose(scores.values["score"], found["score"], rtol=1e-5, atol=1e-6)


def test_a_perceptron_finds_the_same_best_as_its_scores(root):
    task = task_of(root, {"kind": "embedding"}, "mlp")
    best = task.best_pairs({"source": [7], "relation": ["likes"]}, 3).values
    every = task.scores({"source": [7] * NODES, "target": list(range(NODES)), "relation": ["likes"] * NODES})
    known = [task.judge.store.links(split) for split in ("train", "val", "test")]
    out = {7} | {int(t) for links in known for t in links.targets[(links.sources == 7) & (links.relations == 1)]}
    left = [node for node in np.argsort(-every.values["score"], kind="stable").tolist() if node not in out]
    assert best["target"].tolist() == left[:3]


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ({"source": [0], "target": [1]}, "no column 'relation'"),
        ({"source": [0], "target": [NODES], "relation": ["likes"]}, "is no target node"),
        ({"source": ["node99"], "target": [1], "relation": ["likes"]}, "'node99' is no source node"),
        ({"source": [0], "target": [1], "relation": ["hates"]}, "'hates' is no relation"),
        ({"source": [0.5], "target": [1], "relation": ["likes"]}, "is no source node"),
    ],
)
def test_pairs_that_are_none_are_refused(task, pairs, problem):
    with pytest.raises(UserError, match=problem):
        task.scores(pairs)


def test_the_best_of_every_node_needs_a_relation(task):
    with pytest.raises(UserError, match="have relations") as refused:
        task.best_pairs(None, 3)
    assert "--pairs" in refused.value.fix
