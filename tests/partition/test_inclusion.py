"""Probabilities of being in a batch: the formulas entry by entry, and what sampling finds."""

import numpy as np
import pytest
from graphs_in_parts import graphs, topology_of
from hypothesis import given
from hypothesis import strategies as st

from graphmill.graph.topology import edge_keys, topology_from_keys
from graphmill.partition.inclusion import hotness, occurrences, vertex_inclusion
from graphmill.sample.hot.rank import presampled_counts

fan_outs = st.lists(st.sampled_from((-1, 1, 2, 5)), min_size=1, max_size=3)


def row(topology, node):
    return topology.indices[topology.indptr[node] : topology.indptr[node + 1]]


def hop_by_hand(topology, before, fanout):
    """One hop of the recurrence as it is written."""
    after = []
    for u in range(topology.num_nodes):
        missed = 1 - before[u]
        for v in range(topology.num_nodes):
            degree = len(row(topology, v))
            if u in row(topology, v):
                missed *= 1 - before[v] * (1 if fanout < 0 else min(1, fanout / degree))
        after.append(1 - missed)
    return after


@given(graphs(), fan_outs, st.integers(1, 30))
def test_vertex_inclusion_is_its_recurrence(graph, fanouts, batch_size):
    topology, _, seeds = graph
    wanted = [min(1, batch_size / len(seeds)) if node in seeds else 0 for node in range(topology.num_nodes)]
    for fanout in fanouts:
        wanted = hop_by_hand(topology, wanted, fanout)
    found = vertex_inclusion(topology, seeds, fanouts, batch_size)
    assert np.allclose(found, wanted, rtol=1e-12, atol=1e-12)
    assert (found >= 0).all()
    assert (found <= 1).all()


@given(graphs(), fan_outs)
def test_hotness_is_its_recurrence(graph, fanouts):
    topology, _, seeds = graph
    unreached = [not any(u in row(topology, v) for v in range(topology.num_nodes)) for u in range(topology.num_nodes)]
    wanted = [1 if node in seeds else 0.01 for node in range(topology.num_nodes)]
    for fanout in fanouts:
        wanted = hop_by_hand(topology, wanted, fanout)
        wanted = [0 if bare else value for bare, value in zip(unreached, wanted, strict=True)]
    assert np.allclose(hotness(topology, seeds, fanouts), wanted, rtol=1e-12, atol=1e-12)


def test_hotness_of_the_cases_of_a_neighbour():
    """Node 0 has the neighbours 1, 2, 3; each gives it what the original's formula says, by its degree."""
    star = topology_of(6, [(0, 1), (0, 2), (0, 3), (2, 4), (3, 4)], symmetric=True)
    found = hotness(star, np.array([3]), [2])
    of_few = 1 - 0.01  # node 1 has one neighbour: at most the fan-out
    of_seed = 1 - 1.0
    assert found[0] == pytest.approx(1 - (1 - 0.01) * of_few * (1 - 0.01 * 2 / 2) * of_seed)
    assert found[1] == pytest.approx(1 - (1 - 0.01) * (1 - 0.01 * 2 / 3))  # node 0 has three, more than the fan-out
    assert found[5] == 0, "an isolated node is never sampled"


@given(graphs(), st.integers(0, 2))
def test_occurrences_count_rows(graph, part):
    topology, part_of, _ = graph
    wanted = np.zeros(topology.num_nodes)
    for node in np.flatnonzero(part_of == part):
        wanted[row(topology, node)] += 1
    assert np.array_equal(occurrences(topology, part_of == part), wanted)


def test_threads_change_no_bit():
    rng = np.random.default_rng(3)
    pairs = rng.zipf(1.1, size=(2, 3_000_000)) % 20_000
    large = topology_from_keys(edge_keys(pairs, 20_000), 20_000)
    assert large.num_edges > 2**20, "too few edges for threads"
    seeds = np.arange(0, 20_000, 3)
    one = vertex_inclusion(large, seeds, [15, 10, 5], 256, num_threads=1)
    for num_threads in (2, 3, 8):
        assert np.array_equal(one, vertex_inclusion(large, seeds, [15, 10, 5], 256, num_threads=num_threads))


def test_what_is_computed_is_what_sampling_finds():
    """Where the recurrence is exact: in a tree of which each batch has one seed, whatever may take a node is alone."""
    tree = topology_of(121, [(child, (child - 1) // 3) for child in range(1, 121)], symmetric=False)
    seeds, epochs = np.arange(40), 2000
    counts = presampled_counts(tree, seeds, [2, 1], 1, epochs=range(epochs), rng_seed=11)
    num_batches = epochs * len(seeds)
    wanted = vertex_inclusion(tree, seeds, [2, 1], 1)
    leaves = np.arange(40, 121)
    second_order = 3 * wanted[leaves] ** 2  # of a node that two seeds reach: seeds exclude each other, and p is small
    error = 6 * np.sqrt(wanted[leaves] / num_batches) + second_order
    assert (np.abs(counts[leaves] / num_batches - wanted[leaves]) <= error).all()
    assert (counts[leaves] > 0).all()
