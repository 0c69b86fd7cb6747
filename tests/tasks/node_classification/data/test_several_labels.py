"""Several labels for each node: from each source to the store, what is said of them, and what is refused."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from labelled_stores import made_store, split_made
from torch_geometric.data import Data, HeteroData

from graphmill.base.errors import UserError
from graphmill.partition.parts import PartedGraph
from graphmill.partition.verify import verify_parts
from graphmill.tasks.node_classification.data.describe import describe
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.data.sources.hetero import from_hetero
from graphmill.tasks.node_classification.data.sources.pyg import from_data
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store

N = 8
EDGES = np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
X = np.arange(2.0 * N, dtype=np.float32).reshape(N, 2)
Y = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0], [0, 1, 1], [1, 0, 1], [-1, -1, -1], [-1, -1, -1]])
SPLIT = np.array([0, 0, 0, 1, 1, 2, -1, -1])
MASKS = {f"{name}_mask": code == SPLIT for code, name in enumerate(("train", "val", "test"))}


def of_archive(folder: Path, y: np.ndarray, **options) -> LabelledGraphStore:
    np.savez(folder / "g.npz", edge_index=EDGES, x=X, y=y, **MASKS)
    return prepare("m", root=folder, from_path=folder / "g.npz", **options)


def of_data(folder: Path, y: np.ndarray) -> LabelledGraphStore:
    masks = {name: torch.from_numpy(mask) for name, mask in MASKS.items()}
    data = Data(x=torch.from_numpy(X), edge_index=torch.from_numpy(EDGES), y=torch.from_numpy(y), **masks)
    return write_store(from_data(data, name="m"), folder / "m")


def of_hetero(folder: Path, y: np.ndarray) -> LabelledGraphStore:
    data = HeteroData()
    data["protein"].x, data["protein"].y = torch.from_numpy(X), torch.from_numpy(y)
    for name, mask in MASKS.items():
        data["protein"][name] = torch.from_numpy(mask)
    data["protein", "binds", "protein"].edge_index = torch.from_numpy(EDGES)
    return write_store(from_hetero(data, name="m", source="a HeteroData"), folder / "m")


def of_ogb_tables(folder: Path, y: np.ndarray) -> LabelledGraphStore:
    y = y.astype(float)
    tables = {"edge": EDGES.T, "node-feat": X, "node-label": y, "num-node-list": [[N]], "num-edge-list": [[5]]}
    write_tables(folder, {f"raw/{name}": rows for name, rows in tables.items()})
    return prepare("ogbn-mine", root=folder / "root", from_path=folder)


def of_ogb_arrays(folder: Path, y: np.ndarray) -> LabelledGraphStore:
    write_tables(folder, {})
    (folder / "raw").mkdir()
    np.savez(folder / "raw/data.npz", edge_index=EDGES, node_feat=X)
    np.savez(folder / "raw/node-label.npz", node_label=y)
    return prepare("ogbn-mine", root=folder / "root", from_path=folder)


def write_tables(folder: Path, tables: dict) -> None:
    splits = {
        f"split/s/{name}": np.flatnonzero(code == SPLIT)[:, None]
        for code, name in enumerate(("train", "valid", "test"))
    }
    for name, rows in {**tables, **splits}.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        path.write_bytes(gzip.compress(text.encode()))


SOURCES = [of_archive, of_data, of_hetero, of_ogb_tables, of_ogb_arrays]


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64])
@pytest.mark.parametrize("source", SOURCES)
def test_labels_are_those_of_the_source(source, dtype, tmp_path):
    """-1 and NaN: a node without labels."""
    y = Y.astype(dtype)
    if np.dtype(dtype).kind == "f":
        y[Y < 0] = np.nan
    store = source(tmp_path, y)
    store.verify()
    store = LabelledGraphStore.open(store.path)
    assert (store.metadata.target_kind, store.metadata.num_classes) == ("labels", 3)
    assert store.labels.dtype == np.int8
    assert np.array_equal(store.labels, Y)
    assert store.metadata.splits == {"train": 3, "val": 2, "test": 1, "none": 2}


def test_of_true_and_false_with_a_key_that_says_which_nodes_have_none(tmp_path):
    np.savez(tmp_path / "g.npz", edge_index=EDGES, x=X, y=Y == 1, unlabelled=Y[:, 0] < 0, **MASKS)
    store = prepare("m", root=tmp_path, from_path=tmp_path / "g.npz")
    assert np.array_equal(store.labels, Y)


def test_a_random_split_is_of_labelled_nodes(tmp_path):
    store = of_archive(tmp_path, Y, random_split=True)
    assert store.metadata.splits["none"] == 2
    assert (store.array("split")[6:] == -1).all()


def test_how_often_each_label_is_had_is_said(tmp_path, caplog):
    caplog.set_level("INFO", "graphmill")
    store = of_archive(tmp_path, Y)
    facts = describe(store)
    assert facts["target_kind"] == "labels"
    assert facts["labels"] == {"0": 3, "1": 2, "2": 5, "(unlabelled)": 2}
    assert facts["edge_homophily"] is None
    json.dumps(facts, allow_nan=False)
    shown = dict(store.described())
    assert shown["labels"] == "3 for each node (multi-label)"
    assert shown["labels in train"] == "3 of 3, 33.3 to 100.0 % of the nodes each, 2.00 a node"
    assert shown["labels in test"] == "2 of 3, 0.0 to 100.0 % of the nodes each, 2.00 a node"
    assert "y has 3 columns of 0 and 1: several labels for each node" in caplog.text
    assert "1 of 3 labels are had by every training node: a model learns nothing of them (2)" in caplog.text
    assert "one-hot" not in caplog.text


@pytest.mark.parametrize(
    ("place", "value", "said", "fix"),
    [
        ((1, 2), 2, "row 1, column 2 has 2", "one column, the number of the class"),
        ((4, 0), -2, "row 4, column 0 has -2", "-1 in a whole row"),
        ((4, 0), 0.5, "row 4, column 0 has 0.5", "-1 in a whole row"),
        ((4, 1), np.nan, "node 4 lacks 1 of its 3 labels and has the others", "-1 in a whole row"),
        (0, np.nan, r"node 0 is in the train split and has no label \(1 such", "take it out"),
        (
            ...,
            -1,
            "is in the train split and has no label|no node has labels",
            "split|leave y",
        ),
    ],
)
@pytest.mark.parametrize("source", SOURCES)
def test_what_is_no_label_is_refused_where_it_is(source, place, value, said, fix, tmp_path):
    y = Y.astype(np.float64)
    y[place] = value
    with pytest.raises(UserError, match=said) as error:
        source(tmp_path, y)
    assert any(each in error.value.fix for each in fix.split("|"))
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (np.zeros((N, 3, 1)), r"float64 \[8, 3, 1\]"),
        (np.zeros((N, 0)), r"float64 \[8, 0\]"),
        (np.full((N, 2), "a"), r"<U1 \[8, 2\]"),
        (Y[:5], "key y has 5 labels, and the features have 8 rows"),
    ],
)
def test_other_shapes_are_refused(y, said, tmp_path):
    with pytest.raises(UserError, match=said) as error:
        of_archive(tmp_path, y)
    assert error.value.fix


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "a"]])
def test_as_many_names_as_labels_each_once(tmp_path, names):
    np.savez(tmp_path / "g.npz", edge_index=EDGES, x=X, y=Y, class_names=np.array(names), **MASKS)
    with pytest.raises(UserError, match=rf"{len(names)} names, 2 of them different, for 3 labels"):
        prepare("m", root=tmp_path, from_path=tmp_path / "g.npz")


@pytest.mark.parametrize("column", [Y[:, 2], Y[:, 2:], Y[:, 2].astype(np.float32)])
def test_one_column_is_a_class_as_ever_and_no_label(tmp_path, column):
    """[num_nodes, 1] too, as OGB writes classes; who asks for labels is told, and nothing is guessed."""
    (tmp_path / "one").mkdir()
    store = of_archive(tmp_path / "one", column)
    assert (store.metadata.target_kind, store.labels.dtype) == ("class", np.int64)
    assert store.labels.tolist() == Y[:, 2].tolist()
    with pytest.raises(UserError, match=r"one number for each node, \[8\]: a class; and target=labels") as error:
        of_archive(tmp_path, column, target="labels")
    assert "leave target out" in error.value.fix


def test_rows_with_a_single_one_are_a_question_that_target_answers(tmp_path, caplog):
    caplog.set_level("INFO", "graphmill")
    one_hot = np.where(Y < 0, -1, np.eye(3, dtype=int)[np.arange(N) % 3])
    assert of_archive(tmp_path, one_hot).metadata.target_kind == "labels"
    assert "if these are classes, one-hot, prepare them as such: -o target=class" in caplog.text
    store = of_archive(tmp_path, one_hot, target="class", force=True)
    assert store.labels.tolist() == [0, 1, 2, 0, 1, 2, -1, -1]
    assert store.metadata.num_classes == 3
    with pytest.raises(UserError, match="several labels for some nodes"):
        of_archive(tmp_path, Y, target="class", force=True)


def test_a_store_of_classes_says_nothing_of_targets(tmp_path):
    """So that its checksum is that of stores from before there were others."""
    store = made_store(tmp_path / "classes")
    raw = json.loads((store.path / "metadata.json").read_text())
    assert "target_kind" not in raw
    assert (store.metadata.target_kind, store.labels.dtype, store.labels.ndim) == ("class", np.int64, 1)
    assert store.metadata.checksum == "e45a6c9926723790bab076331ae9b0c1"


@pytest.mark.parametrize("wrong", [2, -1])
def test_damage_is_found(tmp_path, wrong):
    store = made_store(tmp_path / "s", several=True)
    y = np.load(store.path / "y.npy")
    node = int(store.nodes_in("train")[0])
    y[node, 3] = wrong
    np.save(store.path / "y.npy", y)
    with pytest.raises(UserError, match=r"y\.npy"):
        LabelledGraphStore.open(store.path).verify()


@pytest.mark.parametrize("form", [{}, {"is_sparse": True}, {"typed": True}])
def test_parts_have_the_labels_of_their_nodes(tmp_path, form):
    store = made_store(tmp_path / "s", several=True, **form)
    graph = split_made(store, tmp_path / "p")
    verify_parts(graph)
    assert graph.metadata.target_kind == "labels"
    for number in range(graph.metadata.num_parts):
        part = graph.part(number)
        assert np.array_equal(part.array("y"), store.labels[part.node_ids])
    graph = PartedGraph.open(tmp_path / "p")
    for split in ("train", "val", "test"):
        nodes = np.random.default_rng(0).permutation(store.nodes_in(split))
        found = graph.labels[nodes]
        assert found.dtype == np.int8
        assert np.array_equal(found, store.labels[nodes])


def test_arrays_that_are_no_labels_are_refused_before_they_are_written(tmp_path):
    for labels in (Y.astype(np.int64), Y[:, :1].astype(np.int8), Y.astype(np.float32)):
        raw = LabelledGraph(
            edge_index=EDGES,
            features=made_store(tmp_path / "s").features,
            labels=labels,
            split=SPLIT.astype(np.int8),
            name="m",
            source="by hand",
            synthetic=True,
        )
        with pytest.raises(UserError, match=r"labels\): (int64|int8|float32) \[8, [13]\]"):
            write_store(raw, tmp_path / "m")
