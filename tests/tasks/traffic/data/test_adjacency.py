"""Road graphs from files, and an unpickler that runs nothing."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.tasks.traffic.data.adjacency import Adjacency, adjacency_for, gaussian_kernel, read_adjacency

IDS = ["a", "b", "c"]
MATRIX = np.array([[1, 0.5, 0], [0, 1, 0.25], [0.125, 0, 1]], dtype=np.float32)


def write_pickle(path: Path, content: object, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
def test_pickle(tmp_path: Path, order: str, dtype: str) -> None:
    matrix = np.asarray(MATRIX, dtype=dtype, order=order)
    read = read_adjacency(write_pickle(tmp_path / "adj_mx.pkl", [IDS, {"a": 0}, matrix], protocol=4))
    np.testing.assert_array_equal(read.matrix, MATRIX)
    assert read.sensor_ids == tuple(IDS)


def test_real_pickle_of_python_2(shared: Path) -> None:
    read = read_adjacency(shared / "adj_mx.pkl")
    with np.load(shared / "metr_la_adj.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(read.matrix, archive["adj"])
        assert read.sensor_ids == tuple(archive["sensor_ids"])
    assert np.count_nonzero(read.matrix) == 1722


class _Runs:
    def __reduce__(self):
        return os.system, ("touch pwned",)


class _Evaluates:
    def __reduce__(self):
        return eval, ("open('pwned', 'w')",)


HOSTILE = [
    [IDS, {}, _Runs()],
    [IDS, {}, _Evaluates()],
    _Runs(),
    [IDS, {}, np.array([_Runs()], dtype=object)],
    [IDS, {}, np.array([None], dtype=object)],
    [IDS, {}, Path("x")],
]


@pytest.mark.parametrize("content", HOSTILE)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: object, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_pickle(tmp_path / "adj_mx.pkl", content, protocol)
    with pytest.raises(UserError, match=r"is not an adj_mx\.pkl"):
        read_adjacency(path)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x04.", b"garbage", pickle.dumps([1, 2]), pickle.dumps([IDS, {}, 3])])
def test_no_adjacency_in_the_pickle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "adj_mx.pkl").write_bytes(content)
    with pytest.raises(UserError):
        read_adjacency(tmp_path / "adj_mx.pkl")


def write_distances(folder: Path, text: str, ids: str = "a,b,c") -> Path:
    (folder / "graph_sensor_ids.txt").write_text(ids)
    path = folder / "distances_la_2012.csv"
    path.write_text(text)
    return path


def test_distances_become_a_gaussian_kernel(tmp_path: Path) -> None:
    text = "from,to,cost\na,a,0\na,b,100\nb,b,0\nb,c,300\nc,c,0\nx,a,7\n"
    read = read_adjacency(write_distances(tmp_path, text))
    sigma = np.std([0, 100, 0, 300, 0])
    expected = np.eye(3)
    expected[0, 1] = np.exp(-((100 / sigma) ** 2))
    assert np.exp(-((300 / sigma) ** 2)) < 0.1  # and so is no edge
    np.testing.assert_array_equal(read.matrix, expected.astype(np.float32))


def test_the_kernel_of_infinite_distances_is_empty() -> None:
    distances = np.array([[0, np.inf], [5, 0.0]])
    assert gaussian_kernel(distances)[0, 1] == 0


BAD_DISTANCES = [
    ("a,b,x\na,b,far\n", r"line 2, is not from,to,cost"),
    ("a,b,1\nb,c,-5\n", "line 2: the distance is -5.0"),
    ("a,b,1\nb,a,2\n", r"1 of the 3 sensors of graph_sensor_ids.txt have no distance \(c\)"),
    ("a,b,1\nb,c,1\nc,a,1\n", "have no spread"),
]


@pytest.mark.parametrize(("text", "says"), BAD_DISTANCES)
def test_bad_distances(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_adjacency(write_distances(tmp_path, text))


def test_distances_without_ids(tmp_path: Path) -> None:
    (tmp_path / "distances.csv").write_text("a,b,1\n")
    with pytest.raises(UserError, match=r"needs graph_sensor_ids.txt"):
        read_adjacency(tmp_path / "distances.csv")


def write_npz(path: Path, matrix: np.ndarray, **more: np.ndarray) -> Path:
    np.savez(path, adj=matrix, **more)
    return path


BAD_MATRICES = [
    (MATRIX[:2], "is \\[2, 3\\], not square"),
    (np.where(MATRIX == 0.5, -1, MATRIX), "from row 0 to 1 is -1.0"),
    (np.where(MATRIX == 0.5, np.nan, MATRIX), "from row 0 to 1 is nan"),
]


@pytest.mark.parametrize(("matrix", "says"), BAD_MATRICES)
def test_bad_matrices(tmp_path: Path, matrix: np.ndarray, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_adjacency(write_npz(tmp_path / "a.npz", matrix))


def test_rows_are_matched_by_id(tmp_path: Path) -> None:
    adjacency = read_adjacency(write_npz(tmp_path / "a.npz", MATRIX, sensor_ids=np.array(IDS)))
    matrix, note = adjacency_for(adjacency, ("b", "a"), tmp_path)
    np.testing.assert_array_equal(matrix, [[1, 0], [0.5, 1]])
    assert note == ", its other 1 sensors left out"
    assert adjacency_for(adjacency, ("a", "b", "c"), tmp_path)[1] == ""


BAD_MATCHES = [
    (Adjacency(MATRIX, tuple(IDS), ""), ("a", "d"), r"1 of 2 sensors are not in the adjacency \(d\)"),
    (Adjacency(MATRIX, (), ""), ("a", "b"), "has 3 rows and no sensor ids, and there are 2 sensors"),
    (Adjacency(np.eye(3, dtype=np.float32), (), ""), ("a", "b", "c"), "no edge joins two of the 3 sensors"),
]


@pytest.mark.parametrize(("adjacency", "ids", "says"), BAD_MATCHES)
def test_graphs_of_other_sensors_are_refused(adjacency: Adjacency, ids: tuple[str, ...], says: str) -> None:
    with pytest.raises(UserError, match=says):
        adjacency_for(adjacency, ids, Path("adj_mx.pkl"))
