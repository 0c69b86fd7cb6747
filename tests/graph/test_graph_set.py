"""Many graphs as one: cut out again, each is what it was."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from graphmill import _native
from graphmill.base.errors import UserError
from graphmill.graph.graph_set import GraphSet, offsets_of
from graphmill.graph.write import write_all

FLOATS = st.floats(-1e3, 1e3, width=32)


@st.composite
def one_graph(draw):
    """Nodes, edges (twice, or to themselves, too), features of both."""
    num_nodes = draw(st.integers(1, 6))
    edges = draw(st.lists(st.tuples(*[st.integers(0, num_nodes - 1)] * 2), max_size=12))
    edge_index = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    x = draw(hnp.arrays(np.float32, (num_nodes, 2), elements=FLOATS))
    return edge_index, x, draw(hnp.arrays(np.float32, (len(edges), 3), elements=FLOATS))


def together(graphs) -> GraphSet:
    edge_index, x, edge_attr = (
        np.concatenate(each, axis=axis) for each, axis in zip(zip(*graphs, strict=True), (1, 0, 0), strict=True)
    )
    sizes = [np.array([len(g[1]) for g in graphs]), np.array([g[0].shape[1] for g in graphs])]
    return GraphSet.of(*sizes, edge_index, x, edge_attr)


def edges_of(edge_index, edge_attr) -> list:
    return sorted((int(s), int(t), *row.tolist()) for s, t, row in zip(*edge_index, edge_attr, strict=True))


@given(st.lists(one_graph(), min_size=1, max_size=6), st.data())
def test_a_batch_is_its_graphs_one_after_another(graphs, data):
    made = together(graphs)
    chosen = data.draw(st.lists(st.integers(0, len(graphs) - 1), max_size=8))
    batch = made.cut(np.array(chosen, dtype=np.int64), num_threads=1)
    assert batch.node_offsets.tolist() == offsets_of(np.array([len(graphs[g][1]) for g in chosen], int)).tolist()
    np.testing.assert_array_equal(batch.x, np.concatenate([np.empty((0, 2)), *(graphs[g][1] for g in chosen)]))
    targets = np.repeat(np.arange(len(batch.x)), np.diff(batch.indptr))
    wanted = []
    for number, graph in enumerate(chosen):
        edge_index, _, edge_attr = graphs[graph]
        wanted += edges_of(edge_index + batch.node_offsets[number], edge_attr)
    assert edges_of(np.stack([batch.sources, targets]), batch.edge_attr) == sorted(wanted)
    by_source = batch.sources[batch.edges_by_source]
    np.testing.assert_array_equal(by_source, np.repeat(np.arange(len(batch.x)), np.diff(batch.indptr_by_source)))
    assert sorted(batch.edges_by_source.tolist()) == list(range(len(by_source)))


@given(st.lists(one_graph(), min_size=1, max_size=4))
def test_what_is_written_is_mapped_again(tmp_path_factory, graphs):
    made, folder = together(graphs), tmp_path_factory.mktemp("set")
    again = GraphSet.mapped(folder, write_all(folder, made.arrays))
    for name in GraphSet.__slots__:
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))
        assert getattr(again, name).dtype == getattr(made, name).dtype


def test_edges_to_one_node_keep_their_order():
    edge_index = np.array([[2, 0, 1, 0], [1, 0, 1, 1]])
    made = GraphSet.of(np.array([3]), np.array([4]), edge_index, np.zeros((3, 1), np.float32))
    assert made.sources.tolist() == [0, 2, 1, 0]
    assert made.first_in.tolist() == [0, 1, 4]
    assert made.first_out.tolist() == [0, 2, 3]
    assert made.edge_attr.shape == (4, 0)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"edge_index": np.array([[0, 0], [1, 2]])}, "graph 1 has 2 nodes, and an edge from 0 to 2"),
        ({"edge_index": np.array([[0, -1], [1, 1]])}, "graph 1 has 2 nodes, and an edge from -1 to 1"),
        ({"x": np.zeros((4, 1), np.float32)}, "nodes and rows of x are 5 and 4"),
        ({"edge_attr": np.zeros((3, 1), np.float32)}, "edges and rows of edge_attr are 2 and 3"),
        ({"num_edges": np.array([1, 2])}, "edges and columns of edge_index are 3 and 2"),
        ({"num_edges": np.array([2])}, "graphs with nodes and with edges are 2 and 1"),
        ({"num_edges": np.array([3, -1])}, "-1"),
    ],
)
def test_misfits_are_named(changes, says):
    good = {
        "num_nodes": np.array([3, 2]),
        "num_edges": np.array([1, 1]),
        "edge_index": np.array([[0, 1], [2, 0]]),
        "x": np.zeros((5, 1), np.float32),
    }
    with pytest.raises(UserError, match=says):
        GraphSet.of(**{**good, **changes})


@pytest.mark.parametrize(("begin", "offsets"), [(2, [0, 2]), (-1, [0, 1]), (0, [0, 4]), (0, [1, 2]), (0, [0, 3])])
def test_native_ranges_outside_of_the_arrays_are_refused(begin, offsets):
    """A damaged store must not be read, nor anything written, beyond its arrays."""
    table, out = np.zeros((3, 1), np.float32), np.zeros((2, 1), np.float32)
    words = (np.array([begin]), np.array(offsets))
    with pytest.raises(ValueError, match="ranges must lie in the table"):
        _native.copy_ranges(table, *words, out, 1)
    with pytest.raises(ValueError, match="ranges must lie in the table"):
        _native.copy_ranges_shifted(np.zeros(3, np.int32), *words, np.array([0]), np.zeros(2, np.int32), 1)
