"""The layers' operators with their gradients: the native path against plain torch in float64."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphmill.graph.batch import SparseRows
from graphmill.nn.draws import drop_values, row_keys
from graphmill.nn.operators import RELU, Activation, activate, linear, segment_mean, sparse_linear

few = settings(deadline=None, max_examples=30)
sizes = st.integers(1, 40)
seeds = st.integers(0, 10**6)
activations = st.sampled_from(["none", "relu", "dropout"])


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def compare(native: Callable[..., Tensor], reference: Callable[..., Tensor], *inputs: Tensor) -> None:
    """The result and the gradient with respect to each input, of a loss that weighs every value differently."""
    singles = [x.clone().requires_grad_() for x in inputs]
    doubles = [x.double().requires_grad_() for x in inputs]
    out, expected = native(*singles), reference(*doubles)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    weights = torch.linspace(-1, 2, out.numel()).view_as(out)
    (out * weights).sum().backward()
    (expected * weights.double()).sum().backward()
    for single, double in zip(singles, doubles, strict=True):
        torch.testing.assert_close(single.grad.double(), double.grad, rtol=1e-4, atol=1e-4)


def activation_of(kind: str, num_rows: int, seed: int) -> Activation | None:
    return {"none": None, "relu": RELU, "dropout": Activation(row_keys(seed, torch.arange(num_rows)), 0.4)}[kind]


def activated(x: Tensor, activation: Activation | None) -> Tensor:
    """The meaning of an activation, written in torch."""
    if activation is None:
        return x
    if activation.keys is None:
        return x.relu()
    return drop_values(x.relu(), activation.keys.unsqueeze(1), torch.arange(x.shape[1]), activation.p)


@few
@given(m=st.integers(1, 60), k=sizes, n=sizes, seed=seeds, kind=activations)
def test_linear(m, k, n, seed, kind):
    activation = activation_of(kind, m, seed)
    compare(
        lambda x, w, b: linear(x, w, b, activation),
        lambda x, w, b: activated(x @ w.t() + b, activation),
        normal(m, k, seed=seed),
        normal(n, k, seed=seed + 1),
        normal(n, seed=seed + 2),
    )


@few
@given(m=st.integers(1, 60), n=sizes, seed=seeds, kind=st.sampled_from(["relu", "dropout"]))
def test_activate(m, n, seed, kind):
    activation = activation_of(kind, m, seed)
    compare(lambda x: activate(x, activation), lambda x: activated(x, activation), normal(m, n, seed=seed))


def random_rows(num_rows: int, num_columns: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 6, (num_rows,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return indptr, torch.randint(0, num_columns, (int(indptr[-1]),), generator=generator, dtype=torch.int32)


@few
@given(num_rows=st.integers(0, 60), num_sources=sizes, columns=sizes, seed=seeds)
def test_segment_mean(num_rows, num_sources, columns, seed):
    indptr, indices = random_rows(num_rows, num_sources, seed)
    mean = lambda x: segment_mean(x, indptr, indices)  # noqa: E731  # in float64 the torch path answers
    compare(mean, mean, normal(num_sources, columns, seed=seed))


@few
@given(num_rows=st.integers(0, 60), num_features=sizes, columns=sizes, seed=seeds)
def test_sparse_linear(num_rows, num_features, columns, seed):
    indptr, indices = random_rows(num_rows, num_features, seed)
    values = normal(len(indices), seed=seed + 1)

    def product(w: Tensor) -> Tensor:  # in float64 the torch path answers
        return sparse_linear(SparseRows(indptr, indices, values.to(w.dtype), num_features), w)

    compare(product, product, normal(num_features, columns, seed=seed))


def test_a_segment_may_begin_anywhere():
    """Blocks of later layers share their indices with earlier ones: indptr need not start at 0."""
    x, indices = normal(20, 5, seed=0), torch.arange(20, dtype=torch.int32)
    indptr = torch.tensor([3, 3, 7, 20])
    expected = torch.stack([torch.zeros(5), x[3:7].mean(0), x[7:20].mean(0)])
    torch.testing.assert_close(segment_mean(x, indptr, indices), expected)
    compare(lambda y: segment_mean(y, indptr, indices), lambda y: segment_mean(y, indptr, indices), x)


def test_sparse_rows_may_be_a_part_of_a_matrix():
    """A layer reads its own rows off the front of the batch's: the entries behind them are not its own."""
    indptr, indices = torch.tensor([2, 4, 5]), torch.tensor([0, 1, 2, 0, 1, 2, 2], dtype=torch.int32)
    values = torch.arange(7.0)

    def product(w: Tensor) -> Tensor:
        return sparse_linear(SparseRows(indptr, indices, values.to(w.dtype), 3), w)

    w = normal(3, 4, seed=0)
    torch.testing.assert_close(product(w), torch.stack([2 * w[2] + 3 * w[0], 4 * w[1]]))
    compare(product, product, w)


def test_gradients_of_rows_that_are_not_contiguous():
    x = normal(12, 9, seed=1).t()
    compare(lambda y: activate(y, RELU), lambda y: y.relu(), x)
    indptr, indices = random_rows(4, 9, 2)
    compare(lambda y: segment_mean(y, indptr, indices), lambda y: segment_mean(y, indptr, indices), x)


def test_no_rows_at_all():
    w, b = normal(4, 3, seed=0).requires_grad_(), normal(4, seed=1).requires_grad_()
    for activation in (None, RELU, Activation(torch.empty(0, dtype=torch.int64), 0.5)):
        out = linear(torch.empty(0, 3), w, b, activation)
        assert out.shape == (0, 4)
        out.sum().backward()
    assert w.grad.abs().sum() == b.grad.abs().sum() == 0
    empty = torch.zeros(1, dtype=torch.int64)
    x = torch.empty(0, 3, requires_grad=True)
    mean = segment_mean(x, empty, torch.empty(0, dtype=torch.int32))
    mean.sum().backward()
    assert mean.shape == (0, 3)
    assert x.grad.shape == (0, 3)
    rows = SparseRows(empty, torch.empty(0, dtype=torch.int32), torch.empty(0), 4)
    product = sparse_linear(rows, w)
    product.sum().backward()
    assert product.shape == (0, 3)


@pytest.mark.parametrize("activation", [None, RELU, Activation(torch.arange(30), 0.5)])
def test_bfloat16_inputs_meet_float32_weights(activation):
    """As float32 does with inputs and weights of that precision, but for the product's own rounding to bfloat16."""
    x, w, b = normal(30, 16, seed=0).bfloat16(), normal(8, 16, seed=1), normal(8, seed=2)
    results = {}
    for name, inputs in (("bfloat16", x), ("float32", x.float())):
        leaves = [inputs.clone().requires_grad_(), w.bfloat16().float().requires_grad_(), b.clone().requires_grad_()]
        out = linear(*leaves, activation)
        assert out.dtype == torch.float32
        out.sum().backward()
        assert [leaf.grad.dtype for leaf in leaves] == [leaf.dtype for leaf in leaves]
        results[name] = [out.detach(), *(leaf.grad.float() for leaf in leaves)]
    for narrow, wide in zip(results["bfloat16"], results["float32"], strict=True):
        torch.testing.assert_close(narrow, wide, rtol=0.01, atol=0.05)


def test_threads_change_no_bit():
    x, w, b = normal(3000, 70, seed=0), normal(50, 70, seed=1), normal(50, seed=2)
    results = []
    before = torch.get_num_threads()
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        weight = w.clone().requires_grad_()
        out = linear(x, weight, b, Activation(row_keys(0, torch.arange(3000)), 0.5))
        out.square().sum().backward()
        results.append((out.detach(), weight.grad))
    torch.set_num_threads(before)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize(("keys", "p"), [(None, 0.5), (torch.zeros(3, dtype=torch.int64), 0.0)])
def test_half_an_activation_is_a_mistake(keys, p):
    with pytest.raises(AssertionError, match="or neither"):
        Activation(keys, p)
