"""A graph that is written comes back; one that cannot be trained on is refused with its place and its remedy."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphmill
from graphmill.base.errors import UserError
from graphmill.graph.features import DenseFeatures, SparseFeatures, dense, sparse, stored_as, to_float32
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store
from graphmill.tasks.node_classification.page import GraphDatasetSpec


def small_graph(**changes):
    """Six nodes, edges 0→1→2→3 and back from 1 to 0; node 4 has a self-loop, node 5 nothing, and node 3 no label."""
    raw = LabelledGraph(
        edge_index=np.array([[0, 1, 1, 2, 4, 0], [1, 0, 2, 3, 4, 1]]),
        features=dense(np.arange(12, dtype=np.float32).reshape(6, 2)),
        labels=np.array([0, 1, 0, -1, 1, 0]),
        split=np.array([0, 0, 1, -1, 2, 2], dtype=np.int8),
        name="small",
        source="written by hand",
        synthetic=True,
        class_names=("red", "blue"),
    )
    return dataclasses.replace(raw, **changes)


def test_round_trip(tmp_path):
    store = write_store(small_graph(), tmp_path / "small")
    store.verify()
    assert store == LabelledGraphStore.open(tmp_path / "small")
    given_topology, undirected = store.topology(undirected=False), store.topology(undirected=True)
    assert given_topology.indptr.tolist() == [0, 1, 2, 3, 4, 5, 5]
    assert given_topology.indices.tolist() == [1, 0, 1, 2, 4]
    assert undirected.indptr.tolist() == [0, 1, 3, 5, 6, 7, 7]
    assert undirected.indices.tolist() == [1, 0, 2, 1, 3, 2, 4]
    assert store.labels.tolist() == [0, 1, 0, -1, 1, 0]
    assert [store.nodes_in(split).tolist() for split in ("train", "val", "test")] == [[0, 1], [2], [4, 5]]
    assert store.features.x.tolist() == small_graph().features.x.tolist()


def test_metadata_counts(tmp_path):
    metadata = write_store(small_graph(), tmp_path / "small").metadata
    assert metadata.num_nodes == 6
    assert metadata.num_edges == 5
    assert metadata.num_undirected_edges == 7
    assert metadata.num_duplicate_edges == 1
    assert metadata.num_self_loops == 1
    assert metadata.num_isolated_nodes == 2
    assert metadata.is_symmetric is False
    assert metadata.num_classes == 2
    assert metadata.class_names == ("red", "blue")
    assert metadata.splits == {"train": 2, "val": 1, "test": 2, "none": 1}
    assert metadata.synthetic is True
    assert metadata.created_by == f"graphmill {graphmill.__version__}"


def test_facts_name_the_checksum_and_an_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_store(small_graph(), tmp_path / "small")
    facts = LabelledGraphStore.open((tmp_path / "small").relative_to(tmp_path)).info(GraphDatasetSpec())
    assert facts.path == str(tmp_path / "small")
    assert facts.checksum == LabelledGraphStore.open(tmp_path / "small").metadata.checksum
    assert facts.num_train == 2
    assert facts.has_sparse_features is False


def test_a_symmetric_graph_is_stored_once(tmp_path):
    store = write_store(small_graph(edge_index=np.array([[0, 1, 2, 3], [1, 0, 3, 2]])), tmp_path / "s")
    assert store.metadata.is_symmetric
    assert not (tmp_path / "s" / "undirected_indices.npy").exists()
    assert store.topology(undirected=True).indices.tolist() == store.topology(undirected=False).indices.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dense_formats(tmp_path, dtype):
    features = stored_as(dense(np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)), dtype)
    store = write_store(small_graph(features=features), tmp_path / dtype)
    store.verify()
    assert isinstance(store.features, DenseFeatures)
    assert store.features.dtype == dtype
    assert np.array_equal(to_float32(store.features), to_float32(features))


def test_sparse_features(tmp_path):
    features = sparse(np.array([0, 1, 1, 3, 3, 3, 4]), np.array([6, 0, 2, 1]), np.array([1, 2, 3, 4]), 7)
    store = write_store(small_graph(features=features), tmp_path / "s")
    store.verify()
    assert isinstance(store.features, SparseFeatures)
    assert store.features.indptr.tolist() == [0, 1, 1, 3, 3, 3, 4]
    assert store.features.values.tolist() == [1, 2, 3, 4]
    assert store.metadata.num_features == 7
    assert store.info(GraphDatasetSpec()).has_sparse_features is True


def test_sparse_features_without_a_value(tmp_path):
    store = write_store(
        small_graph(features=sparse(np.zeros(7, int), np.empty(0, int), np.empty(0), 3)), tmp_path / "s"
    )
    store.verify()
    assert len(store.features.values) == 0


def test_fortran_order_and_big_endian_arrays_are_written_plainly(tmp_path):
    x = np.asfortranarray(np.arange(12, dtype=">f4").reshape(6, 2))
    raw = small_graph(features=dense(x), labels=np.array([0, 1, 0, -1, 1, 0], dtype=">i8"))
    store = write_store(raw, tmp_path / "s")
    store.verify()
    assert store.features.x.tolist() == x.tolist()
    assert store.features.x.dtype == np.dtype("<f4")
    assert store.labels.tolist() == [0, 1, 0, -1, 1, 0]


def test_the_same_graph_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_store(small_graph(), tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_arrays_are_mapped_and_read_only(tmp_path):
    store = write_store(small_graph(), tmp_path / "s")
    with pytest.raises(ValueError, match="read-only"):
        store.features.x[0, 0] = 1


def test_a_store_is_replaced_as_a_whole(tmp_path):
    write_store(small_graph(), tmp_path / "s")
    features = sparse(np.zeros(7, int), np.empty(0, int), np.empty(0), 3)
    write_store(small_graph(features=features), tmp_path / "s").verify()
    assert not (tmp_path / "s" / "x.npy").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@st.composite
def raw_graphs(draw):
    num_nodes = draw(st.integers(1, 9))
    node = st.integers(0, num_nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), min_size=1, max_size=30))
    split = draw(st.lists(st.sampled_from([-1, 0, 1, 2]), min_size=num_nodes, max_size=num_nodes))
    split[draw(node)] = 0
    labels = [draw(st.integers(-1 if code == -1 else 0, num_nodes - 1)) for code in split]
    return LabelledGraph(
        edge_index=np.array(pairs).T,
        features=dense(np.zeros((num_nodes, 1))),
        labels=np.array(labels),
        split=np.array(split, dtype=np.int8),
        name="random",
        source="hypothesis",
        synthetic=True,
    )


@settings(deadline=None, max_examples=60)
@given(raw=raw_graphs())
def test_any_valid_graph_verifies(raw, tmp_path_factory):
    store = write_store(raw, tmp_path_factory.mktemp("graphs") / "store")
    store.verify()
    assert store.metadata.num_edges + store.metadata.num_duplicate_edges == raw.edge_index.shape[1]
    assert store.metadata.num_classes == raw.labels.max() + 1
    assert np.array_equal(store.nodes_in("train"), np.flatnonzero(raw.split == 0))


NAN = np.array([[0.0, 1], [np.nan, 1], [0, 0], [0, 0], [0, 0], [0, 0]], dtype=np.float32)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"edge_index": np.array([[0, 6], [1, 2]])}, "edge 1 is 6 → 2, and nodes run from 0 to 5"),
        ({"edge_index": np.array([[0, 1], [1, -1]])}, "edge 1 is 1 → -1"),
        ({"edge_index": np.empty((2, 0), int)}, "no edges"),
        ({"edge_index": np.zeros((3, 2), int)}, r"shape is \[3, 2\]"),
        ({"edge_index": np.zeros((2, 2))}, "float64"),
        ({"labels": np.empty(0, int), "split": np.empty(0, np.int8)}, "no nodes"),
        ({"labels": np.array([0, 1, 0, -1, 2, 0])}, "node 4 has label 2, and there are 2 class names"),
        ({"labels": np.array([0, 1, 0, -2, 1, 0])}, "node 3 has label -2"),
        ({"labels": np.array([0, 1, 0, 9, 1, 0]), "class_names": ()}, "node 3 has label 9"),
        ({"labels": np.array([0, -1, 0, -1, 1, 0])}, "node 1 is in the train split and has no label"),
        ({"labels": np.zeros((6, 2), int)}, r"int64 \[6, 2\]"),
        ({"labels": np.zeros(6)}, "float64"),
        ({"split": np.array([1, 1, 1, -1, 2, 2], np.int8)}, "no node is in the training split"),
        ({"split": np.array([0, 0, 1, -1, 2, 3], np.int8)}, "node 5 has 3"),
        ({"split": np.zeros(5, np.int8)}, "6 nodes"),
        ({"features": dense(NAN)}, "row 1, column 0 is nan"),
        ({"features": dense(np.zeros((5, 2)))}, "5 rows, and there are 6 nodes"),
        ({"features": dense(np.zeros((6, 0)))}, "no features"),
        ({"features": DenseFeatures(np.zeros(6, np.float32), "float32")}, r"float32 \[6\]"),
        ({"features": DenseFeatures(np.zeros((6, 2)), "float32")}, "float64"),
        (
            {"features": SparseFeatures(np.array([0, 1]), np.array([9], np.int32), np.ones(1, np.float32), 3)},
            "row 0 names column 9",
        ),
        (
            {"features": SparseFeatures(np.array([0, 2]), np.array([1, 1], np.int32), np.ones(2, np.float32), 3)},
            "row 0",
        ),
        (
            {"features": SparseFeatures(np.array([0, 1]), np.array([1], np.int32), np.ones(2, np.float32), 3)},
            "2 values",
        ),
    ],
)
def test_refusals(tmp_path, changes, said):
    with pytest.raises(UserError, match=said) as error:
        write_store(small_graph(**changes), tmp_path / "s")
    assert "small" in error.value.message
    assert error.value.fix
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_names_where_the_array_was_read(tmp_path):
    raw = small_graph(edge_index=np.array([[9], [0]]), origin={"edge_index": "edges.csv"})
    with pytest.raises(UserError, match=r"small \(edges\.csv\): edge 0 is 9 → 0"):
        write_store(raw, tmp_path / "s")


def test_a_refused_graph_leaves_the_old_store(tmp_path):
    write_store(small_graph(), tmp_path / "s")
    with pytest.raises(UserError):
        write_store(small_graph(features=dense(NAN)), tmp_path / "s")
    LabelledGraphStore.open(tmp_path / "s").verify()


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "s").write_text("mine")
    with pytest.raises(UserError, match="is a file"):
        write_store(small_graph(), tmp_path / "s")
    assert (tmp_path / "s").read_text() == "mine"


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def no_space(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", no_space)
    with pytest.raises(UserError, match="No space left"):
        write_store(small_graph(), tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_the_checksum_does_not_depend_on_who_wrote_it(tmp_path, monkeypatch):
    first = write_store(small_graph(), tmp_path / "a")
    monkeypatch.setattr(graphmill, "__version__", "9.9")
    second = write_store(small_graph(), tmp_path / "b")
    assert second.metadata.created_by == "graphmill 9.9"
    assert first.metadata.checksum == second.metadata.checksum
    assert json.loads((tmp_path / "a" / "metadata.json").read_text())["checksum"] == first.metadata.checksum
