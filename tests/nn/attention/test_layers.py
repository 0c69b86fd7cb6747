"""GATConv and GATv2Conv beside PyG's, and what ours has besides."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.nn.attention import GATConv, GATv2Conv, group_edges

peers = pytest.importorskip("torch_geometric.nn")
KINDS = {GATConv: peers.GATConv, GATv2Conv: peers.GATv2Conv}
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5}


def close(mine: Tensor, other: Tensor) -> bool:
    """Within the tolerance of the number format, relative to the largest value."""
    mine, other = mine.detach(), other.detach()
    if not other.is_floating_point():
        return torch.equal(mine, other)
    scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
    return mine.shape == other.shape and bool(((mine - other).abs() <= TOLERANCE[other.dtype] * scale).all())


def pair(kind: type[nn.Module], *args: object, dtype: torch.dtype = torch.float64, **options: object):
    """Our layer and PyG's with the same weights."""
    ours, theirs = kind(*args, **options), KINDS[kind](*args, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    with torch.no_grad():
        for parameter in theirs.parameters():  # biases begin at zero, which would hide them
            parameter.add_(torch.randn_like(parameter) * 0.1)
    ours.load_state_dict(theirs.state_dict())
    return ours.to(dtype), theirs.to(dtype)


def results(layer: nn.Module, x: object, edge_index: Tensor, edge_attr: Tensor | None) -> dict[str, Tensor]:
    """Output, alpha, and the gradients of a loss that weighs every value differently."""
    leaves = [t.detach().clone().requires_grad_() for t in (x if isinstance(x, tuple) else (x,))]
    attr = None if edge_attr is None else edge_attr.clone().requires_grad_()
    given_x = tuple(leaves) if isinstance(x, tuple) else leaves[0]
    out, (edges, alpha) = layer(given_x, edge_index, attr, return_attention_weights=True)
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    inputs = {f"x{i}": leaf for i, leaf in enumerate(leaves)} | ({} if attr is None else {"edge_attr": attr})
    inputs |= dict(layer.named_parameters())
    gradients = torch.autograd.grad((out * weights).sum(), list(inputs.values()), allow_unused=True)
    found = {"out": out, "edges": edges, "alpha": alpha}
    return found | {f"grad {n}": g for n, g in zip(inputs, gradients, strict=True) if g is not None}


def assert_same(ours: nn.Module, theirs: nn.Module, *inputs: object) -> None:
    mine, others = results(ours, *inputs), results(theirs, *inputs)
    for name, other in others.items():
        if name in mine or other.any():  # features of no edge at all have a gradient of zero, or none
            assert close(mine[name], other), name


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, int, Tensor]:
    """(num_sources, num_targets, edge_index): duplicates, loops, isolated nodes, no edge at all."""
    num_sources = draw(st.integers(1, 9))
    num_targets = draw(st.one_of(st.just(num_sources), st.integers(1, num_sources)))
    edges = st.tuples(st.integers(0, num_sources - 1), st.integers(0, num_targets - 1))
    listed = draw(st.lists(edges, max_size=40))
    return num_sources, num_targets, torch.tensor(listed, dtype=torch.int64).view(-1, 2).t().contiguous()


@settings(deadline=None, max_examples=120)
@given(
    graph=graphs(), kind=st.sampled_from(list(KINDS)), dtype=st.sampled_from(list(TOLERANCE)),
    heads=st.integers(1, 4), channels=st.sampled_from([1, 3, 4, 8, 16]), edge_dim=st.sampled_from([None, 1, 3, 11]),
    flags=st.fixed_dictionaries({n: st.booleans() for n in ("concat", "add_self_loops", "bias", "residual")}),
    slope=st.sampled_from([0.0, 0.2, 1.5]), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_pygs_results_and_gradients(graph, kind, dtype, heads, channels, edge_dim, flags, slope, seed):
    torch.manual_seed(seed)
    num_sources, num_targets, edge_index = graph
    is_bipartite = num_sources != num_targets
    widths = (5, 6) if is_bipartite else 5
    layers = pair(kind, widths, channels, heads, dtype=dtype, edge_dim=edge_dim, negative_slope=slope, **flags)
    x = torch.randn(num_sources, 5, dtype=dtype)
    inputs = (x, torch.randn(num_targets, 6, dtype=dtype)) if is_bipartite else x
    attr = None if edge_dim is None else torch.randn(edge_index.shape[1], edge_dim, dtype=dtype)
    assert_same(*layers, inputs, edge_index, attr)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fill_value", ["mean", "add", "min", "max", "mul", 0.5, torch.tensor([1.0, -2.0, 3.0])])
def test_features_of_loops(kind, fill_value):
    torch.manual_seed(0)
    layers = pair(kind, 5, 4, 2, edge_dim=3, fill_value=fill_value)
    edge_index = torch.randint(8, (2, 30))
    assert_same(*layers, torch.randn(9, 5, dtype=torch.float64), edge_index, torch.randn(30, 3, dtype=torch.float64))


def test_weights_shared_by_both_ends():
    torch.manual_seed(0)
    ours, theirs = pair(GATv2Conv, 5, 4, 2, share_weights=True)
    x, edge_index = torch.randn(9, 5, dtype=torch.float64), torch.randint(9, (2, 30))
    assert_same(ours, theirs, x, edge_index, None)
    ours, theirs = pair(GATv2Conv, (5, 5), 4, 2, share_weights=True, add_self_loops=False)
    assert_same(ours, theirs, (x, x[:9] + 1), edge_index, None)


def test_targets_without_features():
    torch.manual_seed(0)
    ours, theirs = pair(GATConv, (5, 5), 4, 2, add_self_loops=False)
    x, edge_index = torch.randn(9, 5, dtype=torch.float64), torch.randint(4, (2, 30))
    for size in ((9, 4), None):
        mine, other = ours((x, None), edge_index, size=size), theirs((x, None), edge_index, size=size)
        assert close(mine, other)


@pytest.mark.parametrize("kind", KINDS)
def test_channels_that_the_first_input_tells(kind):
    torch.manual_seed(0)
    x = (torch.randn(6, 5), torch.randn(4, 7))
    edge_index, attr = torch.stack([torch.randint(6, (20,)), torch.randint(4, (20,))]), torch.randn(20, 3)
    layer = kind((-1, -1), 4, 2, edge_dim=3, residual=True)
    told = kind((5, 7), 4, 2, edge_dim=3, residual=True)
    out = layer(x, edge_index, attr)
    told.load_state_dict(layer.state_dict())
    assert torch.equal(told(x, edge_index, attr), out)
    assert all(parameter.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_the_reference_is_the_same_function(kind, p):
    torch.manual_seed(0)
    fused = kind(5, 4, 3, edge_dim=3, dropout=p).double()
    plain = kind(5, 4, 3, edge_dim=3, dropout=p, attention="reference").double()
    plain.load_state_dict(fused.state_dict())
    x, edge_index, attr = torch.randn(9, 5).double(), torch.randint(9, (2, 40)), torch.randn(40, 3).double()
    key = torch.tensor([-5])
    mine, other = (layer(x, edge_index, attr, return_attention_weights=True, dropout_key=key)
                   for layer in (fused, plain))  # fmt: skip
    assert close(mine[0], other[0])
    assert close(mine[1][1], other[1][1])
    assert torch.equal(mine[1][0], other[1][0])
    assert not p or (mine[1][1] == 0).any()
    of_mine, of_other = (torch.autograd.grad(out[0].cos().sum(), list(layer.parameters()))
                         for out, layer in ((mine, fused), (other, plain)))  # fmt: skip
    assert all(map(close, of_mine, of_other))


@pytest.mark.parametrize("kind", KINDS)
def test_edges_keep_their_features_in_any_order(kind):
    torch.manual_seed(0)
    layer = kind(5, 4, 3, edge_dim=3).double()
    x, edge_index, attr = torch.randn(9, 5).double(), torch.randint(9, (2, 40)), torch.randn(40, 3).double()
    order = torch.randperm(40)
    assert close(layer(x, edge_index[:, order], attr[order]), layer(x, edge_index, attr))
    wrong = layer(x, edge_index, attr[order])
    assert not close(wrong, layer(x, edge_index, attr))


@pytest.mark.parametrize("kind", KINDS)
def test_edges_are_grouped_once(kind):
    torch.manual_seed(0)
    layer = kind(5, 4, 3, edge_dim=3)
    x, edge_index, attr = torch.randn(9, 5), torch.randint(9, (2, 40)), torch.randn(40, 3)
    assert torch.equal(layer(x, group_edges(edge_index, 9, 9, 9), attr), layer(x, edge_index, attr))
    with pytest.raises(UserError, match="9"):
        layer(x, group_edges(edge_index, 9, 9, 0), attr)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_is_keyed(kind):
    torch.manual_seed(0)
    layer = kind(5, 4, 8, edge_dim=3, dropout=0.3, add_self_loops=False)
    x, edge_index, attr = torch.randn(60, 5), torch.randint(60, (2, 2000)), torch.randn(2000, 3)

    def alpha(key: Tensor | None) -> Tensor:
        return layer(x, edge_index, attr, return_attention_weights=True, dropout_key=key)[1][1]

    one, again, other = (alpha(torch.tensor([key])) for key in (3, 3, 4))
    assert torch.equal(one, again)
    assert abs(float((one == 0).double().mean()) - 0.3) < 5 * (0.21 / one.numel()) ** 0.5
    both = float(((one == 0) & (other == 0)).double().mean())
    assert abs(both - 0.09) < 5 * (0.09 / one.numel()) ** 0.5, "draws of two keys are unrelated"
    layer.eval()
    whole = alpha(None)
    assert torch.allclose(one[one != 0] * 0.7, whole[one != 0], rtol=1e-5)
    layer.train()
    torch.manual_seed(1)
    first = alpha(None)
    assert not torch.equal(first, alpha(None))
    torch.manual_seed(1)
    assert torch.equal(first, alpha(None))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attention", ["fused", "reference"])
def test_no_node_and_no_edge(kind, attention):
    layer = kind(5, 4, 3, edge_dim=3, attention=attention)
    nothing, no_edge = torch.empty(0, 3, requires_grad=True), torch.empty(2, 0, dtype=torch.int64)
    out = layer(torch.empty(0, 5), no_edge, nothing)
    assert out.shape == (0, 12)
    out.sum().backward()
    alone = kind(5, 4, 3, edge_dim=3, attention=attention, add_self_loops=False)
    assert torch.equal(alone(torch.randn(2, 5), no_edge, nothing), alone.bias.expand(2, -1))


@pytest.mark.parametrize("kind", KINDS)
def test_what_clashes_is_said(kind):
    x, edge_index = torch.randn(4, 5), torch.randint(4, (2, 9))
    for options, key in (
        ({"fill_value": "median"}, "fill_value"), ({"flow": "target_to_source"}, "flow"), ({"aggr": "max"}, "aggr"),
        ({"dropout": 1.5}, "dropout"), ({"attention": "dense"}, "attention"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=key):
            kind(5, 4, **options)
    with pytest.raises(UserError, match="edge_dim"):
        kind(5, 4)(x, edge_index, torch.randn(9, 3))
    with pytest.raises(UserError, match="int32"):
        kind(5, 4)(x, edge_index.int())
    with pytest.raises(UserError, match="bfloat16"):
        kind(5, 4).bfloat16()(x.bfloat16(), edge_index)
    with pytest.raises(ValueError, match="edge 1 leads from node 7 of 4"):
        kind(5, 4)(x, torch.tensor([[0, 7], [1, 1]]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_traced_whole(kind):
    torch.manual_seed(0)
    layer = kind(5, 4, 3, edge_dim=3)
    x, edge_index, attr = torch.randn(9, 5, requires_grad=True), torch.randint(9, (2, 40)), torch.randn(40, 3)

    def run(forward) -> list[Tensor]:
        out = forward(x, edge_index, attr)
        return [out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])]

    torch.compiler.reset()
    for one, other in zip(run(layer), run(torch.compile(layer, backend="aot_eager", fullgraph=True)), strict=True):
        assert torch.equal(one, other)
