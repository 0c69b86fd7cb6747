"""The native operators as torch's own machinery sees them: schemas, shapes without data, gradients, tracing."""

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from graphmill.graph.batch import Block, SparseRows
from graphmill.nn import native
from graphmill.nn.draws import row_keys
from graphmill.nn.graphsage import MeanLayer
from graphmill.nn.operators import RELU, Activation, activate, linear, segment_mean, self_and_mean, sparse_linear


def normal(*shape: int, seed: int = 0, grad: bool = True) -> Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x.requires_grad_(grad)


INDPTR = torch.tensor([0, 2, 2, 5, 6])  # four rows, one of them empty, over six sources
INDICES = torch.tensor([5, 1, 0, 3, 5, 2], dtype=torch.int32)
KEYS = row_keys(7, torch.arange(6))
VALUES = normal(6, seed=9, grad=False)

CALLS = {
    "linear": (native.linear, (normal(6, 5), normal(3, 5), normal(3), None, False, 0.0)),
    "linear-relu": (native.linear, (normal(6, 5), normal(3, 5), normal(3), None, True, 0.0)),
    "linear-dropout": (native.linear, (normal(6, 5), normal(3, 5), normal(3), KEYS, True, 0.4)),
    "linear-fixed-input": (native.linear, (normal(6, 5, grad=False), normal(3, 5), normal(3), None, True, 0.0)),
    "linear-fixed-weights": (native.linear, (normal(6, 5), normal(3, 5, grad=False), None, None, True, 0.0)),
    "linear-bfloat16": (native.linear, (normal(6, 5, grad=False).bfloat16(), normal(3, 5), normal(3), KEYS, True, 0.4)),
    "relu-dropout": (native.relu_dropout, (normal(6, 5), KEYS, 0.4)),
    "segment-mean": (native.segment_mean, (normal(6, 5), INDPTR, INDICES)),
    "self-and-mean": (native.self_and_mean, (normal(6, 5), INDPTR, INDICES)),
    "self-and-sum": (native.self_and_sum, (normal(6, 5), normal(1), INDPTR, INDICES)),
    "norm-relu": (native.norm_relu, (normal(6, 5), normal(5), normal(5), 1e-5)),
    "sparse-linear": (native.sparse_linear, (INDPTR, INDICES, VALUES, normal(6, 5))),
}


@pytest.mark.parametrize("name", CALLS)
def test_torch_finds_nothing_wrong_with_an_operator(name):
    operator, arguments = CALLS[name]
    torch.library.opcheck(operator.registered, arguments)


def results(operator, arguments):
    """What it gives, and the gradient of each input that has one."""
    leaves = [each.detach().clone() if isinstance(each, Tensor) else each for each in arguments]
    wanted = [
        leaf.requires_grad_()
        for leaf, each in zip(leaves, arguments, strict=True)
        if isinstance(each, Tensor) and each.requires_grad
    ]
    given = operator(*leaves)
    out = given[0] if isinstance(given, tuple) else given
    return [out, *torch.autograd.grad((out * torch.linspace(-1, 2, out.numel()).view_as(out)).sum(), wanted)]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_gives_what_torchs_own_gives(name):
    operator, arguments = CALLS[name]
    found, torchs = results(operator, arguments), results(operator.registered, arguments)
    assert len(found) > 1
    assert all(map(torch.equal, found, torchs))
    with torch.no_grad():
        given = operator(*arguments)
    assert torch.equal(given[0] if isinstance(given, tuple) else given, torchs[0])


class Seen(TorchDispatchMode):
    """Names of the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_who_looks_at_calls_sees_operators():
    """Modes of torch, its profiler and its tracer; a tracer that saw none would take the result for a constant."""
    operator, (x, *rest) = CALLS["segment-mean"]
    with Seen() as seen:
        operator(x, *rest)
    assert seen.names[0] == "graphmill.segment_mean.default"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        operator(x, *rest)
    assert "graphmill::segment_mean" in {event.name for event in profile.events()}
    with FakeTensorMode() as mode:
        fake = operator(mode.from_tensor(x), *map(mode.from_tensor, rest))
    assert isinstance(fake, FakeTensor)
    traced = torch.jit.trace(lambda y: operator(y, *rest), x.detach(), check_trace=False)
    assert torch.equal(traced(x.detach() * 2), operator(x.detach() * 2, *rest))


class Model(nn.Module):
    """Every operator in one model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.sparse = MeanLayer(5, 4, training_dtype=torch.float32), nn.Parameter(normal(6, 5, grad=False))
        self.layer.reset_parameters(torch.Generator().manual_seed(3))
        self.last = nn.Linear(8, 2)

    def forward(self, x: Tensor, sparse: SparseRows, indptr: Tensor, indices: Tensor, keys: Tensor) -> Tensor:
        rows = len(indptr) - 1
        h = activate(x, Activation(keys, 0.3)) + linear(x, x.t() @ x, x.sum(0), Activation(keys, 0.4))
        h = h[:rows] + segment_mean(h, indptr, indices) + sparse_linear(sparse, self.sparse)
        h = self.layer.on_rows(torch.cat([h, x[rows:]]), Block(indptr, indices), RELU)
        return linear(torch.cat([h, h], dim=1), self.last.weight, self.last.bias) + self_and_mean(
            h, torch.zeros(5, dtype=torch.int64), indices[:0]
        ).sum(1, keepdim=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_model_of_them_is_traced_whole_and_gives_the_same_bits(dynamic):
    torch.manual_seed(0)
    model = Model()
    sparse = SparseRows(INDPTR, INDICES, VALUES, 6)
    arguments = (normal(6, 5, seed=1), sparse, INDPTR, INDICES, KEYS)

    def run(forward) -> list[Tensor]:
        model.zero_grad()
        arguments[0].grad = None
        out = forward(*arguments)
        out.square().sum().backward()
        return [out.detach(), arguments[0].grad.clone(), *(p.grad.clone() for p in model.parameters())]

    plain = run(model)
    torch.compiler.reset()
    traced = run(torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=dynamic))
    for one, other in zip(plain, traced, strict=True):
        assert torch.equal(one, other)
