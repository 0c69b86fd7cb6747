"""Sets of graphs as others keep them: read as they are, or refused by file and line."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.graph.graph_set import GraphSet
from graphmill.tasks.graph_classification.data.read import holds_graphs, read_graphs
from graphmill.tasks.graph_classification.page import KIND

FILES = {
    "A": "1, 2\n2, 1\n4, 3\n5, 4\n",
    "graph_indicator": "1\n1\n2\n2\n2\n",
    "graph_labels": "-1\n1\n",
    "node_labels": "7\n9\n7\n7\n9\n",
    "node_attributes": "0.5, 1\n1.5, 2\n2.5, 3\n3.5, 4\n4.5, 5\n",
    "edge_attributes": "1\n2\n3\n4\n",
}


def write(folder: Path, files: dict[str, str | None]) -> Path:
    folder.mkdir(parents=True)
    for key, text in files.items():
        if text is not None:
            (folder / f"ME_{key}.txt").write_text(text)
    return folder


def edges(graphs: GraphSet, number: int) -> list[tuple]:
    one = graphs.cut(np.array([number]), num_threads=1)
    targets = np.repeat(np.arange(len(one.x)), np.diff(one.indptr))
    return sorted(zip(one.sources.tolist(), targets.tolist(), one.edge_attr.tolist(), strict=True))


def test_all_files_of_tudataset(tmp_path):
    read = read_graphs(write(tmp_path / "ME", FILES))
    assert read.labels.tolist() == [-1, 1]
    assert np.diff(read.graphs.node_offsets).tolist() == [2, 3]
    assert edges(read.graphs, 0) == [(0, 1, [1.0]), (1, 0, [2.0])]
    assert edges(read.graphs, 1) == [(1, 0, [3.0]), (2, 1, [4.0])]
    assert read.graphs.x.tolist() == [[0.5, 1, 1, 0], [1.5, 2, 0, 1], [2.5, 3, 1, 0], [3.5, 4, 1, 0], [4.5, 5, 0, 1]]


def test_nodes_in_any_order(tmp_path):
    mixed = {"graph_indicator": "2\n1\n2\n1\n2\n", "A": "2, 4\n4, 2\n3, 1\n5, 3\n", "node_labels": None}
    read = read_graphs(write(tmp_path / "ME", {**FILES, **mixed}))
    assert read.graphs.x[:, 0].tolist() == [1.5, 3.5, 0.5, 2.5, 4.5]
    assert edges(read.graphs, 0) == [(0, 1, [1.0]), (1, 0, [2.0])]
    assert edges(read.graphs, 1) == [(1, 0, [3.0]), (2, 1, [4.0])]


def test_nodes_without_features_have_their_degree(tmp_path):
    read = read_graphs(write(tmp_path / "ME", {**FILES, "node_labels": None, "node_attributes": None}))
    assert read.graphs.x.tolist() == [[1], [1], [1], [1], [0]]
    assert "in-degree" in read.notes[0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"A": "1, 2\n2, 9\n"}, "ME_A.txt, line 2"),
        ({"A": "1, 2\n0, 1\n"}, "ME_A.txt, line 2"),
        ({"A": "1, 2\n2, 3\n"}, "ME_A.txt, line 2: an edge between two graphs"),
        ({"A": "1 2\n"}, "ME_A.txt"),
        ({"A": "1, 2\n2, 1.5\n"}, "ME_A.txt, line 2: not a whole number"),
        ({"A": "1, 2\nx, y\n"}, "ME_A.txt"),
        ({"A": "1\n"}, "ME_A.txt, line 1"),
        ({"graph_indicator": "1\n1\n2\n2\n3\n"}, "ME_graph_indicator.txt, line 5: none of the 2 graphs"),
        ({"graph_indicator": "0\n1\n2\n2\n2\n"}, "ME_graph_indicator.txt, line 1"),
        ({"graph_labels": None}, "lacks ME_graph_labels.txt"),
        ({"graph_indicator": None}, "0 files"),
        ({"node_labels": "7\n9\n"}, "ME_node_labels.txt has 2 lines for 5"),
        ({"node_attributes": "1, 2\n1\n"}, "ME_node_attributes.txt"),
        ({"edge_attributes": "1\n"}, "ME_edge_attributes.txt has 1 lines for 4"),
        ({"edge_labels": "1\n2\n3\n4.5\n"}, "ME_edge_labels.txt, line 4"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_line(tmp_path, changes, says):
    with pytest.raises(UserError) as found:
        read_graphs(write(tmp_path / "ME", {**FILES, **changes}))
    assert says in found.value.message


def test_a_zip_is_as_its_folder(tmp_path):
    folder, packed = write(tmp_path / "ME", FILES), tmp_path / "ME.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in folder.iterdir():
            archive.write(path, f"ME/{path.name}")
    assert holds_graphs(folder)
    assert holds_graphs(packed)
    one, other = read_graphs(folder).graphs, read_graphs(packed).graphs
    assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in GraphSet.__slots__)
    packed.write_bytes(packed.read_bytes()[:-30])
    assert not holds_graphs(packed)
    with pytest.raises(UserError, match="cannot be read"):
        read_graphs(packed)


@given(st.data())
def test_whatever_is_in_the_files_is_read_or_refused(tmp_path_factory, data):
    """No error but ours, whatever a line holds."""
    lines = st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=6)
    changed = data.draw(st.sampled_from(sorted(FILES)))
    texts = {**FILES, changed: "\n".join(data.draw(lines))}
    folder = write(tmp_path_factory.mktemp("any") / "ME", texts)
    try:
        read = read_graphs(folder)
    except UserError:
        return
    assert len(read.labels) == read.graphs.num_graphs


ARRAYS = {
    "num_nodes": np.array([2, 3]),
    "num_edges": np.array([1, 2]),
    "edge_index": np.array([[0, 1, 2], [1, 0, 1]]),
    "x": np.ones((5, 2), np.float32),
    "y": np.array([0, 3]),
}


def test_arrays(tmp_path):
    np.savez(tmp_path / "me.npz", **ARRAYS, edge_attr=np.arange(3.0)[:, None], split=np.array([0, 2]))
    assert holds_graphs(tmp_path / "me.npz")
    read = read_graphs(tmp_path / "me.npz")
    assert edges(read.graphs, 1) == [(1, 0, [1.0]), (2, 1, [2.0])]
    assert read.split.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"x": np.ones(5)}, "key x: it has 1 dimensions"),
        ({"y": np.array([0.5, 1])}, "key y: float64"),
        ({"edge_index": np.array([[0, 1, 3], [1, 0, 1]])}, "graph 1 has 3 nodes, and an edge from 3 to 1"),
        ({"num_nodes": np.array([2, 4])}, "nodes and rows of x are 6 and 5"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, changes, says):
    np.savez(tmp_path / "me.npz", **{**ARRAYS, **changes})
    with pytest.raises(UserError) as found:
        read_graphs(tmp_path / "me.npz")
    assert says in found.value.message


@pytest.mark.parametrize("name", ["ENZYMES", "PROTEINS"])
def test_real_data_are_what_the_catalogue_says(shared_data, name):
    graphs = read_graphs(shared_data(f"raw_layouts/TU/{name}.zip")).graphs
    nodes, edges = np.diff(graphs.node_offsets), np.diff(graphs.edge_offsets)
    known = next(each for each in KIND.data.known if each.name == f"tu/{name.lower()}").sizes
    found = {"num_graphs": len(nodes), "num_nodes": nodes.sum(), "num_edges": edges.sum()}
    found |= {"max_nodes": nodes.max(), "max_edges": edges.max()}
    assert found == {key: known[key] for key in found}
