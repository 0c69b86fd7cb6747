"""Gradients of native operators are constants to autograd: differentiating one is an error, never another number."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from attention_problems import Problem
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from graphmill import nn
from graphmill.base.errors import UserError
from graphmill.nn import native
from graphmill.nn.attention import GATConv, GATv2Conv, operator
from graphmill.nn.attention.edges import group_edges
from graphmill.nn.draws import row_keys
from graphmill.nn.edge_dots import _edge_dots

INDPTR, INDICES = torch.tensor([0, 2, 3, 5]), torch.tensor([0, 3, 2, 1, 0], dtype=torch.int32)
GROUPS = group_edges(torch.tensor([[0, 3, 2, 1, 0], [0, 0, 1, 2, 2]]), 4, 3, 0)
KEYS = row_keys(0, torch.arange(4))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def attend(kind: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    arguments = list(Problem(kind=kind, num_loops=2).arguments(torch.float32, every=torch.float32))
    places = [i for i, each in enumerate(arguments[: operator._NUM_GRADIENTS]) if each is not None]

    def call(*leaves: Tensor) -> Tensor:
        given = list(arguments)
        for place, leaf in zip(places, leaves, strict=True):
            given[place] = leaf
        return operator._attention(*given)[0]

    return call, [arguments[i] for i in places]


OPERATORS: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
    "linear": (lambda x, w, b: native.linear(x, w, b, None, False, 0.0), [normal(4, 3), normal(2, 3), normal(2)]),
    "linear, relu": (lambda x, w, b: native.linear(x, w, b, None, True, 0.0), [normal(4, 3), normal(2, 3), normal(2)]),
    "relu_dropout": (lambda x: native.relu_dropout(x, KEYS, 0.25), [normal(4, 3)]),
    "segment_mean": (lambda x: native.segment_mean(x, INDPTR, INDICES), [normal(4, 3)]),
    "self_and_mean": (lambda x: native.self_and_mean(x, INDPTR, INDICES), [normal(4, 3)]),
    "self_and_sum": (lambda x, eps: native.self_and_sum(x, eps, INDPTR, INDICES), [normal(4, 3), normal(1)]),
    "norm_relu": (lambda x, w, b: native.norm_relu(x, w, b, 1e-5)[0], [normal(4, 3), normal(3), normal(3)]),
    "sparse_linear": (lambda w: native.sparse_linear(INDPTR, INDICES, torch.ones(5), w), [normal(4, 3)]),
    "grouped_linear": (lambda x, w: native.grouped_linear(x, w, None, INDPTR), [normal(5, 3), normal(3, 2, 3)]),
    "_edge_dots": (lambda q, k: _edge_dots(q, k, *GROUPS.tensors, 2), [normal(3, 4), normal(4, 4)]),
    "_attention, gat": attend("gat"),
    "_attention, gatv2": attend("gatv2"),
}
every_operator = pytest.mark.parametrize("name", OPERATORS)


def gradients(name: str, leaves: list[Tensor], *, create_graph: bool) -> list[Tensor]:
    out = OPERATORS[name][0](*leaves)
    return list(torch.autograd.grad((out**2).sum(), leaves, create_graph=create_graph))


def leaves_of(name: str) -> list[Tensor]:
    return [given.clone().requires_grad_() for given in OPERATORS[name][1]]


def test_the_table_names_every_operator():
    sources = Path(nn.__file__).parent.rglob("*.py")
    found = {name for source in sources for name in re.findall(r"^(\w+)\.differentiate\(", source.read_text(), re.M)}
    assert {name.split(",")[0] for name in OPERATORS} == found


@every_operator
def test_first_derivatives_are_the_same_with_create_graph(name):
    plain = gradients(name, leaves_of(name), create_graph=False)
    for mine, expected in zip(gradients(name, leaves_of(name), create_graph=True), plain, strict=True):
        assert torch.equal(mine, expected)


@every_operator
def test_a_gradient_penalty_is_refused(name):
    leaves = leaves_of(name)
    penalty = sum((gradient.norm() - 1) ** 2 for gradient in gradients(name, leaves, create_graph=True))
    with pytest.raises(UserError, match="first derivatives") as refused:
        penalty.backward()
    assert "attention='reference'" in refused.value.fix
    assert all(leaf.grad is None for leaf in leaves)


@every_operator
def test_a_gradient_of_each_input_alone_is_refused(name):
    """Whichever input is a leaf, and by whichever the gradient is differentiated."""
    for number, given in enumerate(OPERATORS[name][1]):
        leaves = [each.clone() for each in OPERATORS[name][1]]
        leaves[number] = given.clone().requires_grad_()
        out = OPERATORS[name][0](*leaves)
        (first,) = torch.autograd.grad((out**2).sum(), leaves[number], create_graph=True)
        with pytest.raises(UserError, match="first derivatives"):
            torch.autograd.grad(first.sum(), leaves[number])


def test_of_a_sum_that_weighs_with_constants_the_gradient_of_weights_is_refused_too():
    """What reaches the operator does not require a gradient: all there is to see is what it saved."""
    x, weight = normal(4, 3).requires_grad_(), normal(2, 3).requires_grad_()
    out = native.linear(x, weight, None, None, False, 0.0)
    (of_x,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    with pytest.raises(UserError, match="first derivatives"):
        of_x.pow(2).sum().backward()


def test_what_does_not_go_through_an_operator_is_differentiated_twice():
    x = normal(4, 3).requires_grad_()
    out = native.segment_mean(x, INDPTR, INDICES).sum() + (x**3).sum()
    (first,) = torch.autograd.grad(out, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(second, 6 * x)


def test_in_a_checkpointed_region():
    x, weight = normal(4, 3).requires_grad_(), normal(2, 3).requires_grad_()
    out = checkpoint(lambda: native.linear(x, weight, None, None, True, 0.0), use_reentrant=False)
    (first,) = torch.autograd.grad((out**2).sum(), x, create_graph=True)
    plain = native.linear(x, weight, None, None, True, 0.0)
    assert torch.equal(first, torch.autograd.grad((plain**2).sum(), x)[0])
    with pytest.raises(UserError, match="first derivatives"):
        first.sum().backward()


@pytest.mark.parametrize("layer", [GATConv, GATv2Conv])
def test_the_advice_works(layer):
    """The layer that the error names has the second derivative, and it is that of the values."""
    torch.manual_seed(0)
    fused = layer(3, 2, heads=2).double()
    plain = layer(3, 2, heads=2, attention="reference").double()
    plain.load_state_dict(fused.state_dict())
    edge_index = torch.randint(5, (2, 12))
    x = normal(5, 3).double().requires_grad_()

    def penalty(of: torch.nn.Module) -> Tensor:
        (first,) = torch.autograd.grad((of(x, edge_index) ** 2).sum(), x, create_graph=True)
        return (first**2).sum()

    with pytest.raises(UserError, match="reference"):
        penalty(fused).backward()
    assert torch.autograd.gradcheck(lambda _: penalty(plain), [next(plain.parameters())])
