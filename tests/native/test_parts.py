"""The native core of partitioning, against what numpy computes of the same arrays."""

import numpy as np
import pytest
from graphs_in_parts import graphs
from hypothesis import given
from hypothesis import strategies as st

from graphmill import _native
from graphmill.graph.topology import keys_from_topology, topology_from_keys, undirected_keys

NUM_PARTS = 3


def both_directions(graph):
    keys = keys_from_topology(graph)
    both = undirected_keys(keys, graph.num_nodes)
    return graph if both is None else topology_from_keys(both, graph.num_nodes)


@st.composite
def problems(draw):
    topology, parts, _ = draw(graphs())
    graph = both_directions(topology)
    amounts = draw(st.lists(st.integers(0, 5), min_size=2 * graph.num_nodes, max_size=2 * graph.num_nodes))
    weights = np.array(amounts, dtype=np.uint32).reshape(-1, 2)
    limits = np.maximum(weights.sum(axis=0, dtype=np.int64) * draw(st.integers(30, 60)) // 100, 1)
    return graph, parts.astype(np.int32), weights, limits


def entries(graph):
    return np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr)), graph.indices


def cut(graph, parts):
    rows, others = entries(graph)
    return int((parts[rows] != parts[others]).sum())


def excess(parts, weights, limits):
    loads = np.stack([np.bincount(parts, weights=column, minlength=NUM_PARTS) for column in weights.T], axis=1)
    return float((np.maximum(loads - limits, 0) / limits).sum())


def native(graph, weights, limits, parts):
    return _native.GraphParts(graph.indptr, graph.indices, weights, limits, parts, NUM_PARTS)


@given(problems())
def test_rebalancing_makes_no_part_fuller_than_it_was(problem):
    graph, parts, weights, limits = problem
    before = excess(parts, weights, limits)
    moved = native(graph, weights, limits, parts).rebalance()
    assert excess(parts, weights, limits) <= before + 1e-9
    assert (moved == 0) == (excess(parts, weights, limits) == pytest.approx(before, abs=1e-9))


@given(problems())
def test_no_single_move_would_even_out_what_rebalancing_leaves(problem):
    graph, parts, weights, limits = problem
    native(graph, weights, limits, parts).rebalance()
    left = excess(parts, weights, limits)
    for node in range(graph.num_nodes):
        for part in range(NUM_PARTS):
            other = parts.copy()
            other[node] = part
            assert excess(other, weights, limits) >= left - 1e-9


@given(problems())
def test_refining_lessens_the_cut_by_what_it_says_and_overfills_nothing(problem):
    graph, parts, weights, limits = problem
    before, cut_before = excess(parts, weights, limits), cut(graph, parts)
    gain = native(graph, weights, limits, parts).refine(4)
    assert gain >= 0
    assert cut(graph, parts) == cut_before - 2 * gain
    assert excess(parts, weights, limits) <= before + 1e-9


@given(problems(), st.integers(1, 23))
def test_streaming_assigns_the_nodes_that_have_entries(problem, width):
    graph, parts, weights, limits = problem
    parts[:] = -1
    native(graph, weights, limits, parts).stream(np.arange(-(-graph.num_nodes // width))[::-1], width)
    np.testing.assert_array_equal(parts >= 0, np.diff(graph.indptr) > 0)


@given(problems())
def test_filling_levels_the_parts(problem):
    graph, parts, _, limits = problem
    parts[:] = -1
    ones = np.ones((graph.num_nodes, 2), np.uint32)
    native(graph, ones, limits, parts).fill(np.arange(graph.num_nodes), 0)
    counts = np.bincount(parts, minlength=NUM_PARTS)
    assert counts.max() - counts.min() <= 1


@given(problems())
def test_what_crosses_and_halos_are_counted(problem):
    graph, parts, *_ = problem
    halos = np.zeros(NUM_PARTS, np.int64)
    middle = graph.num_nodes // 2
    total = 0
    for start, stop in ((0, middle), (middle, graph.num_nodes)):
        indptr = graph.indptr[start : stop + 1] - graph.indptr[start]
        indices = graph.indices[graph.indptr[start] : graph.indptr[stop]]
        total += _native.count_crossing(indptr, indices, start, parts, NUM_PARTS, halos)
    assert total == cut(graph, parts)
    rows, others = entries(graph)
    for part in range(NUM_PARTS):
        seen = np.unique(others[(parts[rows] == part) & (parts[others] != part)])
        assert halos[part] == len(seen)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parts": np.array([0, 3, 0], np.int32)}, "a part that is none"),
        ({"indices": np.array([1, 3], np.int32)}, "not a node"),
        ({"indptr": np.array([0, 2, 1, 2])}, "must not fall"),
        ({"limits": np.array([0])}, "above 0"),
        ({"limits": np.array([1, 1])}, "a limit for each"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, words):
    given_arrays = {
        "indptr": np.array([0, 1, 2, 2]),
        "indices": np.array([1, 0], np.int32),
        "weights": np.ones((3, 1), np.uint32),
        "limits": np.array([3]),
        "parts": np.zeros(3, np.int32),
    }
    with pytest.raises(ValueError, match=words):
        _native.GraphParts(**{**given_arrays, **change}, num_parts=3)


def test_ids_of_64_bits_give_the_same_parts():
    rng = np.random.default_rng(0)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 6, 50))])
    indices = rng.integers(0, 50, indptr[-1])
    found = []
    for dtype in (np.int32, np.int64):
        parts = np.full(50, -1, np.int32)
        graph = _native.GraphParts(
            indptr, indices.astype(dtype), np.ones((50, 1), np.uint32), np.array([20]), parts, NUM_PARTS
        )
        graph.stream(np.array([3, 0, 4, 1, 2]), 10)
        graph.fill(np.flatnonzero(parts < 0), 0)
        graph.rebalance()
        graph.refine(3)
        found.append(parts)
    np.testing.assert_array_equal(*found)
