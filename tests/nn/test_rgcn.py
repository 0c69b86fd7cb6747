"""R-GCN on mini-batches: exact with all neighbours, and what it draws depends on the node alone."""

import numpy as np
import pytest
import torch
from rounding import Bounded, assert_within, cat
from torch import Tensor

from graphmill.graph.batch import MiniBatch
from graphmill.graph.edge_features import EdgeFeatures
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.graph.topology import Topology
from graphmill.nn.rgcn import RelationalGcn
from graphmill.sample.collect import Collector, WholeTables
from graphmill.sample.neighbor import WholeSampler

NUM_NODES, NUM_FEATURES, NUM_CLASSES, NUM_RELATIONS = 300, 11, 5, 4


@pytest.fixture(scope="module")
def topology() -> Topology:
    """Rows of 0 to 20 in-neighbours, self-loops among them, and some sources more than once."""
    rng = np.random.default_rng(0)
    rows = [np.sort(rng.integers(0, NUM_NODES, rng.integers(0, 21))) for _ in range(NUM_NODES)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Topology(indptr, np.concatenate(rows).astype(np.int32))


@pytest.fixture(scope="module")
def types(topology) -> EdgeFeatures:
    """A column that is no type, and the type."""
    rng = np.random.default_rng(1)
    columns = [rng.random(topology.num_edges), rng.integers(0, NUM_RELATIONS, topology.num_edges)]
    return EdgeFeatures(np.stack(columns, axis=1).astype(np.float32), None)


@pytest.fixture(scope="module")
def x() -> Tensor:
    """Mostly zeros, so that the same numbers can stand as sparse rows."""
    generator = torch.Generator().manual_seed(1)
    dense = torch.randn(NUM_NODES, NUM_FEATURES, generator=generator)
    return dense * (torch.rand(NUM_NODES, NUM_FEATURES, generator=generator) < 0.5)


@pytest.fixture(params=["dense", "sparse"])
def features(request, x) -> Features:
    if request.param == "dense":
        return DenseFeatures(x.numpy(), "float32")
    rows, columns = x.nonzero(as_tuple=True)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=NUM_NODES))]).astype(np.int64)
    return SparseFeatures(indptr, columns.int().numpy(), x[rows, columns].numpy(), NUM_FEATURES)


def model_of(
    features: Features,
    num_layers: int = 2,
    num_bases: int | None = None,
    dropout: float = 0.5,
    input_dropout: float = 0.0,
) -> RelationalGcn:
    model = RelationalGcn(
        in_channels=NUM_FEATURES, hidden_channels=16, out_channels=NUM_CLASSES, num_layers=num_layers,
        num_relations=NUM_RELATIONS, num_bases=num_bases, projects_inputs=isinstance(features, SparseFeatures),
        dropout=dropout, input_dropout=input_dropout, seed=3,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(7)
    for parameter in model.parameters():  # biases begin at zero, which would hide them
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def batch_of(
    features: Features, topology: Topology, types: EdgeFeatures, ids: np.ndarray, fanouts: tuple[int, ...], *,
    resample: bool = True,
) -> MiniBatch:  # fmt: skip
    sampler = WholeSampler(topology, fanouts, seed=5, num_threads=1, resample=resample, with_edge_ids=True)
    collector = Collector(np.zeros(NUM_NODES, np.int64), "rows", torch.float32, 1, 0, edge_columns=2)
    sampled = sampler.sample(Seeds(0, 0, SeedIds(ids)))
    return collector.collect(sampled, *WholeTables(features, types).fetch([sampled]))


def targets_of(topology: Topology) -> Tensor:
    return torch.from_numpy(np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr)))


def mean_matrices(topology: Topology, types: EdgeFeatures) -> list[Bounded]:
    """Averaging over the in-neighbours by each relation as dense matrices, in roundings of the mean."""
    targets, sources = targets_of(topology), torch.from_numpy(topology.indices).long()
    relations, found = torch.from_numpy(types.values[:, 1]), []
    for relation in range(NUM_RELATIONS):
        here = relations == relation
        counts, ones = torch.zeros(NUM_NODES, NUM_NODES, dtype=torch.float64), torch.ones(int(here.sum())).double()
        counts.index_put_((targets[here], sources[here]), ones, accumulate=True)
        degrees = counts.sum(1, keepdim=True).clamp(min=1)
        found.append(Bounded(counts / degrees, degrees * counts))
    return found


def dense_reference(model: RelationalGcn, x: Tensor, topology: Topology, types: EdgeFeatures) -> Bounded:
    """The whole graph at once, as equations 2 and 3 of the paper have it."""
    h, means = Bounded.of(x), mean_matrices(topology, types)
    h = h if model.projection is None else h @ model.projection
    for number, layer in enumerate(model.layers):
        h = h.relu() if number else h
        flat = Bounded.of(torch.eye(NUM_RELATIONS) if layer.comp is None else layer.comp) @ layer.weight.flatten(1)
        matrices = [flat[r].moved(lambda w, own=layer: w.view(own.weight.shape[1:])) for r in range(NUM_RELATIONS)]
        read = cat([h, *(mean @ h for mean in means)], 1)
        h = read @ cat([Bounded.of(layer.root), *matrices], 1).t() + layer.bias
    return h


@pytest.mark.parametrize(("num_layers", "num_bases"), [(1, None), (2, 3), (3, None)])
@pytest.mark.parametrize("resample", [True, False])
def test_all_neighbours_give_the_exact_output(features, topology, types, x, num_layers, num_bases, resample):
    model = model_of(features, num_layers, num_bases).eval()
    expected = dense_reference(model, x, topology, types)
    ids = np.random.default_rng(2).choice(NUM_NODES, 100, replace=False)
    batch = batch_of(features, topology, types, ids, (-1,) * num_layers, resample=resample)
    with torch.no_grad():
        assert_within(model(batch), expected[ids])


@pytest.mark.parametrize("num_bases", [None, 3])
def test_pygs_convolutions_with_the_same_weights(topology, types, x, num_bases):
    """They meet the reference that ours meets above."""
    pyg = pytest.importorskip("torch_geometric.nn")
    model = model_of(DenseFeatures(x.numpy(), "float32"), 3, num_bases)
    edge_index = torch.stack([torch.from_numpy(topology.indices).long(), targets_of(topology)])
    relations, h = torch.from_numpy(types.values[:, 1]).long(), x
    with torch.no_grad():
        for number, layer in enumerate(model.layers):
            conv = pyg.RGCNConv(layer.in_channels, layer.out_channels, NUM_RELATIONS, num_bases=num_bases)
            conv.weight.copy_(layer.weight.mT)
            conv.root.copy_(layer.root.t())
            conv.bias.copy_(layer.bias)
            if layer.comp is not None:
                conv.comp.copy_(layer.comp)
            h = conv(h.relu() if number else h, edge_index, relations)
    assert_within(h, dense_reference(model, x, topology, types))


def test_what_is_computed_of_a_node_depends_on_it_alone(features, topology, types):
    """Of a batch and of its halves, sampled and dropped in training: the same logits to the bit."""
    model = model_of(features, input_dropout=0.3).train()
    ids = np.random.default_rng(4).choice(NUM_NODES, 64, replace=False)
    whole = model(batch_of(features, topology, types, ids, (4, 3)))
    halves = [model(batch_of(features, topology, types, half, (4, 3))) for half in (ids[:32], ids[32:])]
    assert torch.cat(halves).equal(whole)
    assert not whole.equal(model.eval()(batch_of(features, topology, types, ids, (4, 3))))


def test_every_parameter_has_a_gradient(features, topology, types):
    model = model_of(features, 2, 3).train()
    model(batch_of(features, topology, types, np.arange(100), (5, 5))).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
