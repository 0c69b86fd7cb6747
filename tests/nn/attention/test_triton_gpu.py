"""The GPU kernels of attention on a GPU, beside the CPU's."""

import os

import pytest
import torch
from attention_problems import Problem, native_results, triton_results

from graphmill.nn.attention import GATConv, GATv2Conv, edges

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="Triton's interpreter is on"),
]

# Rounding of a result to its format, relative, and sums in float32 over logits of up to about 20, of the largest.
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
OF_SUMS = 1024 * 2.0**-24


def on_gpu(arguments: tuple) -> tuple:
    """All tensors but the key of dropout, which comes last."""
    return *(each.cuda() if isinstance(each, torch.Tensor) else each for each in arguments[:-1]), arguments[-1]


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
@pytest.mark.parametrize("dtype", list(ROUNDING))
@pytest.mark.parametrize("sizes", [(8, 16, 11), (3, 15, 5), (2, 300, 0), (20, 1, 64)])
def test_what_the_cpu_computes(kind, dtype, sizes):
    heads, channels, edge_dim = sizes
    problem = Problem(
        kind, 3000, 2000, 40_000, heads=heads, channels=channels, edge_dim=edge_dim, num_loops=2000, p=0.2
    )
    mine = triton_results(on_gpu(problem.arguments(dtype, every=dtype)))
    for name, exact in native_results(problem.arguments(torch.float64, every=dtype)).items():
        found = mine[name].cpu().double()
        bound = ROUNDING[mine[name].dtype] * exact.abs() + OF_SUMS * max(1.0, float(exact.abs().max())) + 2.0**-24
        assert ((found - exact).abs() <= bound).all(), name


@pytest.mark.parametrize("kind", [GATConv, GATv2Conv])
def test_layers_of_a_million_edges(kind):
    torch.manual_seed(0)
    num_nodes, num_edges = 50_000, 1_000_000
    layer, x = kind(16, 16, 8, edge_dim=11), torch.randn(num_nodes, 16)
    edge_index, attr = torch.randint(num_nodes, (2, num_edges)), torch.randn(num_edges, 11)
    grad = torch.randn(num_nodes, 128)
    found = []
    for device in ("cpu", "cuda"):
        layer.to(device).zero_grad()
        leaf = x.to(device).requires_grad_()
        out = layer(leaf, edge_index.to(device), attr.to(device))
        out.backward(grad.to(device))
        found.append([out, leaf.grad, *(each.grad.clone() for each in layer.parameters())])
    for mine, other in zip(found[1], found[0], strict=True):
        assert torch.allclose(mine.cpu(), other, rtol=0, atol=1e-3 * float(other.abs().max()))


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_the_same_bits_twice(kind):
    arguments = on_gpu(Problem(kind, 3000, 3000, 200_000, heads=8, num_loops=3000, p=0.2).arguments(
        torch.float32, every=torch.float32))  # fmt: skip
    first, second = triton_results(arguments), triton_results(arguments)
    assert all(torch.equal(each, second[name]) for name, each in first.items())


def test_grouping_is_the_native_grouping():
    edge_index = torch.randint(5000, (2, 300_000))
    for loops in (0, 5000):
        native = edges._group_edges(edge_index, 5000, 5000, loops, True)
        mine = torch.ops.graphmill.group_edges(edge_index.cuda(), 5000, 5000, loops, True)
        assert all(torch.equal(each.cpu(), other) for each, other in zip(mine, native, strict=True))


@pytest.mark.parametrize("kind", [GATConv, GATv2Conv])
def test_training_under_autocast_waits_for_nothing(kind):
    """Forward and backward with dropout never wait for the device."""
    layer = kind(16, 8, 4, edge_dim=3, dropout=0.2).cuda()
    x, edge_index, attr = torch.randn(900, 16).cuda(), torch.randint(900, (2, 9000)).cuda(), torch.randn(9000, 3).cuda()

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            layer(x, edge_index, attr).sum().backward()

    step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(each.grad.isfinite().all() for each in layer.parameters())
