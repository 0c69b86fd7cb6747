"""What weighs in a score: the parts of a linear one, exactly; of a real model, what its score depends on."""

import numpy as np
import pytest
import torch
from torch import nn

from graphmill.nn.graph_attention import GraphAttention
from graphmill.tasks.intrusion.causes import batch_of, weighed
from graphmill.tasks.intrusion.frames import Frames
from graphmill.tasks.intrusion.windows import EDGE_FEATURES, NODE_FEATURES, Leftover, graphs_of, joined_graphs


@pytest.fixture
def graphs():
    rng = np.random.default_rng(0)
    count = 90
    ids = rng.choice(np.array([1, 2, 3, 0x7FF], np.uint32), count)
    data, length = rng.integers(0, 256, (count, 8)).astype(np.uint8), np.full(count, 8, np.uint8)
    frames = Frames(np.arange(count) * 1.0, ids, data, length, np.zeros(count, np.int8))
    return joined_graphs(list(graphs_of([frames], Leftover(), size=20, stride=20)))


def _features(graphs):
    return graphs.x - 0.5, graphs.edge_attr - 1.0


class Linear(nn.Module):
    """A score that is a sum over nodes and edges."""

    def __init__(self):
        super().__init__()
        self.numbers = nn.Embedding(4, 2)
        self.of_nodes, self.of_edges = nn.Linear(len(NODE_FEATURES), 1), nn.Linear(len(EDGE_FEATURES), 1)

    def parts(self, batch):
        number = torch.arange(len(batch.x)) % 4
        nodes = self.of_nodes(batch.x)[:, 0] - self.of_nodes.bias + self.numbers(number).sum(dim=1)
        return nodes, self.of_edges(batch.edge_attr)[:, 0] - self.of_edges.bias

    def forward(self, batch):
        nodes, edges = self.parts(batch)
        of_edge = torch.repeat_interleave(torch.arange(len(nodes)), batch.block.indptr.diff())
        per_node = nodes.index_add(0, of_edge, edges)
        return torch.segment_reduce(per_node, "sum", offsets=batch.node_offsets)


def test_a_sum_is_made_of_what_it_adds_up(graphs):
    torch.manual_seed(0)
    model, x_and_edges = Linear(), _features(graphs)
    batch = batch_of(graphs, *x_and_edges)
    found = weighed(model, model, graphs, batch)
    with torch.no_grad():
        nodes, edges = model.parts(batch)
        by_order = model.of_edges(torch.from_numpy(x_and_edges[1]))[:, 0] - model.of_edges.bias
    np.testing.assert_allclose(found.of_nodes, nodes.abs().numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.of_edges, by_order.abs().numpy(), rtol=1e-4, atol=1e-6)  # not in the batch's order
    assert not np.allclose(found.of_edges, edges.abs().numpy())


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_the_weights_of_a_window_are_its_own(graphs, kind):
    """Of attention too: what other windows are in the batch changes nothing."""
    torch.manual_seed(0)
    sizes = {"in_channels": 10, "hidden_channels": 6, "out_channels": 1, "heads": 2, "num_layers": 2, "edge_dim": 11}
    rest = {"dropout": 0.0, "attention_dropout": 0.0, "attention": "fused"}
    model = GraphAttention(kind=kind, **sizes, **rest).eval()

    def score(batch):
        return model(batch)[:, 0]

    whole = weighed(model, score, graphs, batch_of(graphs, *_features(graphs)))
    begin_node, begin_edge = 0, 0
    for row in range(len(graphs)):
        one = graphs.chosen(np.arange(len(graphs)) == row)
        alone = weighed(model, score, one, batch_of(one, *_features(one)))
        begin_node, begin_edge = begin_node + len(one.node_ids), begin_edge + len(one.edge_attr)
        at_nodes, at_edges = begin_node - len(one.node_ids), begin_edge - len(one.edge_attr)
        np.testing.assert_allclose(whole.of_nodes[at_nodes:begin_node], alone.of_nodes, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(whole.of_edges[at_edges:begin_edge], alone.of_edges, rtol=1e-3, atol=1e-5)
        assert alone.of_edges.max() > 0
    assert begin_node == len(graphs.node_ids)


def test_nothing_is_left_behind(graphs):
    model = Linear()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = batch_of(graphs, *_features(graphs))
    weighed(model, model, graphs, batch)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not batch.x.requires_grad
    assert not model.numbers._forward_hooks
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
