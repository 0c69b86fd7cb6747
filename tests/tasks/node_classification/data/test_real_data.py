"""Real graphs: from .npz, and from raw layouts against PyG's own loaders. None is copied into the project."""

import shutil

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.graph.features import SparseFeatures
from graphmill.tasks.node_classification.data.describe import describe
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.page.data import DATASETS


def dense_rows(store):
    features = store.features
    if not isinstance(features, SparseFeatures):
        return features.x
    x = np.zeros((features.num_nodes, features.num_features), dtype=np.float32)
    x[np.repeat(np.arange(features.num_nodes), np.diff(features.indptr)), features.indices] = features.values
    return x


def edges_of(store):
    topology = store.topology(undirected=False)
    destinations = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    return set(zip(topology.indices.tolist(), destinations.tolist(), strict=True))


def same_as_pyg(store, data):
    """Edges, features and labels of the nodes that have one."""
    assert edges_of(store) == set(zip(*data.edge_index.tolist(), strict=True))
    assert np.array_equal(dense_rows(store), data.x.numpy())
    labelled = store.labels >= 0
    assert np.array_equal(store.labels[labelled], data.y.numpy()[labelled])
    for split in ("train", "val", "test"):
        if hasattr(data, f"{split}_mask"):
            assert store.nodes_in(split).tolist() == data[f"{split}_mask"].nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("file", "nodes", "edges", "duplicates", "loops", "splits"),
    [
        ("cora", 2_708, 10_556, 0, 0, (140, 500, 1_000, 1_068)),
        ("citeseer", 3_327, 9_104, 0, 0, (120, 500, 1_000, 1_707)),
        ("pubmed", 19_717, 88_648, 0, 0, (60, 500, 1_000, 18_157)),
        ("wordnet31", 117_791, 365_119, 13_084, 9, (70_674, 23_558, 23_559, 0)),
        ("debian_packages", 97_166, 561_767, 0, 0, (59_950, 11_994, 25_222, 0)),
    ],
)
def test_npz(tmp_path, shared_data, file, nodes, edges, duplicates, loops, splits):
    path = shared_data(f"nodes/{file}.npz")
    store = prepare(file, root=tmp_path, from_path=path)
    store.verify()
    metadata = store.metadata
    assert (metadata.num_nodes, metadata.num_edges, metadata.num_duplicate_edges) == (nodes, edges, duplicates)
    assert metadata.num_self_loops == loops
    assert tuple(metadata.splits[name] for name in ("train", "val", "test", "none")) == splits
    assert metadata.synthetic is False
    facts = describe(store)
    assert sum(facts["labels"].values()) == nodes
    with np.load(path) as arrays:
        assert edges_of(store) == set(zip(*arrays["edge_index"].tolist(), strict=True))
        assert np.array_equal(store.nodes_in("val"), np.flatnonzero(arrays["val_mask"]))
        assert np.array_equal(store.features.indices, arrays["x_indices"])
        assert np.array_equal(store.features.values, arrays["x_data"])


def test_wordnet_with_and_without_types(tmp_path, shared_data):
    """Models without types that read both directions see the same graph."""
    path = shared_data("nodes/wordnet31.npz")
    typed = prepare("typed", root=tmp_path, from_path=path)
    plain = prepare("plain", root=tmp_path, from_path=path, typed=False)
    assert [each.name for each in typed.metadata.node_types] == ["a", "n", "r", "v"]
    assert len(typed.metadata.edge_types) == 26
    assert (plain.metadata.num_edges, plain.metadata.num_duplicate_edges) == (362_200, 16_003)
    for name in ("undirected_indptr", "undirected_indices", "x_indptr", "x_indices", "x_values", "y", "split"):
        assert typed.metadata.arrays[name] == plain.metadata.arrays[name]


def test_planetoid_raw_is_what_pyg_reads(tmp_path, shared_data):
    datasets = pytest.importorskip("torch_geometric.datasets")
    shutil.copytree(shared_data("raw_layouts/Cora/raw"), tmp_path / "pyg" / "Cora" / "raw")
    store = prepare("planetoid/cora", root=tmp_path, from_path=shared_data("raw_layouts/Cora"))
    store.verify()
    same_as_pyg(store, datasets.Planetoid(str(tmp_path / "pyg"), "Cora")[0])
    assert store.metadata.is_symmetric
    assert store.metadata.split.startswith("public")


def test_planetoid_raw_is_the_npz(tmp_path, shared_data):
    raw = prepare("planetoid/cora", root=tmp_path, from_path=shared_data("raw_layouts/Cora/raw"))
    npz = prepare("cora", root=tmp_path, from_path=shared_data("nodes/cora.npz"))
    for name, record in npz.metadata.arrays.items():
        assert raw.metadata.arrays[name].xxh3 == record.xxh3, name


@pytest.mark.parametrize("place", ["Photo", "Photo/raw", "Photo/raw/amazon_electronics_photo.npz"])
def test_amazon_raw_is_what_pyg_reads(tmp_path, shared_data, place):
    datasets = pytest.importorskip("torch_geometric.datasets")
    shutil.copytree(shared_data("raw_layouts/Photo/raw"), tmp_path / "pyg" / "Photo" / "raw")
    store = prepare("amazon/photo", root=tmp_path, from_path=shared_data(f"raw_layouts/{place}"))
    store.verify()
    same_as_pyg(store, datasets.Amazon(str(tmp_path / "pyg"), "Photo")[0])
    assert store.metadata.splits == {"train": 4590, "val": 1530, "test": 1530, "none": 0}
    assert store.metadata.split == "random 60/20/20 of the labelled nodes, seed 0, drawn by graphmill"


def test_the_random_split_of_amazon_follows_its_seed(tmp_path, shared_data):
    path = shared_data("raw_layouts/Photo")
    first, again, other = (
        prepare("amazon/photo", root=tmp_path, from_path=path, save_as=name, split_seed=seed)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first.nodes_in("train").tolist() == again.nodes_in("train").tolist()
    assert first.nodes_in("train").tolist() != other.nodes_in("train").tolist()


def test_a_data_object_of_pyg_is_the_same_graph(tmp_path, shared_data):
    datasets = pytest.importorskip("torch_geometric.datasets")
    from graphmill.tasks.node_classification.data.sources.pyg import from_data
    from graphmill.tasks.node_classification.data.store import write_store

    shutil.copytree(shared_data("raw_layouts/Cora/raw"), tmp_path / "pyg" / "Cora" / "raw")
    data = datasets.Planetoid(str(tmp_path / "pyg"), "Cora")[0]
    store = write_store(from_data(data, name="cora"), tmp_path / "cora")
    store.verify()
    same_as_pyg(store, data)


def test_debian_packages_are_embedded(tmp_path):
    store = prepare("debian-packages", root=tmp_path)
    store.verify()
    assert store.metadata.synthetic is False
    known = next(dataset for dataset in DATASETS if dataset.name == "debian-packages")
    counts = (store.metadata.num_nodes, store.metadata.num_edges, store.metadata.num_classes)
    assert counts == tuple(known.sizes[name] for name in ("num_nodes", "num_edges", "num_classes"))
    assert min(store.metadata.splits[split] for split in ("train", "val", "test")) > 10_000
    assert not store.metadata.is_symmetric


def test_a_missing_raw_file_is_named(tmp_path, shared_data):
    shutil.copytree(shared_data("raw_layouts/Cora/raw"), tmp_path / "raw")
    (tmp_path / "raw" / "ind.cora.graph").unlink()
    with pytest.raises(UserError, match=r"lacks ind\.cora\.graph"):
        prepare("planetoid/cora", root=tmp_path / "root", from_path=tmp_path / "raw")


def test_files_of_two_datasets_do_not_mix(tmp_path, shared_data):
    shutil.copytree(shared_data("raw_layouts/Cora/raw"), tmp_path / "raw")
    shutil.copy(tmp_path / "raw" / "ind.cora.x", tmp_path / "raw" / "ind.cora.tx")
    with pytest.raises(UserError, match=r"ind\.cora\.tx has 140 rows for 1000 test ids"):
        prepare("planetoid/cora", root=tmp_path / "root", from_path=tmp_path / "raw")
