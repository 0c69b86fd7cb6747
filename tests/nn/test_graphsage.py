"""GraphSAGE on mini-batches: exact with all neighbours, and what it draws depends on the node alone."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from rounding import Bounded, assert_within, cat
from torch import Tensor

from graphmill.access.layerwise import LayerwiseInference
from graphmill.graph.batch import Block, MiniBatch
from graphmill.graph.edge_features import EdgeFeatures
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures
from graphmill.graph.keys import Purpose, key_of
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.graph.topology import Topology
from graphmill.nn.draws import kept, row_keys
from graphmill.nn.graphsage import GraphSage
from graphmill.nn.layer_edges import WeightedBlock, mean_of
from graphmill.sample.collect import Collector, WholeTables
from graphmill.sample.neighbor import WholeSampler
from graphmill.sync.group import Group

NUM_NODES, NUM_FEATURES, NUM_CLASSES = 400, 11, 5
BOTH = {"residual": True, "jumping_knowledge": "cat"}
FORMS = [
    *((number, {}) for number in (1, 2, 3)),
    (4, {"residual": True}),
    (1, {"jumping_knowledge": "max"}),
    (3, {"jumping_knowledge": "max"}),
    (2, BOTH),
    (3, BOTH),
]
ALONE = Group(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def topology() -> Topology:
    """Rows of 0 to 20 in-neighbours, self-loops among them."""
    rng = np.random.default_rng(0)
    rows = [np.sort(rng.choice(NUM_NODES, rng.integers(0, 21), replace=False)) for _ in range(NUM_NODES)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Topology(indptr, np.concatenate(rows).astype(np.int32))


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


@pytest.fixture(params=["edges alike", "edges weighted"])
def weights(request, topology) -> EdgeFeatures | None:
    """Of the edges, in another order than theirs; some are 0, and all of every seventh row are."""
    if request.param == "edges alike":
        return None
    rng, num_edges = np.random.default_rng(6), len(topology.indices)
    values = rng.uniform(0, 3, num_edges).astype(np.float32)
    values[rng.random(num_edges) < 0.1] = 0
    values[np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr)) % 7 == 0] = 0
    order = rng.permutation(num_edges)
    stored = np.empty((num_edges, 1), dtype=np.float32)
    stored[order, 0] = values
    return EdgeFeatures(stored, order)


def weights_of(weights: EdgeFeatures, entries: np.ndarray) -> Tensor:
    return torch.from_numpy(weights.values[weights.rows_of(entries), 0])


def model_of(
    num_layers: int = 2,
    dropout: float = 0.5,
    input_dropout: float = 0.0,
    seed: int = 3,
    weights: EdgeFeatures | None = None,
    **form,
) -> GraphSage:
    model = GraphSage(
        in_channels=NUM_FEATURES, hidden_channels=16, out_channels=NUM_CLASSES, num_layers=num_layers, dropout=dropout,
        input_dropout=input_dropout, seed=seed, is_weighted=weights is not None, **form,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(7)
    for parameter in model.parameters():  # biases begin at zero, which would hide them
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def batch_of(
    features: Features, topology: Topology, model: GraphSage, ids: np.ndarray, fanouts: tuple[int, ...], *,
    resample: bool = True, step: int = 0, weights: EdgeFeatures | None = None,
) -> MiniBatch:  # fmt: skip
    columns = 0 if weights is None else 1
    sampler = WholeSampler(topology, fanouts, seed=5, num_threads=1, resample=resample, with_edge_ids=bool(columns))
    collector = Collector(np.zeros(NUM_NODES, np.int64), model.input_form, torch.float32, 1, 0, edge_columns=columns)
    sampled = sampler.sample(Seeds(0, step, SeedIds(ids)))
    return collector.collect(sampled, *WholeTables(features, weights).fetch([sampled]))


def shares_of(weights: Tensor) -> Tensor:
    """Of the edges of a row: w / Σ w, or 0."""
    weights = weights.double()
    return weights / weights.sum() if weights.any() else weights


def mean_matrix(topology: Topology, weights: EdgeFeatures | None = None) -> Bounded:
    """Averaging over in-neighbours as a dense matrix; 1 / degree is rounded, w / Σ w as often as a row has edges."""
    matrix, counts = torch.zeros(NUM_NODES, NUM_NODES, dtype=torch.float64), np.diff(topology.indptr)
    for node in range(NUM_NODES):
        entries = np.arange(topology.indptr[node], topology.indptr[node + 1])
        alike = torch.ones(len(entries)) if weights is None else weights_of(weights, entries)
        matrix[node, torch.from_numpy(topology.indices[entries]).long()] = shares_of(alike)
    return Bounded.of(matrix).rounded(1 if weights is None else int(counts.max()) + 1)


def dense_reference(model: GraphSage, x: Tensor, topology: Topology, weights: EdgeFeatures | None = None) -> Bounded:
    """The whole graph at once, as the papers write it."""
    return result_of(model, [rows for _, rows in layers_of(model, x, topology, weights)])


def layers_of(
    model: GraphSage, x: Tensor, topology: Topology, weights: EdgeFeatures | None = None
) -> list[tuple[Bounded, Bounded]]:
    """Of each layer what goes into its product, and its rows."""
    h, mean, found = Bounded.of(x), mean_matrix(topology, weights), []
    for number in range(len(model.layers)):
        inputs = cat([h, mean @ h], 1)
        h = rows_of_layer(model, number, inputs)
        found.append((inputs, h))
    return found


def rows_of_layer(model: GraphSage, number: int, inputs: Bounded, dropped=lambda rows: rows) -> Bounded:
    """Rows of a layer that reads [self ; mean] rows: a hidden one, from the second on, may add the former."""
    layer = model.layers[number]
    h = inputs @ Bounded.of(layer.weight).t() + layer.bias
    if number == len(model.layers) - 1 and model.readout is None:
        return h
    h = dropped(h.relu())
    is_residual = any(each.is_residual for each in model.layers) and number > 0
    return h + inputs[:, : layer.in_channels] if is_residual else h


def result_of(model: GraphSage, layers: list[Bounded]) -> Bounded:
    """What the model gives where its layers give these rows, of which the first are the last one's own."""
    if model.readout is None:
        return layers[-1]
    own = [rows[: len(layers[-1].value)] for rows in layers]
    largest = (torch.stack([getattr(rows, part) for rows in own]).amax(0) for part in ("value", "slack"))
    read = cat(own, 1) if model.readout.mode == "cat" else Bounded(*largest)
    return read @ Bounded.of(model.readout.weight).t() + model.readout.bias


@pytest.mark.parametrize(("num_layers", "form"), FORMS)
@pytest.mark.parametrize("resample", [True, False])
def test_all_neighbours_give_the_exact_output(features, topology, x, weights, num_layers, form, resample):
    model = model_of(num_layers, weights=weights, **form).eval()
    expected = dense_reference(model, x, topology, weights)
    ids = np.random.default_rng(2).choice(NUM_NODES, 150, replace=False)
    with torch.no_grad():
        batch = batch_of(features, topology, model, ids, (-1,) * num_layers, resample=resample, weights=weights)
        out = model(batch)
    assert_within(out, expected[ids])


@pytest.mark.parametrize(("num_layers", "form"), FORMS)
def test_layerwise_inference_gives_the_exact_output(features, topology, x, weights, num_layers, form):
    model = model_of(num_layers, weights=weights, **form).eval()
    expected = dense_reference(model, x, topology, weights)
    for nodes in (np.arange(NUM_NODES), np.array([399, 3, 17]), np.array([], dtype=np.int64)):
        mine, logits = LayerwiseInference(model, topology, features, ALONE, edge_weights=weights).logits(nodes)
        assert np.array_equal(mine, nodes)
        assert_within(logits, expected[nodes])


@pytest.mark.parametrize("form", [{}, BOTH])
def test_inference_in_small_blocks(features, topology, x, weights, form, monkeypatch):
    model = model_of(3, weights=weights, **form).eval()
    monkeypatch.setattr("graphmill.access.layerwise._ROWS_AT_A_TIME", 37)
    inference = LayerwiseInference(model, topology, features, ALONE, edge_weights=weights)
    blocks = inference.logits(np.arange(NUM_NODES))[1]
    assert_within(blocks, dense_reference(model, x, topology, weights))


def test_ranks_with_unequal_shares_ask_equally_often_whether_to_stop(features, topology, monkeypatch):
    """They ask together: of five nodes one has three, in two blocks, and the other two, in one."""
    monkeypatch.setattr("graphmill.access.layerwise._ROWS_AT_A_TIME", 2)
    asked = []
    for rank in (0, 1):
        group = Group(rank, 2, torch.device("cpu"))
        LayerwiseInference(model_of(1).eval(), topology, features, group, lambda rank=rank: asked.append(rank)).logits(
            np.arange(5)
        )
    assert asked == [0, 0, 1, 1]


def test_pygs_convolutions_with_the_same_weights(topology, x):
    """They meet the reference that ours meets above."""
    pyg = pytest.importorskip("torch_geometric.nn")
    model = model_of(3).eval()
    targets = np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr))
    edge_index = torch.from_numpy(np.stack([topology.indices.astype(np.int64), targets]))
    h = x
    with torch.no_grad():
        for number, layer in enumerate(model.layers):
            conv = pyg.SAGEConv(layer.in_channels, layer.out_channels)
            of_self, of_neighbours = layer.weight.chunk(2, dim=1)
            conv.lin_r.weight.copy_(of_self)
            conv.lin_l.weight.copy_(of_neighbours)
            conv.lin_l.bias.copy_(layer.bias)
            h = conv(h, edge_index)
            h = h.relu() if number < 2 else h
    assert_within(h, dense_reference(model, x, topology))


@pytest.mark.parametrize("mode", ["cat", "max"])
def test_pygs_jumping_knowledge_with_the_same_weights(topology, x, mode):
    """It meets the reference that ours meets above."""
    pyg = pytest.importorskip("torch_geometric.nn")
    model = model_of(3, jumping_knowledge=mode).eval()
    theirs = pyg.GraphSAGE(NUM_FEATURES, 16, num_layers=3, out_channels=NUM_CLASSES, jk=mode).eval()
    targets = np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr))
    edge_index = torch.from_numpy(np.stack([topology.indices.astype(np.int64), targets]))
    with torch.no_grad():
        for conv, layer in zip(theirs.convs, model.layers, strict=True):
            of_self, of_neighbours = layer.weight.chunk(2, dim=1)
            conv.lin_r.weight.copy_(of_self)
            conv.lin_l.weight.copy_(of_neighbours)
            conv.lin_l.bias.copy_(layer.bias)
        theirs.lin.weight.copy_(model.readout.weight)
        theirs.lin.bias.copy_(model.readout.bias)
        assert_within(theirs(x, edge_index), dense_reference(model, x, topology))


def in_training(model: GraphSage, batch: MiniBatch, x: Tensor) -> Bounded:
    """The model on a batch with its draws of neighbours and its dropout, written out."""

    def dropped(h: Bounded, layer: int, p: float) -> Bounded:
        if p == 0:
            return h
        key = key_of(model.dropout.seed, Purpose.DROPOUT, batch.seeds.epoch, batch.seeds.step, layer)
        keys = row_keys(key, batch.node_ids[: len(h.value)]).unsqueeze(1)
        return (h * (kept(keys, torch.arange(h.value.shape[1]), p) / (1 - p))).rounded(2)

    h, layers = dropped(Bounded.of(x[batch.node_ids]), 0, model.dropout.of_inputs), []
    for number, block in enumerate(batch.blocks):
        mean = torch.zeros(block.num_rows, len(h.value), dtype=torch.float64)
        lengths = block.indptr.diff()
        for row, (begin, end) in enumerate(pairwise(block.indptr.tolist())):
            alike = batch.edge_attr[begin:end, 0] if model.is_weighted else torch.ones(end - begin)
            mean[row, block.indices[begin:end].long()] = shares_of(alike)
        times = int(lengths.max()) + 1 if model.is_weighted else 1
        inputs = cat([h[: block.num_rows], Bounded.of(mean).rounded(times) @ h], 1)
        h = rows_of_layer(
            model, number, inputs, lambda rows, number=number: dropped(rows, number + 1, model.dropout.of_hidden)
        )
        layers.append(h)
    return result_of(model, layers)


@pytest.mark.parametrize(
    ("input_dropout", "form"), [(0.0, {}), (0.4, {}), (0.4, BOTH), (0.0, {**BOTH, "jumping_knowledge": "max"})]
)
def test_what_is_computed_for_a_node_does_not_depend_on_its_batch(features, topology, x, weights, input_dropout, form):
    """Dropout and draws are keyed by node: the parts of a batch give what the whole gives, whichever rank has them."""
    model = model_of(2, dropout=0.5, input_dropout=input_dropout, weights=weights, **form).train()
    ids = np.random.default_rng(4).choice(NUM_NODES, 90, replace=False)
    batch = batch_of(features, topology, model, ids, (4, 3), weights=weights)
    exact = in_training(model, batch, x)
    assert_within(model(batch), exact)
    for part in (slice(0, 31), slice(31, 90)):
        assert_within(model(batch_of(features, topology, model, ids[part], (4, 3), weights=weights)), exact[part])
    reverse = model(batch_of(features, topology, model, ids[::-1].copy(), (4, 3), weights=weights))
    assert_within(reverse.flip(0), exact)


def test_dropout_is_drawn_anew_each_step_and_is_repeatable(features, topology):
    model = model_of(2, dropout=0.5).train()
    ids = np.arange(60)
    batch = batch_of(features, topology, model, ids, (-1, -1))
    again = batch_of(features, topology, model, ids, (-1, -1))
    later = batch_of(features, topology, model, ids, (-1, -1), step=1)
    other_epoch = replace(batch, seeds=Seeds(1, 0, batch.seeds.ids))
    assert torch.equal(model(batch), model(again))
    for other in (later, other_epoch):
        assert (model(batch) - model(other)).abs().max() > 0.1, "another draw, not another rounding"
    model.eval()
    assert torch.equal(model(batch), model(later)), "nothing is dropped in evaluation"


def test_dropout_has_the_right_mean(topology, x):
    """Averaged over steps, the output of a one-hidden-layer net whose last layer is linear is the undropped one."""
    model = model_of(2, dropout=0.5)
    features = DenseFeatures(x.numpy(), "float32")
    ids = np.arange(20)
    with torch.no_grad():
        exact = model.eval()(batch_of(features, topology, model, ids, (-1, -1)))
        model.train()
        outs = torch.stack([model(batch_of(features, topology, model, ids, (-1, -1), step=s)) for s in range(400)])
    error = (outs.mean(0) - exact).abs() / (outs.std(0) / 20 + 1e-6)
    assert float(error.max()) < 5


def test_gradients_match_the_dense_reference(features, topology, x, weights):
    model = model_of(2, dropout=0.0, weights=weights)
    ids = np.arange(0, NUM_NODES, 3)
    out = model(batch_of(features, topology, model, ids, (-1, -1), weights=weights))
    of_logits = torch.cos(torch.arange(out.numel())).view_as(out)
    found = torch.autograd.grad(out, list(model.parameters()), of_logits)

    (first_inputs, _), (second_inputs, _) = layers_of(model, x, topology, weights)
    first = first_inputs @ Bounded.of(model.layers[0].weight).t() + model.layers[0].bias
    grad = torch.zeros(NUM_NODES, NUM_CLASSES, dtype=torch.float64)
    grad[ids] = of_logits.double()
    grad = Bounded.of(grad)
    of_self, of_mean = (grad @ Bounded.of(model.layers[1].weight)).split(16, 1)
    before = (of_self + mean_matrix(topology, weights).t() @ of_mean) * first.is_positive()
    exact = [before.t() @ first_inputs, before.sum(0), grad.t() @ second_inputs, grad.sum(0)]
    assert [name for name, _ in model.named_parameters()] == [
        f"layers.{i}.{x}" for i in (0, 1) for x in ("weight", "bias")
    ]
    for gradient, bounded in zip(found, exact, strict=True):
        assert_within(gradient, bounded)


def test_gradients_through_residual_layers_and_a_head_are_those_of_the_dense_model(topology, x):
    """In float64 by torch; each sum is off by a roundoff for each of its terms, of their absolute values."""
    model, mean = model_of(3, dropout=0.0, **BOTH), mean_matrix(topology).value
    out = model(batch_of(DenseFeatures(x.numpy(), "float32"), topology, model, np.arange(NUM_NODES), (-1, -1, -1)))
    of_logits = torch.cos(torch.arange(out.numel())).view_as(out)
    found = torch.autograd.grad(out, list(model.parameters()), of_logits)

    def gradients(of: Tensor, x: Tensor, parameters: list[Tensor]) -> tuple[Tensor, ...]:
        *layers, weight, bias = (parameter.detach().requires_grad_() for parameter in parameters)
        h, rows = x, []
        for own, own_bias in zip(layers[::2], layers[1::2], strict=True):
            result = (torch.cat([h, mean @ h], 1) @ own.t() + own_bias).relu()
            h = result + h if rows else result
            rows.append(h)
        return torch.autograd.grad(torch.cat(rows, 1) @ weight.t() + bias, [*layers, weight, bias], of)

    parameters = [parameter.double() for parameter in model.parameters()]
    exact = gradients(of_logits.double(), x.double(), parameters)
    sizes = gradients(of_logits.double().abs(), x.double().abs(), [each.abs() for each in parameters])
    terms = NUM_NODES + 3 * (2 * 16 + int(np.diff(topology.indptr).max()) + 4) + 3 * 16
    for gradient, bounded in zip(found, map(Bounded, exact, (terms * size for size in sizes)), strict=True):
        assert_within(gradient, bounded)


def test_what_is_read_for_embeddings_is_what_the_last_layer_or_the_head_reads(topology, x):
    features, nodes = DenseFeatures(x.numpy(), "float32"), np.array([399, 3, 17])
    for form in ({}, BOTH):
        model = model_of(3, **form).eval()
        inference = LayerwiseInference(model, topology, features, ALONE)
        rows = [rows for _, rows in layers_of(model, x, topology)]
        read = cat(rows, 1) if form else rows[1]
        assert_within(inference.embeddings(nodes), read[nodes])


def test_a_residual_layer_and_a_head_change_no_initial_weight_of_the_layers():
    """And only layers that are as wide as what they read add it."""
    plain, other = (model_of(3, **form) for form in ({}, {"residual": True, "jumping_knowledge": "max"}))
    assert torch.equal(plain.layers[1].weight, other.layers[1].weight)
    assert [layer.is_residual for layer in model_of(3, residual=True).layers] == [False, True, False]
    assert [layer.is_residual for layer in other.layers] == [False, True, True]


@pytest.mark.parametrize("weights", ["edges weighted"], indirect=True)
def test_pygs_weighted_sums_give_the_same_means(topology, x, weights):
    """Σ w x / Σ w by `SimpleConv`, which sums messages by weight, in float64; a row of zeros has the mean 0."""
    pyg = pytest.importorskip("torch_geometric.nn")
    conv = pyg.SimpleConv(aggr="sum")
    targets = np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr))
    edge_index = torch.from_numpy(np.stack([topology.indices.astype(np.int64), targets]))
    alone = weights_of(weights, np.arange(len(targets)))
    sums = conv(torch.ones(NUM_NODES, 1, dtype=torch.float64), edge_index, alone.double())
    assert (sums == 0).any()
    expected = conv(x.double(), edge_index, alone.double()) / torch.where(sums == 0, 1.0, sums)
    block = WeightedBlock.of(Block(torch.from_numpy(topology.indptr), torch.from_numpy(topology.indices)), alone)
    assert_within(mean_of(x, block), mean_matrix(topology, weights) @ x)
    assert torch.allclose(mean_matrix(topology, weights).value @ x.double(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weights", ["edges weighted"], indirect=True)
def test_no_bit_of_weighted_means_depends_on_the_number_of_threads(features, topology, weights):
    model, before, found = model_of(2, weights=weights).train(), torch.get_num_threads(), []
    batch = batch_of(features, topology, model, np.arange(0, NUM_NODES, 2), (4, 3), weights=weights)
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            out = model(batch)
            found.append([out, *torch.autograd.grad(out.square().sum(), list(model.parameters()))])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for others in found[1:] for one, other in zip(found[0], others, strict=True))


def test_a_batch_without_seeds_has_a_loss_and_no_gradient(features, topology, weights):
    model = model_of(2, dropout=0.5, input_dropout=0.0, weights=weights).train()
    batch = batch_of(features, topology, model, np.array([], dtype=np.int64), (4, 3), weights=weights)
    out = model(batch)
    assert out.shape == (0, NUM_CLASSES)
    loss = torch.nn.functional.cross_entropy(out, batch.labels, reduction="sum")
    loss.backward()
    assert loss.item() == 0
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in model.parameters())


def test_initial_weights_are_a_function_of_the_seed():
    one, same, other = (GraphSage(
        in_channels=8, hidden_channels=16, out_channels=3, num_layers=2, dropout=0.0, input_dropout=0.0, seed=seed
    ) for seed in (1, 1, 2))  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.layers[0].weight, other.layers[0].weight)
    bound = 8**-0.5  # 1 / sqrt(in_channels), of weights and bias alike
    assert bound * 0.9 < one.layers[0].weight.abs().max().item() <= bound
    assert 0 < one.layers[0].bias.abs().max().item() <= bound


def test_weights_that_are_nan_show_in_the_logits(features, topology):
    model = model_of(2)
    with torch.no_grad():
        model.layers[0].weight.fill_(float("nan"))
    logits = model(batch_of(features, topology, model, np.arange(20), (4, 4)))
    assert logits.isnan().all()
