"""The layers' operators with their gradients: the native path against plain torch in float64."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import UNIT, Bounded, assert_within
from torch import Tensor

from graphmill.graph.batch import SparseRows
from graphmill.nn.draws import drop_values, row_keys
from graphmill.nn.operators import (
    RELU,
    Activation,
    activate,
    linear,
    relu_dropped,
    segment_mean,
    self_and_sum,
    sparse_linear,
    sum_of_rows,
)

few = settings(deadline=None, max_examples=30)
sizes = st.integers(1, 40)
seeds = st.integers(0, 10**6)
activations = st.sampled_from(["none", "relu", "dropout"])


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weights_of(out: Tensor) -> Tensor:
    """The gradient of a loss that weighs every value differently."""
    return torch.linspace(-1, 2, out.numel()).view_as(out)


def compare(operator: Callable[..., Tensor], exact: Callable[..., list[Bounded]], *inputs: Tensor) -> None:
    """The result and the gradient of each input, of the native path (float32) and of torch's (float64 inputs, of which
    `linear` rounds the product to float32).

    `exact(gradient of the result, *inputs)` writes them out.
    """
    for dtype in (torch.float32, torch.float64):
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in inputs]
        out = operator(*leaves)
        weights = weights_of(out)
        found = [out, *torch.autograd.grad(out, leaves, weights.to(dtype))]
        for mine, bounded in zip(found, exact(weights, *inputs), strict=True):
            assert_within(mine, bounded)


def activation_of(kind: str, num_rows: int, seed: int) -> Activation | None:
    return {"none": None, "relu": RELU, "dropout": Activation(row_keys(seed, torch.arange(num_rows)), 0.4)}[kind]


def scale_of(kind: str, m: int, n: int, seed: int) -> Tensor:
    """What the activation multiplies with where its input is above 0."""
    if kind != "dropout":
        return torch.ones(m, n, dtype=torch.float64)
    return drop_values(
        torch.ones(m, n, dtype=torch.float64), row_keys(seed, torch.arange(m)).unsqueeze(1), torch.arange(n), 0.4
    )


def activated(z: Bounded, kind: str, scale: Tensor, grad: Tensor) -> tuple[Bounded, Bounded]:
    """The activation of z, and the gradient of z, in roundings of 1 - p and of the division."""
    if kind == "none":
        return z, Bounded.of(grad)
    return (z.relu() * scale).rounded(2), (z.is_positive() * scale * grad).rounded(2)


@few
@given(m=st.integers(1, 60), k=sizes, n=sizes, seed=seeds, kind=activations)
def test_linear(m, k, n, seed, kind):
    activation, scale = activation_of(kind, m, seed), scale_of(kind, m, n, seed)

    def exact(grad: Tensor, x: Tensor, w: Tensor, b: Tensor) -> list[Bounded]:
        out, of_z = activated(Bounded.of(x) @ Bounded.of(w).t() + b, kind, scale, grad)
        return [out, of_z @ Bounded.of(w), of_z.t() @ Bounded.of(x), of_z.sum(0)]

    inputs = normal(m, k, seed=seed), normal(n, k, seed=seed + 1), normal(n, seed=seed + 2)
    compare(lambda x, w, b: linear(x, w, b, activation), exact, *inputs)


@few
@given(m=st.integers(1, 60), n=sizes, seed=seeds, kind=st.sampled_from(["relu", "dropout"]))
def test_activate(m, n, seed, kind):
    activation, scale = activation_of(kind, m, seed), scale_of(kind, m, n, seed)
    compare(
        lambda x: activate(x, activation),
        lambda grad, x: list(activated(Bounded.of(x), kind, scale, grad)),
        normal(m, n, seed=seed),
    )


def random_rows(num_rows: int, num_columns: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 6, (num_rows,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return indptr, torch.randint(0, num_columns, (int(indptr[-1]),), generator=generator, dtype=torch.int32)


def matrix_of(indptr: Tensor, indices: Tensor, values: Tensor, num_columns: int) -> Bounded:
    """Rows in compressed form, written out; what is there n times is added n times."""
    lengths = indptr.diff()
    rows = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    cells = rows, indices[indptr[0] : indptr[-1]].long()
    own = values[indptr[0] : indptr[-1]].double()
    shape = len(lengths), num_columns
    written = torch.zeros(shape, dtype=torch.float64).index_put_(cells, own, accumulate=True)
    added = torch.zeros(shape, dtype=torch.float64).index_put_(cells, own.abs(), accumulate=True)
    return Bounded(written, added * lengths.clamp(min=1)[:, None])


def mean_matrix(indptr: Tensor, indices: Tensor, num_columns: int) -> Bounded:
    weights = torch.zeros(len(indices), dtype=torch.float64)
    weights[indptr[0] : indptr[-1]] = torch.repeat_interleave(1 / indptr.diff().double(), indptr.diff())
    return matrix_of(indptr, indices, weights, num_columns)


def check_mean(indptr: Tensor, indices: Tensor, x: Tensor) -> None:
    mean = mean_matrix(indptr, indices, len(x))
    compare(lambda y: segment_mean(y, indptr, indices), lambda grad, y: [mean @ y, mean.t() @ grad], x)


@few
@given(num_rows=st.integers(0, 60), num_sources=sizes, columns=sizes, seed=seeds)
def test_segment_mean(num_rows, num_sources, columns, seed):
    check_mean(*random_rows(num_rows, num_sources, seed), normal(num_sources, columns, seed=seed))


@few
@given(num_rows=st.integers(0, 40), more=st.integers(0, 20), columns=sizes, seed=seeds, has_eps=st.booleans())
def test_self_and_sum(num_rows, more, columns, seed, has_eps):
    num_nodes = num_rows + more + 1
    indptr, indices = random_rows(num_rows, num_nodes, seed)
    sums = matrix_of(indptr, indices, torch.ones(len(indices)), num_nodes)
    own = torch.eye(num_nodes, dtype=torch.float64)[:num_rows]

    def exact(grad: Tensor, h: Tensor, *eps: Tensor) -> list[Bounded]:
        scale = Bounded.of(eps[0]) + 1 if eps else Bounded.of(1.0)
        scaled = Bounded.of(grad) * scale
        out = Bounded.of(own @ h.double()) * scale + sums @ h
        of_h = scaled.moved(lambda x: own.t() @ x) + sums.t() @ grad
        return [out, of_h, *[(Bounded.of(own @ h.double()) * grad).moved(torch.flatten).sum(0)[None] for _ in eps]]

    inputs = [normal(num_nodes, columns, seed=seed), *([normal(1, seed=seed + 1)] if has_eps else [])]
    compare(lambda h, eps=None: self_and_sum(h, eps, indptr, indices), exact, *inputs)


@few
@given(lengths=st.lists(st.integers(0, 9), max_size=20), columns=sizes, seed=seeds)
def test_sum_of_rows(lengths, columns, seed):
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    rows = int(offsets[-1])
    matrix = matrix_of(offsets, torch.arange(rows, dtype=torch.int32), torch.ones(rows), rows)
    x = normal(rows, columns, seed=seed)
    compare(lambda y: sum_of_rows(y, offsets), lambda grad, y: [matrix @ y, matrix.t() @ grad], x)


def check_product(indptr: Tensor, indices: Tensor, values: Tensor, w: Tensor) -> None:
    rows = matrix_of(indptr, indices, values, len(w))
    compare(
        lambda v: sparse_linear(SparseRows(indptr, indices, values.to(v.dtype), len(w)), v),
        lambda grad, v: [rows @ v, rows.t() @ grad],
        w,
    )


@few
@given(num_rows=st.integers(0, 60), num_features=sizes, columns=sizes, seed=seeds)
def test_sparse_linear(num_rows, num_features, columns, seed):
    indptr, indices = random_rows(num_rows, num_features, seed)
    check_product(indptr, indices, normal(len(indices), seed=seed + 1), normal(num_features, columns, seed=seed))


def test_a_segment_may_begin_anywhere():
    """Blocks of later layers share their indices with earlier ones: indptr need not start at 0."""
    x, indices = normal(20, 5, seed=0), torch.arange(20, dtype=torch.int32)
    indptr = torch.tensor([3, 3, 7, 20])
    expected = [[0] * 20, [0] * 3 + [1 / 4] * 4 + [0] * 13, [0] * 7 + [1 / 13] * 13]
    assert mean_matrix(indptr, indices, 20).value.tolist() == expected, "the test's own matrix"
    check_mean(indptr, indices, x)


def test_sparse_rows_may_be_a_part_of_a_matrix():
    """A layer reads its own rows off the front of the batch's: the entries behind them are not its own."""
    indptr, indices = torch.tensor([2, 4, 5]), torch.tensor([0, 1, 2, 0, 1, 2, 2], dtype=torch.int32)
    values = torch.arange(7.0)

    w = normal(3, 4, seed=0)
    assert matrix_of(indptr, indices, values, 3).value.tolist() == [[3, 0, 2], [0, 4, 0]], "the test's own matrix"
    check_product(indptr, indices, values, w)


def test_gradients_of_rows_that_are_not_contiguous():
    x = normal(12, 9, seed=1).t()
    ones = torch.ones(x.shape, dtype=torch.float64)
    compare(lambda y: activate(y, RELU), lambda grad, y: list(activated(Bounded.of(y), "relu", ones, grad)), x)
    check_mean(*random_rows(4, 9, 2), x)


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


@pytest.mark.parametrize("kind", ["none", "relu", "dropout"])
def test_bfloat16_inputs_meet_float32_weights(kind):
    """Factors and products are rounded to bfloat16, in gradients too; the bias and its gradient are not."""
    x, w, b = normal(30, 16, seed=0).bfloat16(), normal(8, 16, seed=1), normal(8, seed=2)
    leaves = [each.clone().requires_grad_() for each in (x, w, b)]
    out = linear(*leaves, activation_of(kind, 30, seed=3))
    assert out.dtype == torch.float32
    grad = weights_of(out)
    found = [out, *torch.autograd.grad(out, leaves, grad)]
    assert [each.dtype for each in found[1:]] == [leaf.dtype for leaf in leaves]

    in_units_of_float32 = UNIT[torch.bfloat16] / UNIT[torch.float32]
    rows, narrow = Bounded.of(x), Bounded.of(w.bfloat16())
    z = (rows @ narrow.t()).rounded(in_units_of_float32) + b
    of_out, of_z = activated(z, kind, scale_of(kind, 30, 8, seed=3), grad)
    factor = of_z.rounded(in_units_of_float32)
    exact = [of_out, factor @ narrow, (factor.t() @ rows).rounded(in_units_of_float32), of_z.sum(0)]
    for number, (mine, bounded) in enumerate(zip(found, exact, strict=True)):
        assert_within(mine, bounded, stored=torch.bfloat16 if number == 1 else None)


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


def test_dropout_from_the_generator_is_that_of_its_number():
    """The same for the same state, whatever the threads; another at the next call; the gradient is of what is kept."""
    x, p = normal(300, 70, seed=0).requires_grad_(), 0.3
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(5)
        found += [relu_dropped(x, p, True), relu_dropped(x, p, True)]
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])
    is_kept = found[0] != 0
    torch.testing.assert_close(found[0], torch.where(is_kept, x / (1 - p), 0.0), rtol=4 * UNIT[torch.float32], atol=0)
    assert not (is_kept & (x <= 0)).any()
    positive = int((x > 0).sum())
    assert abs(int(is_kept.sum()) / positive - (1 - p)) < 5 * (p * (1 - p) / positive) ** 0.5
    found[0].sum().backward()
    torch.testing.assert_close(x.grad, is_kept / (1 - p), rtol=4 * UNIT[torch.float32], atol=0)


def test_nothing_is_dropped_but_in_training():
    x = normal(20, 7, seed=0)
    for p, training in ((0.0, True), (0.5, False)):
        assert torch.equal(relu_dropped(x, p, training), torch.relu(x))
    whole = relu_dropped(x.double(), 0.5, True)
    assert ((whole == 0) | torch.isclose(whole, 2 * x.double())).all()
