"""Synthetic graphs: what was asked for, the same each time, and never without saying so."""

import math

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.tasks.node_classification.data.describe import describe
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.page import GraphDatasetSpec


@pytest.mark.parametrize("kind", ["sbm", "rmat"])
def test_counts_are_exact_and_every_record_says_synthetic(tmp_path, kind):
    options = {"num_nodes": 1000, "num_edges": 8000, "features": 5, "seed": 3}
    store = prepare(f"synthetic/{kind}", root=tmp_path, options=options)
    store.verify()
    metadata = store.metadata
    assert (metadata.num_nodes, metadata.num_edges, metadata.num_features) == (1000, 8000, 5)
    assert metadata.is_symmetric
    assert metadata.num_self_loops == metadata.num_duplicate_edges == 0
    assert metadata.synthetic is True
    assert store.info(GraphDatasetSpec()).synthetic is True
    assert metadata.source.startswith(f"generated: {kind} num_nodes=1000")
    assert "seed=3" in metadata.source
    assert metadata.splits == {"train": 600, "val": 200, "test": 200, "none": 0}


@pytest.mark.parametrize("kind", ["sbm", "rmat"])
def test_the_seed_decides(tmp_path, kind):
    checksums = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        options = {"num_nodes": 300, "num_edges": 900, "seed": seed}
        store = prepare(f"synthetic/{kind}", root=tmp_path, options=options, save_as=name)
        checksums.append([record.xxh3 for record in store.metadata.arrays.values()])
    assert checksums[0] == checksums[1] != checksums[2]


def test_communities_hold_their_edges(tmp_path):
    options = {"num_nodes": 2000, "num_edges": 40_000, "communities": 8, "inside": 0.9, "classes": 4}
    facts = describe(prepare("synthetic/sbm", root=tmp_path, options=options))
    assert facts["num_classes"] == 4
    share = 0.9 + 0.1 * 0.25  # of edges between nodes of one class
    assert abs(facts["edge_homophily"] - share) < 6 * math.sqrt(share * (1 - share) / 40_000)


def test_rmat_has_hubs_and_isolated_nodes(tmp_path):
    options = {"num_nodes": 5000, "num_edges": 50_000}
    facts = describe(prepare("synthetic/rmat", root=tmp_path, options=options))
    assert facts["in_degree"]["max"] > 20 * facts["in_degree"]["mean"]
    assert facts["num_isolated_nodes"] > 500
    assert facts["edge_homophily"] > 0.15  # classes are ranges of ids, which share edges


def test_features_tell_the_classes_apart_by_the_signal(tmp_path):
    means = {}
    for signal in (0.0, 2.0):
        options = {"num_nodes": 4000, "num_edges": 4000, "classes": 2, "communities": 2, "signal": signal}
        store = prepare("synthetic/sbm", root=tmp_path, options=options, save_as=f"s{signal}")
        x = np.array(store.features.x)
        means[signal] = np.abs(x[store.labels == 0].mean(0) - x[store.labels == 1].mean(0)).max()
    assert means[0.0] < 0.2 < 2 < means[2.0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_node": 10}, r"num_node: .*\n.*did you mean 'num_nodes'"),
        ({"num_nodes": "many"}, "num_nodes: Input should be a valid integer"),
        ({"num_nodes": 1}, "greater than or equal to 2"),
        ({"num_nodes": 10, "num_edges": 7}, "must be even"),
        ({"num_nodes": 10, "num_edges": 80}, r"num_edges is 80.*\n.*set num_edges=44"),
        ({"inside": 1.5}, "inside"),
        ({"signal": float("inf")}, "signal"),
        ({"seed": -1}, "seed"),
        ({"num_nodes": 5, "num_edges": 4, "communities": 6}, "6 communities for 5 nodes"),
    ],
)
def test_refusals(tmp_path, options, said):
    with pytest.raises(UserError) as error:
        prepare("synthetic/sbm", root=tmp_path, options=options)
    assert error.match(f"(?s){said}")
    assert list(tmp_path.iterdir()) == []


def test_a_generator_that_repeats_itself_gives_up(tmp_path):
    options = {"num_nodes": 64, "num_edges": 2000, "communities": 64, "inside": 1.0}
    with pytest.raises(UserError, match="repeats itself"):
        prepare("synthetic/sbm", root=tmp_path, options=options)
