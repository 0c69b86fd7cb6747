"""The native operators as torch's own machinery sees them: schemas, shapes without data, gradients, tracing."""

import pytest
import torch
from torch import Tensor, nn

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
    "relu-dropout": (native.relu_dropout, (normal(6, 5), KEYS, 0.4)),
    "segment-mean": (native.segment_mean, (normal(6, 5), INDPTR, INDICES)),
    "self-and-mean": (native.self_and_mean, (normal(6, 5), INDPTR, INDICES)),
    "sparse-linear": (native.sparse_linear, (INDPTR, INDICES, VALUES, normal(6, 5))),
}


@pytest.mark.parametrize("name", CALLS)
def test_torch_finds_nothing_wrong_with_an_operator(name):
    operator, arguments = CALLS[name]
    torch.library.opcheck(operator, arguments)


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
