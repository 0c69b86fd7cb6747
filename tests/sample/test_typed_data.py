"""Batches of typed graphs in parts for PyG users, as PyG's models take them."""

import pytest
import torch
from labelled_stores import made_store, split_made

import graphmill
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
