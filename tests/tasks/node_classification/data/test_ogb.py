"""OGB's binary layout, written small and read back: what ogbn-papers100M comes in."""

import gzip

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.graph.archive import map_npz
from graphmill.tasks.node_classification.data.prepare import prepare

N, E = 50, 140


def write_binary(folder, *, save=np.savez_compressed, changed=None, labels=None):
    """raw/data.npz and raw/node-label.npz with the keys, dtypes and shapes of papers100M-bin, and its split."""
    rng = np.random.default_rng(1)
    arrays = {
        "edge_index": rng.integers(0, N, (2, E)),
        "node_feat": rng.random((N, 6), dtype=np.float32),
        "node_year": rng.integers(1990, 2020, (N, 1)),
        "num_nodes_list": np.array([N]),
        "num_edges_list": np.array([E]),
    } | (changed or {})
    kept = {name: array for name, array in arrays.items() if array is not None}
    (folder / "raw").mkdir(parents=True)
    save(folder / "raw" / "data.npz", **kept)
    if labels is None:
        labels = np.where(np.arange(N) < 40, rng.integers(0, 4, N), np.nan).astype(np.float32)[:, None]
    save(folder / "raw" / "node-label.npz", node_label=labels)
    for name, ids in {"train": range(20), "valid": range(20, 30), "test": range(30, 40)}.items():
        path = folder / "split" / "time" / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("".join(f"{node}\n" for node in ids).encode()))
    return arrays, labels


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("place", ["", "papers100M-bin", "ogbn_papers100M"])
def test_what_is_written_is_read(tmp_path, caplog, save, place):
    arrays, labels = write_binary(tmp_path / "data" / place, save=save)
    store = prepare("ogbn-papers100M", root=tmp_path / "root", from_path=tmp_path / "data")
    store.verify()
    assert np.array_equal(store.features.x, arrays["node_feat"])
    assert store.labels.tolist() == [-1 if np.isnan(label) else int(label) for label in labels[:, 0]]
    assert (store.metadata.split, store.metadata.source) == ("public: time", "ogbn-papers100M, OGB binary files")
    assert store.nodes_in("val").tolist() == list(range(20, 30))
    topology = store.topology(undirected=False)
    targets = np.repeat(np.arange(N), np.diff(topology.indptr))
    assert {*zip(topology.indices.tolist(), targets.tolist(), strict=True)} == {*map(tuple, arrays["edge_index"].T)}
    assert "not used: node_year of data.npz" in caplog.text
    assert not list((tmp_path / "root").glob(".downloads/*")), "what was unpacked is gone"


def test_arrays_in_fortran_order(tmp_path):
    """As numpy saves the transpose of a list of edges."""
    edges = np.random.default_rng(5).integers(0, N, (E, 2)).T
    assert edges.flags.f_contiguous
    write_binary(tmp_path, changed={"edge_index": edges})
    store = prepare("ogbn-papers100M", root=tmp_path / "root", from_path=tmp_path)
    assert store.metadata.num_edges == len({*map(tuple, edges.T.tolist())})


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"node_feat": None}, "lacks node_feat"),
        ({"edge_index": None}, "lacks edge_index"),
        ({"num_nodes_list": np.array([N + 1])}, rf"num_nodes_list says \[{N + 1}\], and there are {N}"),
        ({"num_edges_list": np.array([3, 4])}, rf"num_edges_list says \[3, 4\], and there are {E}"),
        ({"node_feat": np.zeros((N - 1, 2), np.float32), "num_nodes_list": None}, f"{N} labels, and {N - 1} rows"),
        ({"node_feat": np.zeros(N, np.float32)}, r"key node_feat: float32 \[50\]"),
        ({"edge_index": np.zeros((E, 2), np.int64)}, r"key edge_index: its shape is \[140, 2\]"),
        ({"edge_index": np.full((2, E), N)}, "edge 0 is 50 → 50, and nodes run from 0 to 49"),
        ({"node_feat": np.full((N, 2), np.nan, np.float32)}, "row 0, column 0 is nan"),
    ],
)
def test_refusals(tmp_path, changed, says):
    write_binary(tmp_path / "data", changed=changed)
    with pytest.raises(UserError, match=says):
        prepare("ogbn-papers100M", root=tmp_path / "root", from_path=tmp_path / "data")
    assert not (tmp_path / "root" / "ogbn-papers100M").exists()


def test_it_is_no_download(tmp_path):
    with pytest.raises(UserError, match="is not downloaded") as refused:
        prepare("ogbn-papers100M", root=tmp_path)
    assert "raw/{data,node-label}.npz" in refused.value.fix


def test_neither_layout(tmp_path):
    with pytest.raises(UserError, match=r"none of raw/\{edge\.csv\.gz"):
        prepare("ogbn-papers100M", root=tmp_path / "root", from_path=tmp_path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_mapped_array_outlives_its_file_and_is_read_only(tmp_path, save):
    path, scratch = tmp_path / "some.npz", tmp_path / "scratch"
    wanted = np.arange(5000, dtype=np.float32).reshape(50, 100)
    save(path, other=np.ones(3), x=wanted, none=np.empty((0, 4)))
    found = map_npz(path, "x", scratch)
    assert np.array_equal(found, wanted)
    assert not found.flags.writeable
    assert map_npz(path, "none", scratch).shape == (0, 4)
    assert not scratch.exists() or not list(scratch.iterdir())


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_flipped_byte_is_found(tmp_path, save):
    path = tmp_path / "some.npz"
    save(path, x=np.random.default_rng(0).random((100, 30)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="key x: it cannot be read"):
        map_npz(path, "x", tmp_path)
    assert list(tmp_path.iterdir()) == [path]
