"""Labels propagated along edges: shares as the formula has them, and no node that reads its own label."""

from collections import Counter

import numpy as np
import pytest
import torch
from rounding import Bounded, assert_within
from torch import from_numpy

from graphmill.graph.topology import Topology
from graphmill.tasks import label_propagation as module
from graphmill.tasks.label_propagation import FOLDS, KnownLabels, label_shares, label_shares_of_others

NUM_NODES, NUM_LABELS = 50, 4


@pytest.fixture
def topology():
    """Directed, with nodes that have no in-neighbour, and a self-loop."""
    adjacency = np.random.default_rng(0).random((NUM_NODES, NUM_NODES)) < 0.08
    adjacency[:5], adjacency[7, 7] = False, True
    counts = adjacency.sum(axis=1)
    return Topology(np.concatenate([[0], np.cumsum(counts)]), np.nonzero(adjacency)[1].astype(np.int32))


@pytest.fixture(params=["class", "labels"])
def known(request):
    rng = np.random.default_rng(1)
    nodes = np.sort(rng.permutation(NUM_NODES)[:23])
    labels = rng.integers(0, NUM_LABELS, 23)
    if request.param == "labels":
        labels = rng.integers(0, 2, (23, NUM_LABELS)).astype(np.int8)
    return KnownLabels(nodes, labels, NUM_LABELS)


def by_definition(topology, known):
    """Y after 50 rounds of Y ← 0.9 S Y + 0.1 Y₀ in float64, its last column what is known at all."""
    step = np.zeros((NUM_NODES, NUM_NODES))
    np.add.at(step, (np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr)), topology.indices), 1)
    scale = np.maximum(step.sum(axis=1), 1) ** -0.5
    begun = np.zeros((NUM_NODES, NUM_LABELS + 1))
    begun[known.nodes, :-1] = np.eye(NUM_LABELS)[known.labels] if known.labels.ndim == 1 else known.labels
    begun[known.nodes, -1] = 1
    found = begun
    for _ in range(50):
        found = 0.9 * (scale[:, None] * step * scale) @ found + 0.1 * begun
    return found


def assert_shares(found, reaching):
    """Nothing cancels: what is added up has a rounding for each term of each round, and their quotient both errors."""
    is_reached = reaching[:, -1] > 0
    assert 0 < is_reached.sum() < NUM_NODES, "the graph has nodes of both kinds"
    assert not found[~is_reached].any()
    shares = from_numpy(reaching[is_reached] / reaching[is_reached, -1:])
    most = 2 * 50 * (NUM_NODES + 4)
    assert_within(from_numpy(found[is_reached]), Bounded(shares, most * shares)[:, : found.shape[1]])


def with_labels(known, labels):
    return KnownLabels(known.nodes, labels, NUM_LABELS)


def test_shares_are_those_of_the_formula(topology, known):
    assert_shares(label_shares(topology, known), by_definition(topology, known))


def test_a_node_reads_the_labels_of_all_but_its_fold(topology, known):
    found = label_shares_of_others(topology, known, rng_seed=3)
    assert found.shape == (NUM_NODES, NUM_LABELS)
    folds = module._folds_of(known.nodes, 3)
    expected = by_definition(topology, known)
    for fold in range(FOLDS):
        own = known.nodes[folds == fold]
        expected[own] = by_definition(topology, known.of(folds != fold))[own]
    assert_shares(found, expected)


def test_no_label_is_in_its_own_row_to_the_last_bit(topology, known):
    before = label_shares_of_others(topology, known, rng_seed=3)
    for row, node in enumerate(known.nodes):
        labels = known.labels.copy()
        labels[row] = (labels[row] + 1) % NUM_LABELS if labels.ndim == 1 else 1 - labels[row]
        after = label_shares_of_others(topology, with_labels(known, labels), rng_seed=3)
        assert np.array_equal(after[node], before[node])
    assert not np.array_equal(after, before), "others read it"


def test_threads_change_no_bit(topology, known):
    threads, found = torch.get_num_threads(), []
    for count in (1, 3):
        torch.set_num_threads(count)
        found.append(label_shares_of_others(topology, known, rng_seed=3))
    torch.set_num_threads(threads)
    assert np.array_equal(*found)


def test_folds_are_drawn_by_the_rng_seed_and_of_one_size():
    nodes = np.arange(10, 10 + 4 * FOLDS + 2)
    folds = module._folds_of(nodes, 0)
    assert sorted(Counter(folds.tolist()).values()) == [4] * (FOLDS - 2) + [5, 5]
    assert np.array_equal(folds, module._folds_of(nodes, 0))
    assert not np.array_equal(folds, module._folds_of(nodes, 1))


@pytest.mark.parametrize("count", [0, 1])
def test_of_no_other_label_there_is_nothing_to_read(topology, count):
    known = KnownLabels(np.arange(10, 10 + count), np.zeros(count, dtype=np.int64), NUM_LABELS)
    assert not label_shares_of_others(topology, known, 0)[known.nodes].any()
    assert label_shares_of_others(topology, known, 0).any() == (count > 0)
