"""`graphmill::attention` as torch's machinery sees it, its gradient, and its bits."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from graphmill.nn.attention import GATConv, GATv2Conv, group_edges, operator
from graphmill.nn.attention.operator import Dropout, EdgeScores, Scores, attention

HEADS, CHANNELS, EDGE_DIM = 2, 4, 3


def problem(kind: str, dtype: torch.dtype, *, num_edges: int = 30, p: float = 0.0, loops: int = 4):
    """Arguments of `attention` over 6 sources and 5 targets."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    width = HEADS * (CHANNELS if kind == "gatv2" else 1)
    scores = Scores(
        normal(5, width), *((None, normal(width)) if kind == "gatv2" else (normal(6, width), None)), negative_slope=0.2
    )
    features = EdgeScores(normal(num_edges, EDGE_DIM), normal(loops, EDGE_DIM), normal(EDGE_DIM, width))
    ends = (torch.randint(most, (num_edges,), generator=generator) for most in (6, 5))
    groups = group_edges(torch.stack(list(ends)), 6, 5, loops)
    dropout = Dropout(torch.tensor([11]), p) if p else None
    return [normal(6, HEADS * CHANNELS), HEADS, scores, features, dropout, groups]


@pytest.mark.each_isa
@pytest.mark.parametrize("kind", ["gat", "gatv2"])
@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("loops", [0, 4])
def test_the_gradient_is_that_of_the_result(kind, p, loops):
    x, heads, scores, features, dropout, groups = problem(kind, torch.float64, p=p, loops=loops)
    leaves = [x, scores.target, scores.source if scores.att is None else scores.att, features.attr, features.loop_attr,
              features.weight]  # fmt: skip

    def out(x: Tensor, target: Tensor, other: Tensor, attr: Tensor, loop_attr: Tensor, weight: Tensor) -> Tensor:
        varied = replace(scores, target=target, **{"att" if scores.source is None else "source": other})
        return attention(x, heads, varied, EdgeScores(attr, loop_attr, weight), dropout, groups)[0]

    assert torch.autograd.gradcheck(out, leaves)


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_torch_finds_nothing_wrong_with_the_operator(kind, p):
    arguments = problem(kind, torch.float32, p=p)
    torch.library.opcheck(torch.ops.graphmill.attention.default, operator._arguments(*arguments))
    arguments[3] = None
    torch.library.opcheck(torch.ops.graphmill.attention.default, operator._arguments(*arguments))


def test_torch_finds_nothing_wrong_with_the_grouping():
    edge_index = torch.randint(5, (2, 30))
    for by_source in (True, False):
        torch.library.opcheck(torch.ops.graphmill.group_edges.default, (edge_index, 6, 5, 5, by_source))


@pytest.mark.parametrize("kind", [GATConv, GATv2Conv])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_bits_do_not_depend_on_the_number_of_threads(kind, p):
    torch.manual_seed(0)
    layer = kind(8, 5, 3, edge_dim=4, dropout=p)
    x, attr = torch.randn(900, 8, requires_grad=True), torch.randn(20_000, 4, requires_grad=True)
    edge_index = (torch.rand(2, 20_000) ** 3 * 900).long()  # some nodes have thousands of edges, many none
    arguments = _captured(layer, x, edge_index, attr)
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            out, *_ = torch.ops.graphmill.attention(*arguments)
            inputs = [t for t in arguments[:7] if t is not None and t.requires_grad]
            found.append([out, *torch.autograd.grad(out.sin().sum(), inputs)])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))


def _captured(layer: torch.nn.Module, *inputs: Tensor) -> tuple:
    """What a layer gives the operator, as leaves: torch's own products around it do depend on threads."""
    seen: list[tuple] = []
    original = operator._attention

    def keep(*arguments: object) -> object:
        seen.append(arguments)
        return original(*arguments)

    operator._attention = keep
    try:
        layer(*inputs)
    finally:
        operator._attention = original
    return tuple(t.detach().requires_grad_(t.is_floating_point()) if isinstance(t, Tensor) else t for t in seen[0])


@pytest.mark.each_isa
@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_a_sharp_softmax_has_finite_gradients(kind):
    """Logits of thousands: what e^x cannot hold. float32 against float64."""
    found = []
    for dtype in (torch.float32, torch.float64):
        x, heads, scores, features, dropout, groups = problem(kind, dtype)
        scale = 3000.0
        sharp = replace(scores, **({"att": scores.att * scale} if kind == "gatv2" else {
            "target": scores.target * scale, "source": scores.source * scale}))  # fmt: skip
        out, lse = attention(x, heads, sharp, features, dropout, groups)
        found.append([out, lse, torch.autograd.grad(out.sum(), x)[0]])
    assert float(found[1][1].detach().abs().max()) > 1000
    for one, other in zip(*found, strict=True):
        assert one.isfinite().all()
        assert torch.allclose(one.double(), other, rtol=1e-3, atol=1e-3)


@pytest.mark.each_isa
def test_a_model_that_has_diverged_looks_like_one():
    x, heads, scores, features, dropout, groups = problem("gatv2", torch.float32)
    x.data[groups.edge_index[0, 0]] = torch.nan
    out, _ = attention(x, heads, scores, features, dropout, groups)
    assert out[groups.edge_index[1, 0]].isnan().all()


class Largest(TorchDispatchMode):
    """The largest tensor that any operator gives."""

    values = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for each in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(each, Tensor):
                self.values = max(self.values, each.numel())
        return made


@pytest.mark.parametrize("kind", [GATConv, GATv2Conv])
def test_no_tensor_of_edges_by_heads_by_channels(kind):
    num_edges, heads, channels = 3000, 4, 16
    sizes = {}
    for attention_form in ("fused", "reference"):
        layer = kind(8, channels, heads, edge_dim=11, attention=attention_form)
        x, edge_index, attr = torch.randn(50, 8), torch.randint(50, (2, num_edges)), torch.randn(num_edges, 11)
        with Largest() as largest:
            layer(x, edge_index, attr).sum().backward()
        sizes[attention_form] = largest.values
    assert sizes["reference"] >= (num_edges - 100) * heads * channels, "the measure sees one where it is made"
    assert sizes["fused"] <= (num_edges + 50) * 11
