"""Graphs in .npz files that are broken, of another layout, or contradict themselves."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rows.mishap import Mishap

N = 6
GRAPH: dict[str, Any] = {
    "edge_index": np.array([[0, 1, 2], [1, 2, 3]]),
    "x": np.arange(2.0 * N).reshape(N, 2),
    "y": np.array([0, 1, 0, 1, 0, -1]),
    "train_mask": np.arange(N) < 2,
    "val_mask": np.arange(N) == 2,
    "test_mask": np.arange(N) == 3,
}
SPARSE = {
    "x": None,
    "x_data": np.array([1, 2], np.uint8),
    "x_indices": np.array([2, 0]),
    "x_indptr": np.array([0, 2, 2, 2, 2, 2, 2]),
    "x_shape": np.array([N, 3]),
}
PREPARE = "prepare mine --from graph.npz --dataset-root root"
MADE = ("root",)


def graph(**changes: Any) -> Callable[[Path], object]:
    """Write graph.npz with some arrays changed, or left out (None)."""
    arrays = {name: value for name, value in {**GRAPH, **changes}.items() if value is not None}
    return lambda folder: np.savez(folder / "graph.npz", **arrays)


def damaged(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Write a good graph.npz, and then change its bytes."""

    def make(folder: Path) -> None:
        graph()(folder)
        path = folder / "graph.npz"
        path.write_bytes(change(path.read_bytes()))

    return make


def member(name: str, content: bytes) -> Callable[[Path], object]:
    """Write a good graph.npz with one member replaced by other bytes."""

    def make(folder: Path) -> None:
        with zipfile.ZipFile(folder / "graph.npz", "w") as archive:
            for key, value in GRAPH.items():
                buffer = io.BytesIO()
                np.save(buffer, value)
                archive.writestr(f"{key}.npy", content if key == name else buffer.getvalue())

    return make


def _in_the_middle(data: bytes) -> bytes:
    middle = len(data) // 3
    return data[:middle] + bytes(64) + data[middle + 64 :]


def _row(number: int, value: float, key: str = "x") -> np.ndarray:
    array = np.array(GRAPH[key])
    array[number] = value
    return array


def npz(name: str, make: Callable[[Path], object], *says: str, **more: Any) -> Mishap:
    return Mishap(f"npz: {name}", PREPARE, says, make, **more)


ROWS = [
    npz("cut to half", damaged(lambda data: data[: len(data) // 2]), "graph.npz"),
    npz("its last byte is missing", damaged(lambda data: data[:-1]), "graph.npz"),
    npz("empty", damaged(lambda data: b""), "graph.npz"),
    npz("a text", damaged(lambda data: b"not an archive"), "graph.npz"),
    npz("zeros in the middle", damaged(_in_the_middle), "graph.npz"),
    npz("a folder of that name", lambda folder: (folder / "graph.npz").mkdir(), "graph.npz"),
    npz("not there", lambda folder: None, "graph.npz"),
    npz("a member that is no array", member("y", b"hello"), "y"),
    npz("a member that is empty", member("y", b""), "y"),
    npz("pickled labels", graph(y=np.array([0, 1, "a", None, 0, 1], dtype=object)), "y", "objects"),
    npz("pickled features", graph(x=np.array([{"a": 1}] * N, dtype=object)), "x", "objects"),
    npz("no edge_index", graph(edge_index=None), "edge_index"),
    npz("no y", graph(y=None), "key y", "is in the train split and has no label"),
    npz("no features", graph(x=None), "x_indptr"),
    npz("no split", graph(train_mask=None, val_mask=None, test_mask=None), "--random-split"),
    npz("no validation mask", graph(val_mask=None), "no node is in the val split", status=0, leaves=MADE),
    npz("edges turned round", graph(edge_index=GRAPH["edge_index"].T), "edge_index", "[3, 2]"),
    npz("edges with a point", graph(edge_index=GRAPH["edge_index"] + 0.5), "edge_index", "float64"),
    npz("an edge to a node too far", graph(edge_index=np.array([[0, 1], [1, N]])), "1 → 6", "0 to 5"),
    npz("a negative edge", graph(edge_index=np.array([[0, 1], [1, -1]])), "-1"),
    npz("edges of words", graph(edge_index=np.array([["a"], ["b"]])), "edge_index"),
    npz("one row of edges", graph(edge_index=np.array([0, 1, 2])), "edge_index", "[3]"),
    npz("labels too short", graph(y=GRAPH["y"][:4]), "key y", "4 labels", "6 rows"),
    npz("labels too long", graph(y=np.zeros(9, np.int64)), "key y", "9 labels", "6 rows"),
    Mishap(
        "npz: labels with a point",
        f"{PREPARE} --task node_classification",
        ("row 1 has label 1.5", "--task node_regression"),
        graph(y=np.array([0, 1.5, 0, 1, 0, 1])),
    ),
    npz("a label of -2", graph(y=np.array([0, 1, 0, 1, 0, -2])), "node 5 has label -2", "no negative number"),
    npz("labels as words", graph(y=np.array(list("abcabc"))), "y", "<U1"),
    npz("labels two wide", graph(y=np.full((N, 2), 2)), "2 columns, a label each", "row 0, column 0 has 2"),
    npz("a label missing in the training split", graph(y=_row(0, -1, "y")), "node 0"),
    npz("one feature is NaN", graph(x=_row(3, np.nan)), "3", "nan"),
    npz("one feature is infinite", graph(x=_row(4, np.inf)), "4", "inf"),
    npz("features of one dimension", graph(x=np.arange(6.0)), "x", "[6]"),
    npz("features of too few nodes", graph(x=np.ones((5, 2))), "5", "6"),
    npz("features of no column", graph(x=np.ones((N, 0))), "key x", "no features"),
    npz("complex features", graph(x=np.ones((N, 2), np.complex64)), "complex64"),
    npz("features beyond float16", graph(x=_row(2, 1e6)), "float16", "2"),
    npz("a mask of words", graph(val_mask=np.array(list("yynnnn"))), "val mask", "<U1"),
    npz("a mask too short", graph(test_mask=np.ones(3, bool)), "test mask", "[3]"),
    npz("masks that overlap", graph(val_mask=np.arange(N) == 1), "node 1"),
    npz("an empty training mask", graph(train_mask=np.zeros(N, bool)), "train"),
    npz("a split of unknown codes", graph(split=np.array([0, 0, 1, 2, 9, -1])), "split", "9"),
    npz(
        "a split that contradicts the masks",
        graph(split=np.array([0, 0, 2, 2, -1, -1])),
        "split",
        "val_mask",
    ),
    npz(
        "ten columns of masks",
        graph(**{name: np.tile(GRAPH[name][:, None], (1, 10)) for name in ("train_mask", "val_mask", "test_mask")}),
        "the first of 10 splits",
        status=0,
        leaves=MADE,
    ),
    npz("sparse parts that clash", graph(**{**SPARSE, "x_indptr": np.array([0, 2, 2])}), "rows", "6"),
    npz("a sparse column out of range", graph(**{**SPARSE, "x_indices": np.array([2, 3])}), "3"),
    npz("a part of the sparse matrix is missing", graph(**{**SPARSE, "x_shape": None}), "x_shape"),
    npz("sparse pointers that fall", graph(**{**SPARSE, "x_indptr": np.array([0, 2, 1, 2, 2, 2, 2])}), "indptr"),
    npz("too few class names", graph(class_names=np.array(["only one"])), "label 1", "1 class names"),
    npz("class names that are numbers", graph(class_names=np.array([1, 2])), "class_names", "int64"),
    npz("a mask of unlabelled that is no mask", graph(unlabelled=np.arange(N)), "unlabelled", "int64"),
    npz("edge weights", graph(edge_weight=np.ones(3)), "edge features edge_weight", status=0, leaves=MADE),
    npz("edge weights of other edges", graph(edge_weight=np.ones(4)), "4", "3 edges", "edge_weight"),
    npz("an edge weight that is not finite", graph(edge_weight=np.full(3, np.nan)), "edge 0", "edge_weight"),
    npz("an unknown key", graph(notes=np.ones(3)), "not used", "notes", status=0, leaves=MADE),
    npz("gaps in the classes", graph(y=np.array([0, 3, 0, 3, 0, -1])), "1, 2", status=0, leaves=MADE),
]
ROWS = [
    Mishap(row.id, f"{row.words} --feature-dtype float16", row.says, row.make) if "float16" in row.id else row
    for row in ROWS
]
