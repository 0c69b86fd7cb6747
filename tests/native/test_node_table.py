"""The place of a node in a list, and rows of bytes that are copied between any places."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill import _native

NODES = st.lists(st.integers(0, 2**62), unique=True, max_size=200)


@given(NODES, st.lists(st.integers(-5, 2**62), max_size=50), st.integers(1, 3))
def test_each_node_is_found_at_its_place_and_no_other_is(nodes, others, num_threads):
    table = _native.NodeTable(np.array(nodes, dtype=np.int64))
    wanted = np.array([*nodes, *others], dtype=np.int64)
    places = np.empty(len(wanted), dtype=np.int64)
    table.find(wanted, places, num_threads)
    known = {node: place for place, node in enumerate(nodes)}
    assert places.tolist() == [known.get(node, -1) for node in wanted.tolist()]
    assert len(table) == len(nodes)


@pytest.mark.parametrize(("nodes", "problem"), [([3, 3], "node 3 stands twice"), ([-1], "node -1 is negative")])
def test_a_list_that_is_none_is_refused(nodes, problem):
    with pytest.raises(ValueError, match=problem):
        _native.NodeTable(np.array(nodes, dtype=np.int64))


@given(st.data(), st.sampled_from([np.int32, np.int64]))
def test_a_row_is_the_ranks_own_or_held_or_the_windows(data, storage_type):
    num_nodes = data.draw(st.integers(1, 300))
    storage = np.array(data.draw(st.permutations(range(num_nodes))), dtype=storage_type)
    begin, end = sorted(data.draw(st.tuples(st.integers(0, num_nodes), st.integers(0, num_nodes))))
    some = st.lists(st.integers(0, num_nodes - 1), max_size=300)
    held = np.array(data.draw(st.lists(st.integers(0, num_nodes - 1), unique=True, max_size=60)), dtype=np.int64)
    finder, window = _native.RowFinder(storage, begin, end), _native.Window()
    first, seen = end - begin + len(held), list[int]()
    for batch in data.draw(st.lists(some, min_size=1, max_size=3)):
        nodes, rows = np.array(batch, dtype=np.int64), np.empty(len(batch), dtype=np.int64)
        counts = finder.find(nodes, _native.NodeTable(held), window, rows)
        is_own = (storage[nodes] >= begin) & (storage[nodes] < end)
        is_held = ~is_own & np.isin(nodes, held)
        assert counts == (is_own.sum(), is_held.sum())
        assert np.array_equal(rows[is_own], storage[nodes[is_own]] - begin)
        assert np.array_equal(held[rows[is_held] - (end - begin)], nodes[is_held])
        missing = ~is_own & ~is_held
        seen += [node for node in dict.fromkeys(nodes[missing].tolist()) if node not in seen]
        assert window.nodes.tolist() == seen, "each once, in the order in which they are met"
        assert np.array_equal(np.array(seen, dtype=np.int64)[rows[missing] - first], nodes[missing])
        to = np.arange(len(seen))[::-1].copy()
        moved = rows.copy()
        _native.move_rows(moved, first, to)
        assert np.array_equal(moved[missing], first + to[rows[missing] - first])
        assert np.array_equal(moved[~missing], rows[~missing])


def test_what_is_no_node_is_refused():
    finder, rows = _native.RowFinder(np.arange(5), 1, 3), np.empty(1, dtype=np.int64)
    for node in (-1, 5):
        with pytest.raises(ValueError, match=f"node {node} is not one of the 5"):
            finder.find(np.array([node]), None, _native.Window(), rows)


@given(st.data(), st.integers(1, 70), st.integers(1, 3))
def test_rows_are_copied_to_their_places(data, width, num_threads):
    table = np.arange(11 * width, dtype=np.int64).astype(np.uint8).reshape(11, width)
    places = np.array(data.draw(st.lists(st.integers(0, 19), unique=True, max_size=20)), dtype=np.int64)
    rows = np.array(data.draw(st.lists(st.integers(0, 10), min_size=len(places), max_size=len(places))), dtype=np.int64)
    out = np.full((20, width), 7, dtype=np.uint8)
    _native.copy_rows(table, rows, places, out, num_threads)
    expected = np.full((20, width), 7, dtype=np.uint8)
    expected[places] = table[rows]
    assert np.array_equal(out, expected)


@pytest.mark.parametrize(("rows", "places"), [([11], [0]), ([-1], [0]), ([0], [20]), ([0, 1], [0])])
def test_rows_outside_are_refused(rows, places):
    table, out = np.zeros((11, 4), np.uint8), np.zeros((20, 4), np.uint8)
    with pytest.raises(ValueError, match="must"):
        _native.copy_rows(table, np.array(rows), np.array(places), out, 1)


def test_a_part_picks_by_place_and_samples_no_batch():
    """Rows of nodes 4 and 7 of a graph with ten: draws are keyed by the node, in-edges are at the row."""
    indptr, indices = np.array([0, 3, 5]), np.array([0, 4, 9, 1, 2], dtype=np.int32)
    part = _native.NeighborSampler(indptr, indices, num_nodes=10)
    whole_indptr = np.array([0, 0, 0, 0, 0, 3, 3, 3, 5, 5, 5])
    whole = _native.NeighborSampler(whole_indptr, indices)
    nodes = np.array([7, 4])
    for key in range(20):
        found = part.pick(nodes, 2, key, places=np.array([1, 0]))
        assert found.sources.tolist() == whole.pick(nodes, 2, key).sources.tolist()
    with pytest.raises(ValueError, match="pick"):
        part.sample(nodes, [2], 0)
    with pytest.raises(ValueError, match="node 9"):
        _native.NeighborSampler(indptr, indices, num_nodes=9)
