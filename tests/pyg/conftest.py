"""A small graph as a PyG user has it."""

import pytest
import torch


def made_data(num_nodes: int = 300, num_edges: int = 2400, num_features: int = 12):
    """Random edges with duplicates, self-loops and isolated nodes; attributes of nodes, edges and the whole graph."""
    data_module = pytest.importorskip("torch_geometric.data")
    generator = torch.Generator().manual_seed(5)
    edge_index = torch.randint(0, num_nodes - 20, (2, num_edges), generator=generator)
    return data_module.Data(
        x=torch.randn(num_nodes, num_features, generator=generator),
        y=torch.randint(0, 4, (num_nodes,), generator=generator),
        edge_index=edge_index,
        edge_attr=torch.arange(num_edges),
        train_mask=torch.rand(num_nodes, generator=generator) < 0.4,
        scale=torch.tensor(3.0),
    )


@pytest.fixture(scope="session")
def data():
    return made_data()
