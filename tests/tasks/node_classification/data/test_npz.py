"""Graphs from one .npz file."""

import subprocess
import sys

import numpy as np
import pytest
from slow_cases import with_slow

from graphmill.base.errors import UserError
from graphmill.graph.features import SparseFeatures
from graphmill.tasks.node_classification.data.prepare import prepare

N = 6
MASKS = {
    "train_mask": np.arange(N) < 2,
    "val_mask": np.arange(N) == 2,
    "test_mask": np.arange(N) == 3,
}
PLAIN = {
    "edge_index": np.array([[0, 1, 2], [1, 2, 3]]),
    "x": np.arange(2.0 * N).reshape(N, 2),
    "y": np.array([0, 1, 0, 1, 0, -1]),
    **MASKS,
}
CSR = {
    "x_data": np.array([1, 2], np.uint8),
    "x_indices": np.array([2, 0]),
    "x_indptr": np.array([0, 2, 2, 2, 2, 2, 2]),
    "x_shape": np.array([N, 3]),
}


MOST_MEMORY = """
import atexit, sys
from pathlib import Path
def most():  # not what `wait4` says, which counts the parent before it became this program
    print(*[line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")])
atexit.register(most)
sys.argv = sys.argv[1:]
from graphmill.cli import main
main()
"""


def load(tmp_path, arrays, **options):
    path = tmp_path / "graph.npz"
    np.savez_compressed(path, **arrays)
    store = prepare("mine", root=tmp_path / "root", from_path=path, **options)
    store.verify()
    return store


def without(*keys):
    return {key: value for key, value in PLAIN.items() if key not in keys}


def test_dense_features_and_masks(tmp_path):
    store = load(tmp_path, PLAIN)
    assert store.path == tmp_path / "root" / "mine"
    assert store.metadata.name == "mine"
    assert store.metadata.synthetic is False
    assert store.features.x.dtype == np.float32
    assert store.nodes_in("train").tolist() == [0, 1]
    assert store.labels.tolist() == [0, 1, 0, 1, 0, -1]


def test_what_is_not_read_is_said(tmp_path, caplog):
    load(tmp_path, {**PLAIN, "edge_time": np.ones(3), "notes": np.ones((3, 2))})
    assert "not used: edge_time, notes of graph.npz" in caplog.text


def test_weights_and_attributes_of_edges(tmp_path, caplog):
    attributes = {"edge_weight": np.array([3, 1, 2]), "edge_attr": np.array([[0.5, 1], [2, 3], [4, 5]])}
    store = load(tmp_path, {**PLAIN, "edge_index": np.array([[0, 2, 1], [1, 3, 2]]), **attributes})
    assert store.metadata.edge_features == ("edge_weight", "edge_attr_0", "edge_attr_1")
    assert store.edge_features(undirected=False).values.tolist() == [[3, 0.5, 1], [2, 4, 5], [1, 2, 3]]
    assert "edge features edge_weight, edge_attr_0, edge_attr_1: dataset.edge_features" in caplog.text


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("edge_weight", np.ones(4), r"key edge_weight\): float32 \[4, 1\], and there are 3 edges"),
        ("edge_weight", np.array(["a", "b", "c"]), "key edge_weight: <U1"),
        ("edge_attr", np.ones((3, 2, 1)), r"key edge_attr: float64 \[3, 2, 1\]"),
        ("edge_attr", np.ones((3, 0)), r"key edge_attr: float64 \[3, 0\]"),
        ("edge_weight", np.array([1, np.nan, 1]), r"edge 1 has \[nan\]"),
        ("edge_weight", np.array([1, 1e300, 1]), r"edge 1 has \[inf\]"),
    ],
)
def test_edge_features_that_are_none(tmp_path, name, values, said):
    with pytest.raises(UserError, match=said) as error:
        load(tmp_path, {**PLAIN, name: values})
    assert error.value.fix
    assert not (tmp_path / "root" / "mine").exists()


def test_a_split_that_contradicts_the_masks_is_refused(tmp_path):
    codes = np.array([0, 0, 1, 2, -1, -1])
    assert load(tmp_path, {**PLAIN, "split": codes}).metadata.splits["train"] == 2
    with pytest.raises(UserError, match="split and val_mask are different"):
        load(tmp_path, {**PLAIN, "split": np.array([0, 0, 2, 2, 1, -1])}, save_as="other")


def test_sparse_features_with_unsorted_columns(tmp_path):
    store = load(tmp_path, without("x") | CSR)
    assert isinstance(store.features, SparseFeatures)
    assert store.features.indices.tolist() == [0, 2]
    assert store.features.values.tolist() == [2, 1]


def test_a_split_of_codes_or_of_names(tmp_path):
    bare = without(*MASKS)
    codes = load(tmp_path, bare | {"split": np.array([0, 0, 1, 2, -1, -1])})
    names = load(tmp_path, bare | {"split": np.array(["train", "Train", "valid", "test", "", "none"])}, save_as="names")
    for split in ("train", "val", "test"):
        assert codes.nodes_in(split).tolist() == names.nodes_in(split).tolist()


def test_labels_as_a_column_of_floats(tmp_path):
    store = load(tmp_path, PLAIN | {"y": np.array([[0.0], [1], [0], [1], [0], [np.nan]])})
    assert store.labels.tolist() == [0, 1, 0, 1, 0, -1]


def test_unlabelled_overrides_y(tmp_path):
    store = load(tmp_path, PLAIN | {"y": np.array([0, 1, 0, 1, 0, 0]), "unlabelled": np.arange(N) == 4})
    assert store.labels.tolist() == [0, 1, 0, 1, -1, 0]


def test_class_names(tmp_path):
    assert load(tmp_path, PLAIN | {"class_names": np.array(["a", "b"])}).metadata.class_names == ("a", "b")


def test_a_random_split_covers_the_labelled_nodes(tmp_path):
    store = load(tmp_path, without(*MASKS), random_split=True, split_seed=3)
    assert store.metadata.splits == {"train": 3, "val": 1, "test": 1, "none": 1}
    assert "seed 3" in store.metadata.split


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (without("y"), "key y.*: node 0 is in the train split and has no label"),
        (without("edge_index"), "lacks edge_index"),
        (without("x"), "has no features"),
        (without("x") | {"x_data": CSR["x_data"]}, "of a sparse matrix x_indices, x_indptr, x_shape"),
        (without(*MASKS), "has no split"),
        (PLAIN | {"val_mask": PLAIN["train_mask"]}, "node 0 is in the train and the val split"),
        (PLAIN | {"val_mask": np.zeros(5, bool)}, "the val mask is bool"),
        (PLAIN | {"val_mask": np.full(N, 2)}, "the val mask is int64"),
        (PLAIN | {"train_mask": np.zeros(N, bool)}, "no node is in the training split"),
        (PLAIN | {"split": np.full(N, 4)}, "node 0 has 4"),
        (
            PLAIN | {"split": np.array(["train"] * 5 + ["tset"])},
            r"node 5: 'tset' is not a split\n.*did you mean 'test'",
        ),
        (PLAIN | {"x": np.full((N, 2), np.nan)}, r"key x\): row 0, column 0 is nan"),
        (PLAIN | {"x": np.full((N, 2), 1e300)}, "row 0, column 0 is inf"),
        (PLAIN | {"x": np.array(["a"] * N)}, "key x: <U1"),
        (PLAIN | {"x": np.zeros((4, 2))}, "6 labels, and the features have 4 rows"),
        (PLAIN | {"y": np.array([0.5] * N)}, "row 0 has label 0.5"),
        (PLAIN | {"y": np.array([2**63] * N, dtype=np.uint64)}, "node 0 has label -2"),
        (PLAIN | {"y": np.array(["a"] * N)}, "labels are <U1"),
        (PLAIN | {"y": np.zeros((N, 3, 1))}, "labels are float64"),
        (PLAIN | {"y": np.array([0, 1, 0, -1, 0, 0])}, "node 3 is in the test split and has no label"),
        (PLAIN | {"edge_index": np.array([[0, 7], [1, 1]])}, r"key edge_index\): edge 1 is 7 → 1"),
        (PLAIN | {"edge_index": np.array([[0], [-1]])}, "edge 0 is 0 → -1"),
        (PLAIN | {"edge_index": np.array([["0"], ["1"]])}, "it holds <U1"),
        (PLAIN | {"edge_index": np.zeros((2, 0), int)}, "no edges"),
        (PLAIN | {"class_names": np.array(["a"])}, "node 1 has label 1, and there are 1 class names"),
        (PLAIN | {"class_names": np.array([1, 2])}, "key class_names"),
        (PLAIN | {"unlabelled": np.zeros(3, bool)}, "key unlabelled"),
        (without("x") | CSR | {"x_shape": np.array([N])}, r"shape is \[6\]"),
        (without("x") | CSR | {"x_shape": np.array([N, 2])}, "names column 2"),
        (without("x") | CSR | {"x_shape": np.array([N + 1, 3])}, "6 rows, and the shape says 7"),
        (without("x") | CSR | {"x_indices": np.array([1, 1])}, "names a column twice"),
        (without("x") | CSR | {"x_data": np.ones(3)}, "3.* values for 2 indices"),
    ],
)
def test_refusals_name_the_file(tmp_path, arrays, said):
    with pytest.raises(UserError) as error:
        load(tmp_path, arrays)
    assert "graph.npz" in str(error.value)
    assert error.match(said)
    assert not (tmp_path / "root" / "mine").exists()


TYPES = {
    "edge_index": np.array([[0, 1, 0, 0, 2], [1, 2, 1, 1, 3]]),
    "edge_type": np.array([0, 1, 2, 0, 0], np.int8),
    "edge_type_names": np.array(["is a", "has", "near"]),
}
KINDS = np.array(["x", "y", "x", "y", "x", "x"])


def test_types_of_edges_and_nodes(tmp_path, caplog):
    store = load(tmp_path, {**PLAIN, **TYPES, "node_type": KINDS})
    known = store.metadata
    assert known.relation_names == ("x:is a:y", "y:has:x", "x:near:y")
    assert [(each.name, each.num_nodes) for each in known.node_types] == [("x", 4), ("y", 2)]
    assert store.edge_features(undirected=False).values.tolist() == [[0], [2], [1], [0]]
    assert "typed graph: 3 edge types (x:is a:y, y:has:x, x:near:y)" in caplog.text
    assert "(1 were)" in caplog.text
    assert "-o typed=false" in caplog.text
    assert dict(store.described())["edge types"] == "3: x:is a:y 2, y:has:x 1, x:near:y 1"


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ({"node_type": np.array([1, 0, 1, 0, 1, 1]), "node_type_names": np.array(["y", "x"])}, ("y", "x")),
        ({"pos": KINDS}, ("x", "y")),  # WordNet's parts of speech
        ({"pos": np.ones((N, 3))}, ("node",)),  # positions in space
        ({}, ("node",)),
    ],
)
def test_forms_of_node_types(tmp_path, nodes, names):
    assert load(tmp_path, {**PLAIN, **TYPES, **nodes}).metadata.node_type_names == names


def test_without_types_if_asked(tmp_path, caplog):
    store = load(tmp_path, {**PLAIN, **TYPES}, typed=False)
    assert "typed=false" in caplog.text
    plain = prepare("plain", root=tmp_path, from_path=_saved(tmp_path, {**PLAIN, "edge_index": TYPES["edge_index"]}))
    assert store.metadata.edge_types == ()
    assert store.metadata.arrays == plain.metadata.arrays


def test_types_of_edges_without_names_are_no_types(tmp_path, caplog):
    store = load(tmp_path, {**PLAIN, **{key: TYPES[key] for key in ("edge_index", "edge_type")}, "pos": KINDS})
    assert store.metadata.edge_types == ()
    assert "not used: edge_type, pos of graph.npz" in caplog.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"edge_type": np.array([0, 1])}, r"key edge_type: int64 \[2\] for 5 edges"),
        ({"edge_type": np.array([0, 1, 2, 3, 0])}, "types 0 to 3, and there are names of 3"),
        ({"edge_type": np.zeros(5)}, "key edge_type: float64"),
        ({"edge_type_names": np.array(["a", "b", "a"])}, "key edge_type_names: .*"),
        ({"node_type": KINDS[:4]}, r"key node_type: <U1 \[4\] for 6 nodes"),
        ({"node_type": np.arange(6)}, "numbers without node_type_names"),
        ({"edge_index": np.array([[0, 9, 0, 0, 2], [1, 2, 1, 1, 3]])}, "edge 1 is 9 → 2"),
    ],
)
def test_types_that_do_not_fit(tmp_path, change, said):
    with pytest.raises(UserError, match=said):
        load(tmp_path, {**PLAIN, **TYPES, **change})


def test_the_other_direction_on_request(tmp_path):
    known = load(tmp_path, {**PLAIN, **TYPES, "node_type": KINDS}, reverse_relations=True).metadata
    assert known.relation_names[3:] == ("y:rev_is a:x", "x:rev_has:y", "y:rev_near:x")
    assert known.num_edges == 8
    with pytest.raises(UserError, match="holds a prepared dataset"):
        prepare("mine", root=tmp_path / "root", reverse_relations=True)
    with pytest.raises(UserError, match="has no edge types"):
        prepare("plain", root=tmp_path, from_path=_saved(tmp_path, PLAIN), reverse_relations=True)


def _saved(tmp_path, arrays):
    path = tmp_path / "other.npz"
    np.savez(path, **arrays)
    return path


def test_a_pickle_is_not_loaded(tmp_path):
    with pytest.raises(UserError, match="key y: it cannot be read: it holds Python objects"):
        load(tmp_path, PLAIN | {"y": np.array([{}] * N, dtype=object)})


def test_a_header_that_asks_for_more_than_there_is(tmp_path):
    import io
    import zipfile

    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**15, 2)})
    path = tmp_path / "graph.npz"
    np.savez(path, **without("x"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(64))
    with pytest.raises(UserError, match="its header asks for 16000000000000"):
        prepare("mine", root=tmp_path, from_path=path)


def test_no_zip_archive(tmp_path):
    (tmp_path / "graph.npz").write_text("hello")
    with pytest.raises(UserError, match=r"cannot be read as \.npz"):
        prepare("mine", root=tmp_path, from_path=tmp_path / "graph.npz")


@pytest.mark.parametrize("write", with_slow([np.savez, np.savez_compressed], fast=[np.savez]))
def test_features_are_never_all_in_memory(tmp_path, source_environ, write):
    """The most that prepare takes, besides that of a small graph: the keys of the edges, and blocks of features."""
    rng = np.random.default_rng(0)
    num_edges, peaks = 500_000, []
    for name, num_nodes in (("small", 1_000), ("large", 300_000)):
        edges = rng.integers(0, num_nodes, (2, num_edges if name == "large" else 10))
        x = rng.standard_normal((num_nodes, 128), dtype=np.float32)
        write(
            tmp_path / f"{name}.npz",
            x=x,
            edge_index=edges,
            y=rng.integers(0, 2, num_nodes),
            split=np.arange(num_nodes) % 3,
        )
        words = ["graphmill", "prepare", name, "--from", f"{name}.npz", "--dataset-root", "data"]
        done = subprocess.run(
            [sys.executable, "-c", MOST_MEMORY, *words],
            cwd=tmp_path,
            env=source_environ,
            check=True,
            capture_output=True,
            text=True,
        )
        peaks.append(int(done.stdout.splitlines()[-1].split()[1]) << 10)
    blocks = 96 << 20  # of rows and edges that are checked, converted, written: 2^24 bytes each, several under way
    assert peaks[0] > 16 << 20
    assert peaks[1] - peaks[0] <= 28 * num_edges + 40 * 300_000 + blocks, "the features alone are 146 MiB"
    stored = np.load(tmp_path / "data" / "large" / "x.npy", mmap_mode="r")
    assert np.array_equal(stored, x)
