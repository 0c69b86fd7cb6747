"""PyG `Data` objects and PyG's dataset classes by name."""

import subprocess
import sys

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.graph.features import SparseFeatures
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.data.sources.pyg import from_data
from graphmill.tasks.node_classification.data.store import write_store

torch = pytest.importorskip("torch")
Data = pytest.importorskip("torch_geometric.data").Data


def small(**changes):
    attributes = {
        "x": torch.arange(8.0).reshape(4, 2),
        "edge_index": torch.tensor([[0, 1, 2], [1, 2, 3]]),
        "y": torch.tensor([0, 1, 0, 1]),
        "train_mask": torch.tensor([1, 1, 0, 0]).bool(),
        "val_mask": torch.tensor([0, 0, 1, 0]).bool(),
        "test_mask": torch.tensor([0, 0, 0, 1]).bool(),
    }
    return Data(**{key: value for key, value in (attributes | changes).items() if value is not None})


def stored(tmp_path, data, **options):
    store = write_store(from_data(data, name="d", **options), tmp_path / "d")
    store.verify()
    return store


def test_a_data_object(tmp_path):
    store = stored(tmp_path, small(), class_names=["a", "b"])
    assert store.topology(undirected=False).indices.tolist() == [0, 1, 2]
    assert store.features.x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert store.nodes_in("train").tolist() == [0, 1]
    assert store.metadata.class_names == ("a", "b")


@pytest.mark.parametrize(
    ("dtype", "stored_dtype"), [("float16", "float16"), ("bfloat16", "bfloat16"), ("float64", "float32")]
)
def test_feature_formats(tmp_path, dtype, stored_dtype):
    store = stored(tmp_path, small(x=torch.arange(8.0).reshape(4, 2).to(getattr(torch, dtype))))
    assert store.metadata.feature_dtype == stored_dtype
    if dtype == "bfloat16":
        words = torch.from_numpy(np.array(store.features.x)).view(torch.bfloat16)
        assert words.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.filterwarnings("ignore:Sparse")  # torch's own notes on its sparse tensors
@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr"])
def test_sparse_features(tmp_path, layout):
    x = torch.tensor([[0, 2.0], [0, 0], [1, 0], [0, 0]])
    store = stored(tmp_path, small(x=getattr(x, layout)()))
    assert isinstance(store.features, SparseFeatures)
    assert store.features.indptr.tolist() == [0, 1, 1, 2, 2]
    assert store.features.values.tolist() == [2, 1]


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_transposed_adjacency(tmp_path):
    adj_t = torch.sparse_coo_tensor(torch.tensor([[1, 2, 3], [0, 1, 2]]), torch.ones(3), (4, 4))
    for adjacency in (adj_t, adj_t.to_sparse_csr()):
        store = stored(tmp_path, small(edge_index=None, adj_t=adjacency))
        assert store.topology(undirected=False).indptr.tolist() == [0, 0, 1, 2, 3]
        assert store.metadata.edge_features == (), "ones are what PyG fills in"
        weighted = stored(tmp_path, small(edge_index=None, adj_t=adjacency * torch.tensor(2.5)))
        assert weighted.edge_features(undirected=False).values.tolist() == [[2.5]] * 3


def test_weights_and_attributes_of_edges(tmp_path):
    of_edges = {"edge_weight": torch.tensor([1.0, 2, 3]), "edge_attr": torch.tensor([[5], [6], [7]])}
    store = stored(tmp_path, small(**of_edges))
    assert store.metadata.edge_features == ("edge_weight", "edge_attr")
    assert store.edge_features(undirected=False).values.tolist() == [[1, 5], [2, 6], [3, 7]]


def test_masks_of_several_splits(tmp_path):
    mask = torch.tensor([[1, 0], [0, 1], [0, 0], [0, 0]]).bool()
    store = stored(tmp_path, small(train_mask=mask))
    assert store.nodes_in("train").tolist() == [0]
    assert store.metadata.split == "as given by the masks, the first of 2 splits"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"x": None}, "has no x"),
        ({"y": None}, "train split and has no label"),
        ({"edge_index": None}, "has no adj_t"),
        ({"train_mask": None}, "has no train_mask"),
        ({"y": torch.zeros(4, 3, 1)}, "labels are float32"),
        ({"x": torch.full((4, 2), torch.nan)}, r"data\.x\): row 0, column 0 is nan"),
        ({"edge_index": torch.tensor([[0], [4]])}, r"data\.edge_index\): edge 0 is 0 → 4"),
    ],
)
def test_refusals(tmp_path, changes, said):
    with pytest.raises(UserError, match=said):
        stored(tmp_path, small(**changes))


def test_a_dataset_that_pyg_carries_itself(tmp_path):
    store = prepare("pyg/KarateClub", root=tmp_path, random_split=True)
    store.verify()
    assert store.path == tmp_path / "pyg" / "KarateClub"
    assert store.metadata.num_nodes == 34
    assert store.metadata.num_edges == 156
    assert store.metadata.synthetic is False


def test_a_name_that_pyg_does_not_know(tmp_path):
    with pytest.raises(UserError, match="KarateClub"):
        prepare("pyg/KarateClubb", root=tmp_path)


def test_pyg_never_unpickles_a_path_that_was_given(tmp_path):
    with pytest.raises(UserError, match="unpickling runs code"):
        prepare("pyg/Planetoid/Cora", root=tmp_path, from_path=tmp_path)


def test_nothing_but_a_data_object_needs_torch(tmp_path, source_environ):
    code = """
import sys
from pathlib import Path
import graphmill.tasks.planning
from graphmill.tasks.node_classification.data.describe import describe
from graphmill.tasks.node_classification.data.prepare import prepare
root = Path(sys.argv[1])
describe(prepare("synthetic/sbm", root=root, options={"num_nodes": 100, "num_edges": 400}))
describe(prepare("debian-packages", root=root))
assert not {"torch", "scipy", "pandas", "matplotlib"} & set(sys.modules), sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=source_environ, check=True)
