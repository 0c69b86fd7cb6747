"""Batches of typed graphs for PyG users: a `HeteroData`, and typed graphs in parts, as PyG's models take them."""

import pytest
import torch
from labelled_stores import made_store, split_made

import graphmill
from graphmill.base.errors import UserError
from graphmill.tasks.node_classification.data.sources.hetero import from_hetero
from graphmill.tasks.node_classification.data.store import write_store

pytest.importorskip("torch_geometric")
from torch_geometric.data import HeteroData
from torch_geometric.nn import RGCNConv


@pytest.fixture
def data() -> HeteroData:
    """Two types of nodes with features of one width; parallel edges of two types."""
    draw = torch.Generator().manual_seed(0)
    made = HeteroData()
    made["author"].x, made["paper"].x = torch.rand(20, 4, generator=draw), torch.rand(30, 4, generator=draw)
    made["paper"].y = torch.arange(30) % 3
    for relation, num_edges in {
        ("author", "writes", "paper"): 90,
        ("author", "reviews", "paper"): 90,
        ("paper", "cites", "paper"): 80,
    }.items():
        sizes = [made[relation[0]].num_nodes, made[relation[2]].num_nodes]
        ends = [torch.randint(size, (num_edges,), generator=draw) for size in sizes]
        made[relation].edge_index = torch.stack(ends)
    return made


def test_a_batch_of_a_hetero_data(data):
    whole = data.to_homogeneous()
    nodes = ("paper", torch.arange(0, 30, 2))
    batches = list(graphmill.NeighborLoader(data, [-1, -1], nodes, batch_size=5))
    assert torch.equal(torch.cat([batch.n_id[: batch.batch_size] for batch in batches]), 20 + nodes[1])
    for batch in batches:
        assert torch.equal(batch.node_type, whole.node_type[batch.n_id])
        assert torch.equal(batch.edge_type, whole.edge_type[batch.e_id])
        assert torch.equal(batch.n_id[batch.edge_index], whole.edge_index[:, batch.e_id])
        again = batch.to_heterogeneous()
        assert (again.node_types, again.edge_types) == (data.node_types, data.edge_types)
        assert torch.equal(again["paper"].x, data["paper"].x[again["paper"].n_id - 20])


def test_a_model_of_pyg_gives_what_it_gives_on_the_whole_graph(data):
    torch.manual_seed(0)
    conv, whole = RGCNConv(4, 2, num_relations=3), data.to_homogeneous()
    wanted = conv(whole.x, whole.edge_index, whole.edge_type)
    (batch,) = graphmill.NeighborLoader(data, [-1], ("paper", None), batch_size=30)
    found = conv(batch.x, batch.edge_index, batch.edge_type)[: batch.batch_size]
    torch.testing.assert_close(found, wanted[20:])


def narrow(data):
    data["author"].x = data["author"].x[:, :3]


def bare(data):
    del data["author"].x
    data["author"].num_nodes = 20


def weights_of_some(data):
    data["paper", "cites", "paper"].edge_weight = torch.ones(80)


@pytest.mark.parametrize(
    ("change", "says"), [(narrow, "x of the nodes"), (bare, "x of the nodes"), (weights_of_some, "edge_weight of the")]
)
def test_what_pyg_would_drop_or_fill_in_is_refused(data, change, says):
    change(data)
    with pytest.raises(UserError, match=f"{says}.* differs between types"):
        graphmill.NeighborLoader(data, [2], ("paper", None))


@pytest.mark.parametrize(
    "nodes",
    [None, torch.arange(3), ("place", None), ("paper", torch.tensor([30])), ("paper", torch.ones(20).bool())],
)
def test_nodes_of_no_type_are_refused(data, nodes):
    with pytest.raises(UserError, match="input_nodes"):
        graphmill.NeighborLoader(data, [2], nodes)


def test_parts_of_a_hetero_data_come_apart_again(data, tmp_path):
    store = write_store(from_hetero(data, name="h", source="made", split_seed=0), tmp_path / "s")
    parts = graphmill.open_partitioned(split_made(store, tmp_path / "p").path)
    (batch,) = graphmill.NeighborLoader(parts, [-1], parts.nodes_in("train"), batch_size=30)
    again = batch.to_heterogeneous()
    assert (again.node_types, again.edge_types) == (data.node_types, data.edge_types)
    assert torch.equal(again["author"].x[:, :4], data["author"].x[again["author"].n_id])
    assert torch.equal(again["paper"].x[:, 4:], data["paper"].x[again["paper"].n_id - 20])


def test_relations_of_several_types_of_nodes_go_into_a_model_and_do_not_come_apart(tmp_path):
    graph = split_made(made_store(tmp_path / "s", typed=True), tmp_path / "p")
    parts = graphmill.open_partitioned(graph.path)
    (batch,) = graphmill.NeighborLoader(parts, [3, 3], parts.nodes_in("train"), batch_size=60)
    assert set(batch.edge_type.tolist()) == {0, 1, 2}
    assert "edge_attr" not in batch
    with pytest.raises(ValueError, match="span over"):
        batch.to_heterogeneous()
    conv = RGCNConv(3, 2, num_relations=len(graph.metadata.edge_types))
    assert conv(batch.x, batch.edge_index, batch.edge_type).shape == (batch.num_nodes, 2)
