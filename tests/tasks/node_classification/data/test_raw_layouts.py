"""Raw layouts of the field, written small and read back; PyG's loaders say what is right where they can."""

import gzip
import pickle

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.data.sources.planetoid import read_adjacency, read_array, read_csr

N = 40


def write_reddit(folder):
    """PyG's raw layout of Reddit, with 6 features."""
    sparse = pytest.importorskip("scipy.sparse")
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    np.savez(
        folder / "reddit_data.npz",
        feature=rng.random((N, 6)),
        label=rng.integers(0, 4, N),
        node_types=np.repeat([1, 2, 3, 1], N // 4),
    )
    row, col = rng.integers(0, N, (2, 200))
    sparse.save_npz(folder / "reddit_graph.npz", sparse.coo_matrix((np.ones(200), (row, col)), shape=(N, N)))


def write_ogb(folder, *, labels=None, splits=None, num_edges=None):
    """OGB's CSV layout of a node set."""
    rng = np.random.default_rng(0)
    edges = rng.integers(0, N, (100, 2))
    tables = {
        "raw/edge": edges,
        "raw/node-feat": rng.random((N, 3)).round(4),
        "raw/node-label": rng.integers(0, 3, (N, 1)) if labels is None else labels,
        "raw/num-node-list": [[N]],
        "raw/num-edge-list": [[100 if num_edges is None else num_edges]],
        "split/time/train": np.arange(20)[:, None],
        "split/time/valid": np.arange(20, 30)[:, None],
        "split/time/test": np.arange(30, N)[:, None],
    } | (splits or {})
    for name, rows in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("".join(",".join(map(str, row)) + "\n" for row in rows).encode()))
    return edges


@pytest.mark.parametrize("place", ["", "raw"])
def test_reddit_is_what_pyg_reads(tmp_path, place):
    datasets = pytest.importorskip("torch_geometric.datasets")
    write_reddit(tmp_path / "Reddit" / "raw")
    store = prepare("reddit", root=tmp_path / "root", from_path=tmp_path / "Reddit" / place)
    store.verify()
    data = datasets.Reddit(str(tmp_path / "Reddit"))[0]
    topology = store.topology(undirected=False)
    destinations = np.repeat(np.arange(N), np.diff(topology.indptr))
    expected = set(zip(*data.edge_index.tolist(), strict=True))
    assert set(zip(topology.indices.tolist(), destinations.tolist(), strict=True)) == expected
    assert np.array_equal(store.features.x, data.x.numpy())
    assert np.array_equal(store.labels, data.y.numpy())
    for split in ("train", "val", "test"):
        assert store.nodes_in(split).tolist() == data[f"{split}_mask"].nonzero().flatten().tolist()


def test_reddit_with_an_unknown_node_type(tmp_path):
    write_reddit(tmp_path / "raw")
    with np.load(tmp_path / "raw" / "reddit_data.npz") as data:
        arrays = dict(data)
    np.savez(tmp_path / "raw" / "reddit_data.npz", **arrays | {"node_types": np.full(N, 4)})
    with pytest.raises(UserError, match="key node_types"):
        prepare("reddit", root=tmp_path, from_path=tmp_path / "raw", save_as="r")


def test_ogb(tmp_path):
    edges = write_ogb(tmp_path / "ogbn_arxiv")
    store = prepare("ogbn-arxiv", root=tmp_path / "root", from_path=tmp_path)
    store.verify()
    assert store.metadata.num_edges == len({tuple(edge) for edge in edges.tolist()})
    assert store.metadata.split == "public: time"
    assert store.nodes_in("val").tolist() == list(range(20, 30))
    assert store.features.x.shape == (N, 3)


def test_ogbn_products_lists_each_edge_once(tmp_path):
    edges = write_ogb(tmp_path)
    store = prepare("ogbn-products", root=tmp_path / "root", from_path=tmp_path)
    assert store.metadata.is_symmetric
    assert store.metadata.num_edges == len(
        {tuple(e) for e in edges.tolist()} | {tuple(e[::-1]) for e in edges.tolist()}
    )


def test_another_ogb_set_is_read_from_a_folder(tmp_path):
    write_ogb(tmp_path / "mine")
    assert prepare("ogbn-mine", root=tmp_path / "root", from_path=tmp_path / "mine").metadata.num_nodes == N


def test_ogb_nodes_without_a_label_stay_out_of_the_splits(tmp_path):
    labels = [[0.0]] * (N - 1) + [["nan"]]
    write_ogb(tmp_path, labels=labels, splits={"split/time/test": [[30]]})
    store = prepare("ogbn-x", root=tmp_path / "root", from_path=tmp_path)
    assert store.labels[-1] == -1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"splits": {"split/time/valid": [[5]]}}, "node 5 is in the train and the val split"),
        ({"splits": {"split/time/valid": [[N]]}}, f"row 0 of the val split names node {N}"),
        ({"splits": {"split/random/train": [[5]]}}, r"holds \['random', 'time'\]"),
        ({"splits": {"raw/edge": [[0, N]], "raw/num-edge-list": [[1]]}}, rf"edge\.csv\.gz\): edge 0 is 0 → {N}"),
        (
            {"splits": {"raw/edge": [[0, ""]], "raw/num-edge-list": [[1]]}},
            r"edge\.csv\.gz, line 1, column column_2: it is empty, and is not a node id",
        ),
        ({"splits": {"raw/edge": [[0, 1], [0, "x"]]}}, r"edge\.csv\.gz, line 2, column column_2: 'x' is not a node id"),
        ({"splits": {"raw/edge": [[0, 1], [0, 1, 2]]}}, r"edge\.csv\.gz cannot be read: line 2 has 3 fields"),
        ({"splits": {"raw/num-node-list": [[N + 1]]}}, "40 labels, 40 rows of features, and num-node-list"),
        ({"splits": {"raw/num-node-list": [[1], [2]]}}, "should hold one count"),
        ({"num_edges": 99}, "has 100 edges, and num-edge-list.csv.gz says 99"),
        ({"labels": [[0.5]] * N}, "row 0 has label 0.5"),
        ({"labels": [[0, 1]] * (N - 1) + [[0, 2]]}, "2 columns, a label each, and row"),
    ],
)
def test_ogb_refusals(tmp_path, changes, said):
    write_ogb(tmp_path / "ogbn_x", **changes)
    with pytest.raises(UserError, match=said):
        prepare("ogbn-x", root=tmp_path / "root", from_path=tmp_path)
    assert not (tmp_path / "root" / "ogbn-x").exists()


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch pwned",)


@pytest.mark.parametrize("read", [read_array, read_csr, read_adjacency])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_calls_is_refused_and_calls_nothing(tmp_path, monkeypatch, read, protocol):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil").write_bytes(pickle.dumps(Evil(), protocol))
    with pytest.raises(UserError, match=r"it asks for \w+\.system"):
        read(tmp_path / "evil")
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.",
        b"cnumpy\nload\n.",
        b"r\xff\xff\xff\x7f.",  # LONG_BINPUT with a huge memo index
        b"\x80\x04\x96\xff\xff\xff\xff\x00\x00\x00\x00.",  # a bytearray of 4 GiB
        b"",
    ],
)
def test_hostile_pickles(tmp_path, code):
    (tmp_path / "p").write_bytes(code)
    with pytest.raises(UserError, match="cannot be read"):
        read_array(tmp_path / "p")


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_pickled_arrays_and_matrices_of_today_are_read(tmp_path, protocol):
    sparse = pytest.importorskip("scipy.sparse")
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    matrix = sparse.csr_matrix(array.astype(np.float32))
    if protocol < 5:  # 5 pickles arrays through numpy's buffers, which no raw file does
        (tmp_path / "a").write_bytes(pickle.dumps(np.asfortranarray(array), protocol))
        assert np.array_equal(read_array(tmp_path / "a"), array)
        (tmp_path / "m").write_bytes(pickle.dumps(matrix, protocol))
        data, indices, indptr, shape = read_csr(tmp_path / "m")
        assert np.array_equal(sparse.csr_matrix((data, indices, indptr), shape).toarray(), array)
    (tmp_path / "g").write_bytes(pickle.dumps({0: [1, 2], 1: [], 2: [0]}, protocol))
    assert read_adjacency(tmp_path / "g").tolist() == [[0, 0, 2], [1, 2, 0]]
