"""The facts of `graphmill inspect`, on a graph small enough to count by hand."""

import json

import numpy as np

from graphmill.graph.features import dense, sparse
from graphmill.tasks.node_classification.data.describe import describe
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import write_store


def test_facts_of_a_small_graph(tmp_path):
    raw = LabelledGraph(
        edge_index=np.array([[0, 1, 2, 3], [1, 2, 3, 3]]),
        features=dense(np.array([[1, 0], [0, 0], [2, 3], [0, 0], [0, 0]])),
        labels=np.array([0, 0, 1, 1, -1]),
        split=np.array([0, 1, 2, -1, -1], dtype=np.int8),
        name="small",
        source="by hand",
        synthetic=True,
        class_names=("red", "blue"),
    )
    facts = describe(write_store(raw, tmp_path / "s"))
    assert facts["num_edges"] == 4
    assert facts["num_undirected_edges"] == 7
    assert facts["in_degree"] == {"mean": 0.8, "min": 0, "p25": 0, "median": 1, "p75": 1, "p90": 1, "p99": 1, "max": 2}
    assert facts["undirected_degree"]["max"] == 2
    assert facts["features"] == {"form": "dense", "dtype": "float32", "density": 0.3, "num_empty_rows": 3}
    assert facts["labels"] == {"red": 2, "blue": 2, "(unlabelled)": 1}
    assert facts["splits"] == {"train": 1, "val": 1, "test": 1, "none": 2}
    assert facts["edge_homophily"] == 5 / 7  # 0-1 and 2-3 in both directions and the loop agree; 1-2 does not
    assert facts["total_bytes"] == sum(path.stat().st_size for path in (tmp_path / "s").glob("*.npy"))
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts


def test_sparse_features_without_labelled_edges(tmp_path):
    raw = LabelledGraph(
        edge_index=np.array([[1], [2]]),
        features=sparse(np.array([0, 1, 1, 3]), np.array([0, 0, 1]), np.ones(3), 4),
        labels=np.array([0, -1, -1]),
        split=np.array([0, -1, -1], dtype=np.int8),
        name="small",
        source="by hand",
        synthetic=True,
    )
    facts = describe(write_store(raw, tmp_path / "s"))
    assert facts["features"] == {"form": "sparse", "dtype": "float32", "density": 0.25, "num_empty_rows": 1}
    assert facts["edge_homophily"] is None
    assert facts["labels"] == {"0": 1, "(unlabelled)": 2}
