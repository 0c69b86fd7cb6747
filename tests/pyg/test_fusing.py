"""PyG's layers within models, replaced: which ones, and that a model computes what it did."""

import copy
from itertools import accumulate

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("torch_geometric")
from torch_geometric import nn as peers
from torch_geometric.nn import models

from graphmill import pyg
from graphmill.pyg.fusing import FUSED, left_to_pyg, reads_sparse
from graphmill.pyg.loaders import NeighborLoader
from graphmill.pyg.trimming import may_be_trimmed, trimmed

IN, HIDDEN, OUT = 12, 8, 5
MODELS = {
    "GCN": (models.GCN, {}),
    "SAGE": (models.GraphSAGE, {"aggr": "sum"}),
    "GIN": (models.GIN, {}),
    "GAT": (models.GAT, {"heads": 2}),
    "GATv2": (models.GAT, {"heads": 2, "v2": True}),
}
OF_WHOLE_NUMBERS = ("SAGE", "GIN")
"""Models whose results are whole numbers for whole inputs and weights: equal in any order of sums."""


class Mine(nn.Module):
    """A person's own, with a layer that graphmill has not and one of a class of their own."""

    def __init__(self) -> None:
        super().__init__()

        class Own(peers.SAGEConv):
            def message(self, x_j: Tensor) -> Tensor:
                return 2 * x_j

        self.first, self.second = peers.SAGEConv(IN, HIDDEN), Own(HIDDEN, HIDDEN)
        self.third, self.fourth = peers.TransformerConv(HIDDEN, HIDDEN), peers.GCNConv(HIDDEN, OUT, aggr="max")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in (self.first, self.second, self.third, self.fourth):
            x = layer(x, edge_index)
        return x


def made(name: str, *, whole: bool = False, **options: object) -> nn.Module:
    torch.manual_seed(0)
    kind, own = MODELS[name]
    model = kind(IN, HIDDEN, 2, OUT, **own, **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint_like(parameter, -3, 4) if whole else torch.randn_like(parameter))
    return model


def fused(model: nn.Module) -> nn.Module:
    ours = copy.deepcopy(model)
    assert pyg.fuse_layers(ours)
    return ours


def near(found: Tensor, wanted: Tensor) -> bool:
    """As near as results of layers of attention and of normalised edges are held to PyG's (test_layers)."""
    scale = max(1.0, float(wanted.detach().abs().max()))
    return bool(((found - wanted).abs() <= 1e-5 * scale).all())


@pytest.mark.parametrize("name", MODELS)
def test_a_model_keeps_its_parameters_and_results(name, data, monkeypatch):
    theirs = made(name)
    ours = copy.deepcopy(theirs)
    before = dict(ours.named_parameters())
    assert pyg.fuse_layers(ours) == ("convs.0", "convs.1")
    assert pyg.fuse_layers(ours) == ()
    assert left_to_pyg(ours) == ()
    after = dict(ours.named_parameters())
    assert list(before) == list(after)
    assert all(before[key] is after[key] for key in before)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    wanted = theirs(data.x, data.edge_index)
    peer = type(theirs.convs[0])
    monkeypatch.setattr(peer, "forward", lambda *_, **__: pytest.fail("PyG's own code computed"))
    assert near(ours(data.x, data.edge_index), wanted)


def test_each_layer_of_the_package_is_there():
    layers = {name for name in pyg.__all__ if name.endswith("Conv")}
    assert {peer.__name__ for peer in FUSED} == layers
    assert all(ours is getattr(pyg, peer.__name__) and peer in ours.__mro__ for peer, ours in FUSED.items())


def test_other_layers_are_left_and_named(data):
    ours = Mine()
    assert pyg.fuse_layers(ours) == ("first", "fourth")
    assert left_to_pyg(ours) == ("second (Own)", "third (TransformerConv)", "fourth (GCNConv with aggr=max)")
    assert ours(data.x, data.edge_index).shape == (len(data.x), OUT)
    assert pyg.fuse_layers(nn.Linear(2, 2)) == ()


def batches(data, fanouts: list[int]):
    """Batches of 40 seeds with features in whole numbers, and the sizes of their hops."""
    x = torch.randint(-3, 4, data.x.shape, generator=torch.Generator().manual_seed(1)).float()
    for batch in NeighborLoader(data, num_neighbors=fanouts, batch_size=40, input_nodes=torch.arange(80), seed=0):
        yield x[batch.n_id], batch.edge_index, (batch.num_sampled_nodes, batch.num_sampled_edges)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fanouts", [[4, 3], [3, 3, 2], [-1, -1]])
@pytest.mark.parametrize("is_fused", [True, False])
def test_rows_that_no_layer_reads_are_left_out(name, fanouts, is_fused, data):
    """Seeds' rows and gradients are those of the whole batch, and a layer makes rows of what the next one reads."""
    theirs = made(name, whole=name in OF_WHOLE_NUMBERS)
    model = fused(theirs) if is_fused else copy.deepcopy(theirs)
    assert may_be_trimmed(model)
    num_rows: list[int] = []
    for conv in model.convs:
        conv.register_forward_hook(lambda *told: num_rows.append(len(told[-1])))
    for x, edge_index, (nodes, edges) in batches(data, fanouts):
        num_rows.clear()
        wanted = theirs(x, edge_index)[:40]
        with trimmed(model, nodes, edges) as hops:
            found = model(x, edge_index, **hops)
        known = list(accumulate(nodes))
        if is_fused or name != "GCN":  # PyG's gives as many rows as it is given
            assert num_rows == [known[-2], known[-3]]
        assert torch.equal(found[:40], wanted) if name in OF_WHOLE_NUMBERS else near(found[:40], wanted)
        both = ((found, model), (wanted, theirs))
        mine, others = (torch.autograd.grad(out[:40].square().sum(), each.parameters()) for out, each in both)
        largest = max(float(each.abs().max()) for each in others)  # attention's are differences of such
        assert all((one - other).abs().max() <= 1e-5 * largest for one, other in zip(mine, others, strict=True))
        assert near(model(x, edge_index), theirs(x, edge_index))  # nothing of it is left


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize(("name", "argument"), [("GCN", "edge_weight"), ("GAT", "edge_attr"), ("GATv2", "edge_attr")])
def test_features_of_edges_are_left_out_with_them(name, argument, is_fused, data):
    theirs = made(name, **({"edge_dim": 3} if argument == "edge_attr" else {}))
    model = fused(theirs) if is_fused else copy.deepcopy(theirs)
    for x, edge_index, (nodes, edges) in batches(data, [4, 3]):
        shape = (edge_index.shape[1], 3) if argument == "edge_attr" else (edge_index.shape[1],)
        named = {argument: torch.rand(shape, generator=torch.Generator().manual_seed(0))}
        with trimmed(model, nodes, edges) as hops:
            assert near(model(x, edge_index, **named, **hops)[:40], theirs(x, edge_index, **named)[:40])


@pytest.mark.parametrize("options", [{"normalize": False}, {"add_self_loops": False}, {"improved": True}], ids=str)
def test_options_of_gcn_are_kept_where_rows_are_left_out(options, data):
    theirs = made("GCN", **options)
    for model in (fused(theirs), copy.deepcopy(theirs)):
        for x, edge_index, (nodes, edges) in batches(data, [4, 3]):
            with trimmed(model, nodes, edges) as hops:
                assert near(model(x, edge_index, **hops)[:40], theirs(x, edge_index)[:40])
        assert [conv.normalize for conv in model.convs] == [options.get("normalize", True)] * 2


class Residual(models.GraphSAGE):
    """A model that calls PyG's layers in another way."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = x.mean() + conv(x, edge_index)
        return x


def test_a_model_with_a_forward_of_its_own_is_not_trimmed():
    assert not may_be_trimmed(Residual(IN, HIDDEN, 2, OUT))
    assert may_be_trimmed(models.GraphSAGE(IN, HIDDEN, 2, OUT))
    assert not may_be_trimmed(models.GCN(IN, HIDDEN, 2, OUT, cached=True))
    assert not may_be_trimmed(
        models.PNA(IN, HIDDEN, 2, OUT, aggregators=["mean"], scalers=["identity"], deg=torch.ones(3))
    )


class WithNorms(models.GIN):
    """PyG's MLP has batch norms where nobody says otherwise."""

    def init_conv(self, in_channels: int, out_channels: int, **_: object) -> nn.Module:
        return peers.GINConv(peers.MLP([in_channels, out_channels, out_channels]))


class Unlike(models.GCN):
    """Layers that read two matrices."""

    def init_conv(self, in_channels: int, out_channels: int, **_: object) -> nn.Module:
        return peers.GCNConv(in_channels, out_channels, add_self_loops=in_channels == IN)


@pytest.mark.parametrize(
    "model",
    [
        models.GIN(IN, HIDDEN, 1, OUT, norm="batch_norm"),  # it has norms within its layer alone
        WithNorms(IN, HIDDEN, 2, OUT),
        Unlike(IN, HIDDEN, 2, OUT),
        models.GraphSAGE(IN, HIDDEN, 2, OUT, act=nn.Softmax(dim=0)),
        models.GraphSAGE(IN, HIDDEN, 2, OUT, act=lambda x: x - x.mean(0)),
        models.GraphSAGE(IN, HIDDEN, 2, OUT, aggr=peers.DeepSetsAggregation(nn.BatchNorm1d(IN))),
    ],
    ids=["norm in GIN", "norm in MLP", "unlike layers", "softmax", "function", "norm in aggregation"],
)
def test_a_model_whose_parts_look_at_all_rows_is_not_trimmed(model):
    assert not may_be_trimmed(model)


@pytest.mark.parametrize("options", [{"act": torch.tanh}, {"act": "prelu"}, {"aggr": "lstm"}, {"aggr": ["max", "std"]}])
def test_a_model_whose_parts_look_at_one_row_is_trimmed(options):
    assert may_be_trimmed(models.GraphSAGE(IN, IN, 2, OUT, **options))


@pytest.mark.parametrize("options", [{"norm": "batch_norm"}, {"jk": "cat"}, {"jk": "last"}], ids=str)
def test_a_model_that_looks_at_all_rows_is_not_trimmed(options):
    assert not may_be_trimmed(fused(made("SAGE", **options)))
    assert not may_be_trimmed(Mine())


@pytest.mark.parametrize("name", ["GCN", "SAGE", "GAT", "GATv2"])
def test_sparse_features(name, data, monkeypatch):
    theirs = made(name)
    ours = fused(theirs)
    assert reads_sparse(ours)
    assert not reads_sparse(theirs)
    dense = data.x * (torch.rand(data.x.shape, generator=torch.Generator().manual_seed(2)) < 0.2)
    csr = dense.to_sparse_csr()
    places = [each.int() for each in (csr.crow_indices(), csr.col_indices())]
    narrow = torch.sparse_csr_tensor(*places, csr.values(), size=csr.shape)
    wanted = theirs(dense, data.edge_index)
    wanted.square().sum().backward()
    monkeypatch.setattr(type(theirs.convs[0]), "forward", lambda *_, **__: pytest.fail("PyG's own code computed"))
    for x in (csr, narrow):
        ours.zero_grad()
        found = ours(x, data.edge_index)
        assert near(found, wanted)
        found.square().sum().backward()
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert near(mine.grad, other.grad)


@pytest.mark.parametrize(
    ("name", "options"),
    [("GIN", {}), ("GAT", {"residual": True}), ("SAGE", {"project": True})],
)
def test_models_whose_first_layer_reads_rows_otherwise(name, options):
    assert not reads_sparse(fused(made(name, **options)))
    assert not reads_sparse(Mine())
