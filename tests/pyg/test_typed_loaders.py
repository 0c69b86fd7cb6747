"""Loaders of graphs with types: `HeteroData`, HGT's sampling, ShaDow's subgraphs."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import graphmill
from graphmill.base.errors import UserError

pytest.importorskip("torch_geometric")
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv, to_hetero

from graphmill.pyg import HGTSampler, NeighborSampler

KINDS = [("author", "writes", "paper"), ("author", "reviews", "paper"), ("paper", "cites", "paper")]


@pytest.fixture
def data() -> HeteroData:
    """Features of two widths; two relations between the same types."""
    draw = torch.Generator().manual_seed(0)
    made = HeteroData()
    made["author"].x, made["paper"].x = torch.rand(40, 3, generator=draw), torch.rand(70, 5, generator=draw)
    made["paper"].y, made["place"].num_nodes = torch.arange(70) % 3, 4
    for kind in KINDS:
        ends = [torch.randint(made[kind[at]].num_nodes, (260,), generator=draw) for at in (0, -1)]
        made[kind].edge_index, made[kind].edge_attr = torch.stack(ends), torch.rand(260, 2, generator=draw)
    made.scale = 3
    return made


def check_batch(batch, data) -> None:
    for name in data.node_types:
        if "x" in data[name]:
            assert torch.equal(batch[name].x, data[name].x[batch[name].n_id])
    for kind in data.edge_types:
        ends = batch[kind].edge_index
        whole = torch.stack([batch[kind[0]].n_id[ends[0]], batch[kind[-1]].n_id[ends[1]]])
        assert torch.equal(whole, data[kind].edge_index[:, batch[kind].e_id])
        assert torch.equal(batch[kind].edge_attr, data[kind].edge_attr[batch[kind].e_id])
    assert batch.scale == 3


def test_a_batch_has_all_that_pyg_gives(data):
    fanouts = {KINDS[0]: [3, 2], KINDS[1]: [0, 0], KINDS[2]: [2, -1]}
    seeds = torch.arange(0, 70, 2)
    loader = graphmill.NeighborLoader(data, fanouts, ("paper", seeds), batch_size=10)
    assert torch.equal(torch.cat([batch["paper"].n_id[: batch["paper"].batch_size] for batch in loader]), seeds)
    for batch in loader:
        check_batch(batch, data)
        assert batch[KINDS[1]].num_edges == 0
        assert sum(batch["paper"].num_sampled_nodes) == batch["paper"].num_nodes
        assert sum(batch[KINDS[2]].num_sampled_edges) == batch[KINDS[2]].num_edges
        first = batch[KINDS[0]].edge_index[1][: batch[KINDS[0]].num_sampled_edges[0]]
        assert first.bincount().max() <= 3


@pytest.mark.parametrize("options", [{}, {"disjoint": True}, {"subgraph_type": "induced"}, {"replace": True}])
def test_options_of_typed_graphs(data, options):
    for batch in graphmill.NeighborLoader(data, [4, 3], "paper", batch_size=20, **options):
        check_batch(batch, data)
        for kind in KINDS if options.get("disjoint") else ():
            ends = batch[kind].edge_index
            assert torch.equal(batch[kind[0]].batch[ends[0]], batch[kind[-1]].batch[ends[1]])


def test_all_neighbours_give_the_whole_graphs_output(data):
    """Through PyG's `to_hetero`, in float64: what is summed up in another order differs by roundings."""
    del data["place"]

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = SAGEConv((-1, -1), 8), SAGEConv((-1, -1), 2)

        def forward(self, x, edge_index):
            return self.other(self.one(x, edge_index).relu(), edge_index)

    kinds = [KINDS[0], ("paper", "rev", "author"), KINDS[2]]
    data["paper", "rev", "author"].edge_index = data[KINDS[0]].edge_index.flip(0)
    del data[KINDS[1]]
    for name in data.node_types:
        data[name].x = data[name].x.double()
    torch.manual_seed(0)
    model = to_hetero(Model(), (data.node_types, kinds)).double()
    with torch.no_grad():
        whole = model(data.x_dict, data.edge_index_dict)["paper"]
        for batch in graphmill.NeighborLoader(data, [-1, -1], "paper", batch_size=16):
            out = model(batch.x_dict, batch.edge_index_dict)["paper"][: batch["paper"].batch_size]
            expected = whole[batch["paper"].n_id[: batch["paper"].batch_size]]
            torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (None, "types 'author', 'paper'"),
        (torch.arange(3), "types 'author', 'paper'"),
        (("street", None), "types 'author', 'paper'"),
        (("paper", torch.tensor([70])), "from 70 to 70"),
        (("paper", torch.ones(40).bool()), r"mask of shape \[40\]"),
    ],
)
def test_nodes_of_no_type_are_refused(data, nodes, says):
    with pytest.raises(UserError, match=says):
        graphmill.NeighborLoader(data, [2], nodes)


@pytest.mark.parametrize(
    ("kind", "name", "value", "says"),
    [
        (KINDS[0], "edge_index", torch.tensor([[40], [0]]), "40 → 0"),
        (KINDS[0], "edge_index", torch.zeros(3, 2, dtype=torch.long), r"\[3, 2\]"),
        (KINDS[2], "w", -torch.ones(260), "is -1.0"),
        (KINDS[2], "w", torch.full((260,), torch.nan), "is nan"),
        (KINDS[2], "w", torch.ones(259), "259"),
        (KINDS[2], "w", torch.ones(260, dtype=torch.complex64), "complex64"),
        ("paper", "time", torch.rand(70), "whole numbers"),
        ("paper", "time", torch.arange(69), "69 times"),
        (KINDS[1], "time", torch.zeros(1, 260).long(), r"\[1, 260\]"),
    ],
)
def test_what_would_be_read_wrongly_is_refused(data, kind, name, value, says):
    data[kind][name] = value
    options = {"w": {"weight_attr": "w"}, "time": {"time_attr": "time"}}.get(name, {})
    with pytest.raises(UserError, match=says) as refused:
        graphmill.NeighborLoader(data, [2], "paper", **options)
    assert refused.value.fix


@pytest.mark.parametrize("options", [{"weight_attr": "w"}, {"time_attr": "w"}])
def test_an_attribute_that_is_nowhere_is_refused(data, options):
    with pytest.raises(UserError, match=r"no edges have w|w is neither"):
        graphmill.NeighborLoader(data, [2], "paper", **options)


def test_edges_with_times_want_seeds_with_times(data):
    for kind in KINDS:
        data[kind].time = torch.arange(260)
    loader = graphmill.NeighborLoader(data, [2], "paper", time_attr="time", batch_size=4)
    with pytest.raises(UserError, match="seeds have none"):
        next(iter(loader))


def test_a_sampler_takes_as_many_nodes_as_hgt_asks_for(data):
    loader = graphmill.HGTLoader(data, {"author": [5, 4], "paper": [6, 0], "place": [1, 1]}, "paper", batch_size=12)
    for batch in loader:
        check_batch(batch, data)
        size = batch["paper"].batch_size
        assert batch["author"].num_nodes <= 9
        assert size <= batch["paper"].num_nodes <= size + 6
        assert batch["place"].num_nodes == 0
        for kind in KINDS:
            inside = [torch.isin(data[kind].edge_index[at], batch[kind[end]].n_id) for at, end in ((0, 0), (1, -1))]
            assert sorted(batch[kind].e_id.tolist()) == (inside[0] & inside[1]).nonzero().view(-1).tolist()


def test_hgt_takes_nodes_by_the_square_of_their_weight():
    """Node i of the authors has i + 1 edges into the only seed: (i + 1)² of 30 chances."""
    data = HeteroData()
    data["author"].num_nodes, data["paper"].num_nodes = 4, 1
    authors = torch.repeat_interleave(torch.arange(4), torch.arange(1, 5))
    data["author", "writes", "paper"].edge_index = torch.stack([authors, torch.zeros(10, dtype=torch.long)])
    sampler, inputs = HGTSampler(data, [1]), torch.tensor([0])
    from torch_geometric.sampler import NodeSamplerInput

    seeds = NodeSamplerInput(None, inputs, None, "paper")
    taken = [int(sampler.sample_from_nodes(seeds, key=key).node["author"]) for key in range(6000)]
    assert chisquare(np.bincount(taken, minlength=4), 6000 * np.array([1, 4, 9, 16]) / 30).pvalue > 1e-6


@pytest.mark.parametrize("given", [[2.5], [-1], 4, {"paper": [3]}, "many"])
def test_counts_that_are_none_are_refused(data, given):
    with pytest.raises(UserError, match="num_samples"):
        graphmill.HGTLoader(data, given, "paper")


def test_shadows_subgraphs_stand_one_after_another(homogeneous):
    data = homogeneous
    loader = graphmill.ShaDowKHopSampler(data, depth=2, num_neighbors=3, node_idx=data.train_mask, batch_size=25)
    seeds = data.train_mask.nonzero().view(-1)
    roots, labels = [], []
    for batch in loader:
        roots.append(batch.x[batch.root_n_id])
        labels.append(batch.y)
        assert torch.equal(batch.batch, batch.batch.sort().values)
        assert torch.equal(batch.ptr, torch.cat([torch.zeros(1).long(), batch.batch.bincount().cumsum(0)]))
        assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])
    assert torch.equal(torch.cat(roots), data.x[seeds])
    assert torch.equal(torch.cat(labels), data.y[seeds])


def test_out_edges_are_those_of_the_reversed_graph(data):
    forward = NeighborSampler(data, [3, 2], sample_direction="backward")
    turned = HeteroData()
    for name in data.node_types:
        turned[name].num_nodes = data[name].num_nodes
    for kind in KINDS:
        turned[kind[2], kind[1], kind[0]].edge_index = data[kind].edge_index.flip(0)
    backward = NeighborSampler(turned, [3, 2])
    from torch_geometric.sampler import NodeSamplerInput

    seeds = NodeSamplerInput(None, torch.arange(10), None, "author")
    one, other = forward.sample_from_nodes(seeds, key=7), backward.sample_from_nodes(seeds, key=7)
    for kind in KINDS:
        reverse = (kind[2], kind[1], kind[0])
        assert torch.equal(one.edge[kind], other.edge[reverse])
        assert torch.equal(one.row[kind], other.col[reverse])
        assert torch.equal(one.col[kind], other.row[reverse])


@pytest.fixture
def homogeneous():
    from torch_geometric.data import Data

    draw = torch.Generator().manual_seed(5)
    return Data(
        x=torch.rand(300, 4, generator=draw),
        y=torch.randint(0, 4, (300,), generator=draw),
        edge_index=torch.randint(0, 300, (2, 2400), generator=draw),
        train_mask=torch.rand(300, generator=draw) < 0.4,
    )
