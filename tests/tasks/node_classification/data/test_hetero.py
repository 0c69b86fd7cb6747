"""PyG's heterogeneous data as typed graphs."""

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.data.sources.hetero import from_hetero
from graphmill.tasks.node_classification.data.store import write_store

torch = pytest.importorskip("torch")
HeteroData = pytest.importorskip("torch_geometric.data").HeteroData


def small(**of_paper) -> HeteroData:
    data = HeteroData()
    data["author"].x = torch.arange(1.0, 7).reshape(2, 3)
    data["place"].num_nodes = 2
    data["paper"].x = torch.tensor([[5.0, 0], [0, 7], [8, 9]])
    data["paper"].y = torch.tensor([0, 1, 1])
    for name, mask in {"train_mask": [1, 0, 0], "val_mask": [0, 1, 0], "test_mask": [0, 0, 1], **of_paper}.items():
        data["paper"][name] = torch.tensor(mask).bool()
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 1], [0, 0, 2]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["paper", "at", "place"].edge_index = torch.tensor([[2], [1]])
    return data


def stored(tmp_path, data, **options):
    store = write_store(from_hetero(data, name="h", source="a HeteroData", **options), tmp_path / "h")
    store.verify()
    return store


def test_types_stand_one_after_the_other(tmp_path, caplog):
    caplog.set_level("INFO", "graphmill")
    data = small()
    store = stored(tmp_path, data)
    known, whole = store.metadata, data.to_homogeneous()
    assert known.relation_names == ("author:writes:paper", "paper:cites:paper", "paper:at:place")
    assert [(each.name, each.num_nodes) for each in known.node_types] == [("author", 2), ("place", 2), ("paper", 3)]
    assert np.array_equal(store.node_type, whole.node_type)
    topology, column = store.topology(undirected=False), store.edge_features(undirected=False).values[:, -1]
    targets = np.repeat(np.arange(7), np.diff(topology.indptr))
    found = set(zip(topology.indices.tolist(), targets.tolist(), column.tolist(), strict=True))
    assert found == set(zip(*whole.edge_index.tolist(), whole.edge_type.tolist(), strict=True))
    assert store.labels.tolist() == [-1, -1, -1, -1, 0, 1, 1]
    assert [store.nodes_in(split).tolist() for split in ("train", "val", "test")] == [[4], [5], [6]]
    assert "nodes of type place have no features" in caplog.text


def test_each_type_has_columns_of_its_own(tmp_path):
    features = stored(tmp_path, small()).features
    rows = np.zeros((7, features.num_features))
    rows[np.repeat(np.arange(7), np.diff(features.indptr)), features.indices] = features.values
    wanted = np.zeros((7, 3 + 1 + 2))
    wanted[:2, :3], wanted[2:4, 3], wanted[4:, 4:] = [[1, 2, 3], [4, 5, 6]], 1, [[5, 0], [0, 7], [8, 9]]
    assert rows.tolist() == wanted.tolist()


@pytest.mark.parametrize("some", [True, False])
def test_features_of_edges(tmp_path, caplog, some):
    caplog.set_level("INFO", "graphmill")
    data = small()
    for number, relation in enumerate(data.edge_types[: 1 if some else 3]):
        data[relation].edge_weight = torch.full((data[relation].num_edges,), number + 0.5)
    store = stored(tmp_path, data)
    values = store.edge_features(undirected=False).values
    assert store.metadata.edge_features == (("edge_type",) if some else ("edge_weight", "edge_type"))
    assert ("features of edges, which differ between types" in caplog.text) == some
    assert some or (values[:, 0] == values[:, 1] + 0.5).all()


def two_labelled():
    data = small()
    data["author"].y = torch.tensor([0, 1])
    data["author"].train_mask = torch.tensor([True, True])
    return data


def outside():
    data = small()
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 5], [1, 2]])
    return data


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (two_labelled, "y for author, paper"),
        (lambda: small(train_mask=[0, 0, 0]), "training split"),
        (outside, "name paper nodes 0 to 5, and there are 3"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, make, says):
    with pytest.raises(UserError, match=says):
        stored(tmp_path, make())


def test_without_masks(tmp_path):
    data = small()
    del data["paper"].train_mask
    with pytest.raises(UserError, match="the paper nodes of the HeteroData have no train_mask"):
        stored(tmp_path, data)
    assert stored(tmp_path, data, split_seed=1).metadata.splits["none"] == 4


def test_pygs_own_dataset_by_name(tmp_path):
    """Generated, so it needs no network."""
    store = prepare("pyg/FakeHeteroDataset", root=tmp_path, save_as="fake", random_split=True, reverse_relations=True)
    store.verify()
    known = store.metadata
    assert known.synthetic
    assert len(known.node_types) == 3
    assert len(known.edge_types) == 12
    assert {each.name for each in known.edge_types} == {"e0", "rev_e0"}
