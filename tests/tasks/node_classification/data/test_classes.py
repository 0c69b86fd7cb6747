"""What is said of classes: counted by split, and named where a split lacks them."""

import numpy as np

from graphmill.graph.topology import Topology
from graphmill.tasks.node_classification.data.classes import class_counts, class_facts, edge_homophily, notes

LABELS = np.array([0, 0, 1, 3, 0, 3, 4, 5, -1])
SPLIT = np.array([0, 0, 0, 0, 1, 2, 2, -1, -1], np.int8)


def test_classes_are_counted_and_the_empty_ones_named():
    counts = class_counts(LABELS, SPLIT, 6)
    assert {name: each.tolist() for name, each in counts.items()} == {
        "train": [2, 0 + 1, 0, 1, 0, 0],
        "val": [1, 0, 0, 0, 0, 0],
        "test": [0, 0, 0, 1, 1, 0],
    }
    assert dict(class_facts(counts))["classes in train"] == "3 of 6, 1 to 2 nodes each"
    said = list(notes(counts, LABELS, ("a", "b", "c", "d", "e", "f")))
    for line, names in zip(said, ("c", "e", "f", "a, b"), strict=True):
        assert line.endswith(f"({names})")
    assert list(notes(class_counts(LABELS[[0, 0, 0]], np.array([0, 1, 2], np.int8), 1), LABELS[[0, 0, 0]], ())) == []
    (said,) = notes(class_counts(LABELS[:2], np.array([0, 2], np.int8), 1), LABELS[:2], ())
    assert "val split" in said


def test_homophily_leaves_out_what_has_no_label():
    topology = Topology(np.array([0, 2, 3, 3, *[3] * 6]), np.array([1, 2, 8], np.int32))
    assert edge_homophily(topology, LABELS) == 1 / 2
