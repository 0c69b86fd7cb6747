"""Lists of PyG's `Data`: the same graphs as they hold, or refused by number."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.tasks.graph_classification.data.pyg import from_data_list
from graphmill.tasks.graph_classification.data.store import write_graphs

pyg = pytest.importorskip("torch_geometric.data")


def one(num_nodes: int, num_edges: int, y: int = 0, edge_dim: int = 2, seed: int = 0):
    drawn = torch.Generator().manual_seed(seed)
    return pyg.Data(
        x=torch.randn(num_nodes, 3, generator=drawn),
        edge_index=torch.randint(0, num_nodes, (2, num_edges), generator=drawn),
        edge_attr=torch.randn(num_edges, edge_dim, generator=drawn),
        y=torch.tensor([y]),
    )


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 9), st.integers(-3, 3)), min_size=1, max_size=8))
def test_every_node_and_edge_is_there_with_its_features(shapes):
    graphs = [one(*shape, seed=number) for number, shape in enumerate(shapes)]
    raw = from_data_list(graphs, name="mine", split=[0] * len(graphs))
    classes = sorted({y for _, _, y in shapes})
    assert raw.labels.tolist() == [classes.index(y) for _, _, y in shapes]
    for number, data in enumerate(graphs):
        cut = raw.graphs.cut(np.array([number]), num_threads=1)
        targets = np.repeat(np.arange(len(cut.x)), np.diff(cut.indptr))
        ours = sorted(zip(cut.sources.tolist(), targets.tolist(), cut.edge_attr.tolist(), strict=True))
        theirs = sorted(zip(*data.edge_index.tolist(), data.edge_attr.tolist(), strict=True))
        assert ours == theirs
        np.testing.assert_array_equal(cut.x, data.x)


def test_a_dataset_of_pyg_is_written_and_opened(tmp_path):
    graphs = [one(4, 6, y=number % 2, seed=number) for number in range(40)]
    store = write_graphs(from_data_list(iter(graphs), name="mine"), tmp_path / "mine")
    assert store.metadata.num_graphs == 40
    assert store.graphs.num_graphs == 40
    assert len(store.labels) == 40


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": None}, "graph 1 has no x"),
        ({"y": None}, "graph 1 has no y"),
        ({"y": torch.tensor([1.0, 0.0])}, "graph 1 has y"),
        ({"y": torch.tensor([0.5])}, "graph 1 has y"),
        ({"x": torch.randn(4, 7)}, "7 columns"),
        ({"edge_index": torch.randn(2, 6)}, "edge_index is float32"),
        ({"edge_attr": torch.randn(5, 2)}, "edge_attr"),
        ({"edge_attr": None}, "1 of 2 graphs have edge_attr"),
        ({"edge_index": torch.full((2, 6), 9)}, "9"),
    ],
)
def test_what_does_not_fit_is_refused_by_number(change, words):
    odd = one(4, 6)
    for key, value in change.items():
        setattr(odd, key, value)
    with pytest.raises(UserError, match=words):
        from_data_list([one(4, 6), odd], name="mine")


def test_no_graphs_are_refused():
    with pytest.raises(UserError, match="no graphs"):
        from_data_list([], name="mine")
