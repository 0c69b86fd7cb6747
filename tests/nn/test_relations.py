"""Sums over typed edges with their gradients: the native path and torch's against the formula in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import Bounded, assert_within, cat
from torch import Tensor

from graphmill.nn.native import grouped_linear
from graphmill.nn.relations import RelationEdges, relation_sum

few = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 10**6)


def edges_of(num_rows: int, num_nodes: int, num_relations: int, seed: int, *, most: int = 6) -> RelationEdges:
    """Rows of 0 to `most` edges, the same source and relation more than once among them."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, most + 1, (num_rows,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    sources = torch.randint(0, num_nodes, (int(indptr[-1]),), generator=generator, dtype=torch.int32)
    relations = torch.randint(0, num_relations, (int(indptr[-1]),), generator=generator)
    return RelationEdges(indptr, sources, relations, num_relations)


def mean_matrices(edges: RelationEdges, num_nodes: int) -> list[Bounded]:
    """Of each relation the averaging over in-neighbours [num_rows, num_nodes], in roundings of the mean."""
    rows = torch.repeat_interleave(torch.arange(edges.num_rows), edges.indptr.diff())
    found = []
    for relation in range(edges.num_relations):
        here = edges.relations == relation
        counts = torch.zeros(edges.num_rows, num_nodes, dtype=torch.float64)
        ones = torch.ones(int(here.sum()), dtype=torch.float64)
        counts.index_put_((rows[here], edges.sources[here].long()), ones, accumulate=True)
        degrees = counts.sum(1, keepdim=True).clamp(min=1)
        found.append(Bounded(counts / degrees, degrees * counts))
    return found


def exact(edges: RelationEdges, grad: Tensor, h: Tensor, weight: Tensor, comp: Tensor | None) -> list[Bounded]:
    """The sum as equation 2 of the paper has it, and the gradients of h, of the weights and of the shares of bases."""
    means = mean_matrices(edges, len(h))
    num_out, num_in = weight.shape[1:]
    shares = Bounded.of(torch.eye(len(weight)) if comp is None else comp)
    flat = shares @ weight.flatten(1)
    of_relation = [flat[number].moved(lambda x: x.view(num_out, num_in)) for number in range(edges.num_relations)]
    averaged = [mean @ h for mean in means]
    out = cat(averaged, 1) @ cat(of_relation, 1).t()
    grad_h = cat([mean.t() for mean in means], 1) @ cat([Bounded.of(grad) @ matrix for matrix in of_relation], 0)
    grad_flat = cat([(Bounded.of(grad).t() @ rows).moved(lambda x: x.reshape(1, -1)) for rows in averaged], 0)
    grad_weight = (shares.t() @ grad_flat).moved(lambda x: x.view_as(weight))
    return [out, grad_h, grad_weight, *([] if comp is None else [grad_flat @ weight.double().flatten(1).t()])]


@few
@given(
    num_rows=st.integers(1, 30), more=st.integers(0, 30), channels=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    num_relations=st.integers(1, 7), num_bases=st.none() | st.integers(1, 4), seed=seeds,
)  # fmt: skip
def test_relation_sum(num_rows, more, channels, num_relations, num_bases, seed):
    edges = edges_of(num_rows, num_rows + more, num_relations, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    shapes = [(num_rows + more, channels[0]), (num_bases or num_relations, channels[1], channels[0])]
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    inputs += [] if num_bases is None else [torch.randn(num_relations, num_bases, generator=generator)]
    for dtype in (torch.float32, torch.float64):
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in inputs]
        out = relation_sum(leaves[0], edges, leaves[1], leaves[2] if num_bases else None, dtype)
        grad = torch.linspace(-1, 2, out.numel()).view_as(out)
        found = [out, *torch.autograd.grad(out, leaves, grad.to(out.dtype))]
        for mine, bounded in zip(found, exact(edges, grad, *inputs, *([] if num_bases else [None])), strict=True):
            assert_within(mine, bounded)


@few
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=6), n=st.integers(1, 20), k=st.integers(1, 40), seed=seeds
)
def test_grouped_linear(lengths, n, k, seed):
    """Each group's rows times its own matrix; a matrix of no rows has the gradient 0."""
    generator = torch.Generator().manual_seed(seed)
    indptr = torch.tensor([0, *lengths]).cumsum(0)
    x, weight = torch.randn(sum(lengths), k, generator=generator), torch.randn(len(lengths), n, k, generator=generator)
    bias = torch.randn(len(lengths), n, generator=generator)
    leaves = [each.clone().requires_grad_() for each in (x, weight, bias)]
    out = grouped_linear(*leaves, indptr)
    grad = torch.linspace(-1, 2, out.numel()).view_as(out)
    grad_x, grad_weight, grad_bias = torch.autograd.grad(out, leaves, grad)
    for number, matrix in enumerate(weight):
        rows = slice(*indptr[number : number + 2].tolist())
        assert_within(out[rows], Bounded.of(x[rows]) @ Bounded.of(matrix).t() + bias[number])
        assert_within(grad_bias[number], Bounded.of(grad[rows]).sum(0))
        assert_within(grad_x[rows], Bounded.of(grad[rows]) @ matrix)
        assert_within(grad_weight[number], Bounded.of(grad[rows]).t() @ x[rows])


@pytest.mark.parametrize("num_bases", [None, 3])
def test_threads_change_no_bit(num_bases):
    edges = edges_of(3000, 5000, 11, 0, most=30)
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(5000, 48, generator=generator), torch.randn(num_bases or 11, 40, 48, generator=generator)]
    inputs += [torch.randn(11, num_bases, generator=generator)] if num_bases else []
    found, before = [], torch.get_num_threads()
    for num_threads in (1, 3):
        torch.set_num_threads(num_threads)
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = relation_sum(leaves[0], edges, leaves[1], leaves[2] if num_bases else None, torch.float32)
        found.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    torch.set_num_threads(before)
    assert all(one.equal(other) for one, other in zip(*found, strict=True))


def test_no_edges_at_all():
    """A rank without seeds: no rows; and rows of which none has an edge."""
    for num_rows in (0, 4):
        edges = RelationEdges(
            torch.zeros(num_rows + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32),
            torch.zeros(0, dtype=torch.int64), 3,
        )  # fmt: skip
        h, weight = torch.ones(num_rows, 2, requires_grad=True), torch.ones(3, 5, 2, requires_grad=True)
        out = relation_sum(h, edges, weight, None, torch.float32)
        assert out.equal(torch.zeros(num_rows, 5))
        assert not any(gradient.any() for gradient in torch.autograd.grad(out.sum(), [h, weight]))
