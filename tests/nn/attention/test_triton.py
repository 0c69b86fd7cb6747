"""The GPU kernels of attention in Triton's interpreter, beside the CPU's and beside plain PyTorch."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from attention_problems import GRADIENTS, ROUNDING, Problem, assert_close, native_results, of_sums, triton_results
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_cases import num_examples, with_slow
from torch import Tensor

from graphmill.nn.attention import EdgeGroups, edges, operator, reference
from graphmill.nn.attention.operator import Dropout, EdgeScores, Scores
from graphmill.nn.draws import kept, row_keys

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="there is a GPU: set TRITON_INTERPRET=1 to run the interpreter"
)

CASES = {
    "one head": Problem(heads=1),
    "three heads of 15 channels": Problem(heads=3, channels=15),
    "eight heads": Problem(heads=8, channels=2),
    "48 channels": Problem(heads=2, channels=48),
    "several groups of heads": Problem(heads=3, channels=70),
    "many heads of one channel": Problem(heads=20, channels=1),
    "no features": Problem(edge_dim=0),
    "eleven features": Problem(edge_dim=11),
    "nineteen features": Problem(edge_dim=19, num_edges=6),
    "loops": Problem(num_loops=4),
    "loops of some nodes": Problem(num_loops=3, edge_dim=2),
    "dropout": Problem(p=0.4),
    "more than half dropped, with loops": Problem(p=0.7, num_loops=4, seed=3),
    "bipartite": Problem(num_sources=12, num_targets=2),
    "more targets than sources": Problem(num_sources=2, num_targets=7, num_loops=2),
    "no edge": Problem(num_edges=0, num_loops=2),
    "nothing at all": Problem(num_sources=0, num_targets=0, num_edges=0),
    "no target": Problem(num_targets=0, num_edges=0),
    "a hub": Problem(
        num_edges=40, num_loops=4, edge_index=torch.stack([torch.arange(40) % 5, (torch.arange(40) % 10 == 9).long()])
    ),
    "isolated targets": Problem(num_edges=4, edge_index=torch.tensor([[0, 3, 3, 1], [2, 1, 1, 2]])),
}


KINDS = ("gat", "gatv2")
BY_TURNS = [(case, KINDS[number % 2]) for number, case in enumerate(CASES)]


@pytest.mark.parametrize(("case", "kind"), with_slow(product(CASES, KINDS), fast=BY_TURNS))
def test_what_the_cpu_computes(case, kind):
    problem = replace(CASES[case], kind=kind)
    mine = triton_results(problem.arguments(torch.float32, every=torch.float32))
    assert_close(mine, native_results(problem.arguments(torch.float64, every=torch.float32)))


SHORT = (torch.float16, torch.bfloat16)
IN_PAIRS = [(kind, dtype, 0.3 * ((kind == "gat") == (dtype == SHORT[0]))) for kind, dtype in product(KINDS, SHORT)]


@pytest.mark.parametrize(("kind", "dtype", "p"), with_slow(product(KINDS, SHORT, (0.0, 0.3)), fast=IN_PAIRS))
def test_shorter_formats_are_rounded_once(kind, dtype, p):
    problem = Problem(kind, num_loops=4, p=p, heads=3, channels=5)
    mine = triton_results(problem.arguments(dtype, every=dtype))
    assert mine["out"].dtype == mine["alpha"].dtype == mine["gradient of edge_weight"].dtype == dtype
    assert mine["lse"].dtype == torch.float32
    assert_close(mine, native_results(problem.arguments(torch.float64, every=dtype)))


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_formats_may_be_mixed(kind):
    """As autocast leaves them: products are bfloat16, parameters and features float32."""
    formats = {"every": torch.bfloat16, "att": torch.float32, "edge_attr": torch.float32, "loop_attr": torch.float32,
               "edge_weight": torch.float32}  # fmt: skip
    problem = Problem(kind, num_loops=4)
    mine = triton_results(problem.arguments(torch.float32, **formats))
    assert mine["gradient of x"].dtype == torch.bfloat16
    assert mine["gradient of edge_attr"].dtype == mine["gradient of edge_weight"].dtype == torch.float32
    assert_close(mine, native_results(problem.arguments(torch.float64, **formats)))


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_gradients_of_features_are_left_out_where_they_are_not_asked_for(kind):
    problem = Problem(kind, num_loops=4)
    mine = triton_results(problem.arguments(torch.float32, every=torch.float32), of_features=False)
    assert "gradient of edge_attr" not in mine
    exact = native_results(problem.arguments(torch.float64, every=torch.float32), of_features=False)
    assert_close(mine, exact)


@pytest.mark.parametrize("key", [0, 1, -5, 2**63 - 1, -(2**63), 2**31, 2**32 - 1])
def test_the_same_draws_as_on_the_cpu(key):
    problem = Problem("gat", num_edges=80, heads=5, num_loops=4, edge_dim=0, p=0.5)
    arguments = list(problem.arguments(torch.float32, every=torch.float32))
    arguments[-1] = torch.tensor([key])
    alpha = triton_results(tuple(arguments))["alpha"]
    assert torch.equal(alpha == 0, native_results(tuple(arguments))["alpha"] == 0)
    ids = torch.arange(len(alpha))
    drawn = kept(row_keys(key % 2**64, ids).unsqueeze(1), torch.arange(5), 0.5)
    is_attended = native_results((*arguments[:16], 0.0, None))["alpha"] != 0
    assert torch.equal(alpha != 0, drawn & is_attended)


@pytest.mark.parametrize(("kind", "p"), with_slow(product(KINDS, (0.0, 0.4)), fast=[("gat", 0.0), ("gatv2", 0.4)]))
def test_what_plain_pytorch_computes(kind, p):
    """Autograd through a tensor of edges × heads × channels."""
    problem = Problem(kind, num_loops=4, p=p, channels=5)
    mine = triton_results(problem.arguments(torch.float32, every=torch.float32))
    arguments = [
        each.requires_grad_() if isinstance(each, Tensor) and each.is_floating_point() else each
        for each in problem.arguments(torch.float64, every=torch.float32)
    ]
    x, source, target, attr, loop_attr, weight, att = leaves = arguments[:7]
    ends = _ends(arguments)
    groups = EdgeGroups(ends, tuple(arguments[7:13]), problem.num_sources, problem.num_targets, problem.num_loops)
    dropout = Dropout(arguments[-1], p) if p else None
    out, alpha = reference.attention(
        x, problem.heads, Scores(target, source, att, 0.2), EdgeScores(attr, loop_attr, weight), dropout, groups
    )
    slope = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).view_as(out).to(torch.bfloat16).double()
    named = {f"gradient of {name}": leaf for name, leaf in zip(GRADIENTS, leaves, strict=True) if leaf is not None}
    found = torch.autograd.grad((out * slope).sum(), list(named.values()))
    exact = {"out": out.detach(), "lse": mine["lse"].double(), "alpha": alpha.detach()}
    assert_close(mine, exact | dict(zip(named, found, strict=True)))


def _ends(arguments: list) -> Tensor:
    """The edges in the caller's order, from their groups; edges that gave way to a loop lead from 0 to 0."""
    indptr, sources, edge_ids = arguments[7:10]
    count = int(indptr[-1])
    ends = torch.zeros(2, len(sources), dtype=torch.int64)
    ends[0, edge_ids[:count].long()] = sources[:count].long()
    ends[1, edge_ids[:count].long()] = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    return ends


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    num_sources, num_targets = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    pairs = st.tuples(st.integers(0, num_sources - 1), st.integers(0, num_targets - 1))
    listed = draw(st.lists(pairs, max_size=20))
    return Problem(
        draw(st.sampled_from(["gat", "gatv2"])),
        num_sources,
        num_targets,
        len(listed),
        heads=draw(st.integers(1, 5)),
        channels=draw(st.sampled_from([1, 3, 8])),
        edge_dim=draw(st.sampled_from([0, 1, 5])),
        num_loops=draw(st.integers(0, min(num_sources, num_targets))),
        p=draw(st.sampled_from([0.0, 0.5])),
        seed=draw(st.integers(0, 1000)),
        edge_index=torch.tensor(listed, dtype=torch.int64).view(-1, 2).t().contiguous(),
    )


@settings(max_examples=num_examples(10, explored=25))
@given(problem=problems())
def test_any_small_graph(problem):
    mine = triton_results(problem.arguments(torch.float32, every=torch.float32))
    assert_close(mine, native_results(problem.arguments(torch.float64, every=torch.float32)))


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_the_same_bits_twice(kind):
    arguments = Problem(kind, num_loops=4, p=0.2).arguments(torch.float32, every=torch.bfloat16)
    first, second = triton_results(arguments), triton_results(arguments)
    assert all(torch.equal(each, second[name]) for name, each in first.items())


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_a_sharp_softmax_in_bfloat16(kind):
    """Logits of up to ±80 and beyond: gradients are differences of near-equal numbers."""
    scale = 120.0 if kind == "gat" else 6.0
    problem = Problem(kind, num_edges=24, heads=2, channels=16, num_loops=4, scale=scale, seed=1)
    arguments = problem.arguments(torch.bfloat16, every=torch.bfloat16)
    exact = native_results(problem.arguments(torch.float64, every=torch.bfloat16))
    assert float(exact["lse"].max()) > 80
    assert_close(triton_results(arguments), exact)

    out, lse, _ = operator._triton_forward(*arguments)
    grad = torch.linspace(-1, 2, out.numel()).view_as(out).to(torch.bfloat16)
    rounded = operator._triton_backward(*arguments, grad, out.float(), lse, True)
    far = (rounded[2].double() - exact["gradient of target"]).abs()
    bound = ROUNDING[torch.bfloat16] * exact["gradient of target"].abs() + of_sums(exact)
    assert (far > bound).any(), "this problem does not need what is saved in float32"


def test_a_model_that_has_diverged_looks_like_one():
    arguments = Problem().arguments(torch.float32, every=torch.float32)
    arguments[0][arguments[8][0]] = torch.nan
    out, _, _ = operator._triton_forward(*arguments)
    target = int((arguments[7] == 0).sum()) - 1
    assert out[target].isnan().all()


def test_what_would_be_read_beside_a_tensor_is_refused():
    arguments = list(Problem().arguments(torch.float32, every=torch.float32))
    for at, wrong in ((2, arguments[2][:-1]), (5, arguments[5][:, :-1]), (6, arguments[6][:-1]), (16, 1.0)):
        with pytest.raises(ValueError, match=r"must be|lies in"):
            operator._triton_forward(*arguments[:at], wrong, *arguments[at + 1 :])
    with pytest.raises(ValueError, match="float32, float16 and bfloat16"):
        operator._triton_forward(*Problem().arguments(torch.float64))


@settings(max_examples=60)
@given(
    sizes=st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 40)),
    with_loops=st.booleans(), by_source=st.booleans(), seed=st.integers(0, 1000),
)  # fmt: skip
def test_grouping_by_sorts_is_the_native_grouping(sizes, with_loops, by_source, seed):
    num_sources, num_targets, num_edges = sizes
    num_edges = num_edges if num_sources and num_targets else 0
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(max(1, most), (num_edges,), generator=generator) for most in (num_sources, num_targets)]
    asked = (torch.stack(ends), num_sources, num_targets, min(num_sources, num_targets) if with_loops else 0, by_source)
    for mine, native in zip(edges._sorted_groups(*asked), edges._group_edges(*asked), strict=True):
        assert mine.dtype == native.dtype
        assert torch.equal(mine, native)


def test_grouping_by_sorts_refuses_edges_beyond_the_nodes():
    with pytest.raises(RuntimeError, match="beyond 5 sources or 6 targets"):
        edges._sorted_groups(torch.tensor([[5], [0]]), 5, 6, 0, True)


def test_features_of_loops_by_one_sum_over_segments():
    groups = edges.group_edges(torch.randint(5, (2, 40), generator=torch.Generator().manual_seed(0)), 5, 5, 5)
    edge_attr = torch.randn(40, 3, requires_grad=True)
    mine, native = edges.summed_mean(edge_attr, groups), edges.loop_features(edge_attr, "mean", groups)
    assert torch.allclose(mine, native, rtol=0, atol=40 * 2.0**-24 * 4)
    weights = torch.linspace(-1, 1, mine.numel()).view_as(mine)
    found = [torch.autograd.grad((each * weights).sum(), edge_attr)[0] for each in (mine, native)]
    assert torch.allclose(*found, rtol=0, atol=2.0**-23)


@pytest.mark.slow
def test_the_layers_run_on_triton(source_environ):
    """The operators as registered, with what runs on GPUs in the place of the CPU's."""
    script = Path(__file__).with_name("layers_on_triton.py")
    done = subprocess.run([sys.executable, script], env=source_environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["GATConv", "GATv2Conv", "autocast", "opcheck"]
