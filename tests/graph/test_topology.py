"""Topologies against a reference that a reader can check by eye."""

import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_cases import num_examples

from graphmill import _native
from graphmill.graph.topology import (
    edge_keys,
    index_dtype,
    keys_from_topology,
    num_isolated,
    relabelled,
    self_loops,
    topology_from_keys,
    topology_with_edge_ids,
    undirected_keys,
)


@st.composite
def edge_lists(draw):
    """A number of nodes, and edges among them: repeated ones, self-loops and isolated nodes included."""
    num_nodes = draw(st.integers(1, 12))
    node = st.integers(0, num_nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=40))
    dtype = draw(st.sampled_from([np.int32, np.int64, np.uint16]))
    return num_nodes, pairs, np.array(pairs, dtype=dtype).reshape(-1, 2).T


def rows(topology):
    return [topology.indices[a:b].tolist() for a, b in zip(topology.indptr[:-1], topology.indptr[1:], strict=True)]


def entries(topology):
    """(source, destination) of every entry, in order."""
    return [(source, node) for node, row in enumerate(rows(topology)) for source in row]


def in_neighbours(pairs, num_nodes):
    return [sorted({u for u, v in pairs if v == node}) for node in range(num_nodes)]


@settings(deadline=None)
@given(edge_lists())
def test_rows_are_the_sorted_in_neighbours(graph):
    num_nodes, pairs, edge_index = graph
    topology = topology_from_keys(edge_keys(edge_index, num_nodes), num_nodes)
    assert rows(topology) == in_neighbours(pairs, num_nodes)
    assert topology.num_nodes == num_nodes
    assert topology.num_edges == len(set(pairs))
    assert topology.indptr.dtype == np.int64
    assert topology.indices.dtype == np.int32


@settings(deadline=None)
@given(edge_lists(), st.booleans())
def test_edge_ids_lead_back_to_the_edges_and_change_nothing_else(graph, undirected):
    num_nodes, pairs, edge_index = graph
    topology, edge_ids = topology_with_edge_ids(edge_index, num_nodes, undirected=undirected)
    keys = edge_keys(edge_index, num_nodes)
    both = undirected_keys(keys, num_nodes) if undirected else None
    plain = topology_from_keys(keys if both is None else both, num_nodes)
    assert np.array_equal(topology.indptr, plain.indptr)
    assert np.array_equal(topology.indices, plain.indices)
    assert topology.indices.dtype == plain.indices.dtype
    first = {}
    for number, pair in enumerate([*pairs, *((v, u) for u, v in pairs)] if undirected else pairs):
        first.setdefault(pair, number % len(pairs))
    assert edge_ids.tolist() == [first[entry] for entry in entries(topology)]


@settings(deadline=None)
@given(edge_lists(), st.booleans())
def test_multi_edges_stay_where_asked_in_the_order_of_the_list(graph, undirected):
    num_nodes, pairs, edge_index = graph
    topology, edge_ids = topology_with_edge_ids(edge_index, num_nodes, undirected=undirected, keep_multi_edges=True)
    directed = list(enumerate(pairs))
    if undirected:
        directed += [(number, (v, u)) for number, (u, v) in enumerate(pairs) if u != v]
    expected = sorted(directed, key=lambda edge: (edge[1][1], edge[1][0]))  # by row, then source; the sort is stable
    assert list(zip(edge_ids.tolist(), entries(topology), strict=True)) == expected
    assert topology.num_edges == len(directed)


def test_what_both_directions_need_at_their_peak():
    """Bytes: keys 8 per edge, the union 16, the topology as given 4; besides that a few blocks, and rows of nodes."""
    num_nodes, num_edges, block = 1 << 16, 1 << 23, 8 << 20
    edge_index = np.random.default_rng(0).integers(0, num_nodes, (2, num_edges))
    tracemalloc.start()
    keys = edge_keys(edge_index, num_nodes)
    given_topology = topology_from_keys(keys, num_nodes)
    self_loops(keys, num_nodes)
    both = undirected_keys(keys, num_nodes)
    del keys
    topology_from_keys(both, num_nodes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert given_topology.num_edges <= num_edges
    assert peak <= (8 + 16 + 4) * num_edges + 3 * 8 * num_nodes + 4 * block


def test_a_feature_of_edges_follows_them_through_the_sampler():
    rng = np.random.default_rng(0)
    edge_index = rng.integers(0, 40, (2, 500))
    weight = edge_index[0] * 1000 + edge_index[1]  # which edge it is
    topology, edge_ids = topology_with_edge_ids(edge_index, 40, keep_multi_edges=True)
    sampler = _native.NeighborSampler(topology.indptr, topology.indices)
    hood = sampler.sample(np.arange(10), [5], 3, with_edge_ids=True)
    of_picked = weight[edge_ids[hood.edge_ids]]
    destination = np.repeat(np.arange(10), np.diff(hood.indptr))
    assert np.array_equal(of_picked, hood.node_ids[hood.indices] * 1000 + destination)


@settings(deadline=None)
@given(edge_lists())
def test_union_holds_both_directions(graph):
    num_nodes, pairs, edge_index = graph
    keys = edge_keys(edge_index, num_nodes)
    both = undirected_keys(keys, num_nodes)
    union = set(pairs) | {(v, u) for u, v in pairs}
    if both is None:
        assert union == set(pairs)
    else:
        assert union != set(pairs)
        assert rows(topology_from_keys(both, num_nodes)) == in_neighbours(union, num_nodes)


@settings(deadline=None)
@given(edge_lists())
def test_keys_come_back_from_a_topology(graph):
    num_nodes, _, edge_index = graph
    keys = edge_keys(edge_index, num_nodes)
    assert np.array_equal(keys_from_topology(topology_from_keys(keys, num_nodes)), keys)


@settings(deadline=None)
@given(edge_lists())
def test_loops_and_isolated_nodes(graph):
    num_nodes, pairs, edge_index = graph
    keys = edge_keys(edge_index, num_nodes)
    loops = self_loops(keys, num_nodes)
    both = undirected_keys(keys, num_nodes)
    undirected = topology_from_keys(keys if both is None else both, num_nodes)
    assert loops.tolist() == sorted({u for u, v in pairs if u == v})
    company = {node for u, v in pairs if u != v for node in (u, v)}
    assert num_isolated(undirected, loops) == num_nodes - len(company)


@settings(max_examples=num_examples(2, explored=5), deadline=None)
@given(st.integers(0, 2**32))
def test_many_edges_cross_the_block_of_the_duplicate_filter(seed):
    rng = np.random.default_rng(seed)
    edge_index = rng.integers(0, 700, (2, 1_200_000))  # more than one block, nearly every key repeated
    keys = edge_keys(edge_index, 700)
    assert np.array_equal(
        keys, np.unique(edge_index[1].astype(np.uint64) << np.uint64(10) | edge_index[0].astype(np.uint64))
    )


def test_ids_are_32_bit_until_they_do_not_fit():
    assert index_dtype(2**31 - 1) == np.int32
    assert index_dtype(2**31) == np.int64


def test_keys_hold_the_largest_ids():
    num_nodes = 2**32
    edge_index = np.array([[num_nodes - 1, 0], [num_nodes - 1, num_nodes - 1]], dtype=np.int64)
    keys = edge_keys(edge_index, num_nodes)
    assert keys.tolist() == [(num_nodes - 1) << 32, (num_nodes - 1) << 32 | (num_nodes - 1)]
    assert self_loops(keys, num_nodes).tolist() == [num_nodes - 1]


@given(
    ids=st.lists(st.integers(0, 99), max_size=40),
    num_nodes=st.sampled_from([100, 2000]),  # fewer than, and more than, eight for each id
    dtype=st.sampled_from([np.int32, np.int64]),
)
def test_relabelled_ids_are_those_of_unique(ids, num_nodes, dtype):
    given_ids = np.array(ids, dtype=dtype)
    distinct, places = relabelled(given_ids, num_nodes)
    assert distinct.dtype == places.dtype == np.int64
    assert distinct.tolist() == sorted(set(ids))
    assert distinct[places].tolist() == ids
