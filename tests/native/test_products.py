"""Segment means, sparse and dense products, activation: against float64, over odd shapes, for any number of threads."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import Bounded, assert_within
from torch import Tensor

from graphmill import _native
from graphmill.nn.draws import drop_values, kept, row_keys

MOST_IN_EDGES = 6
few = settings(deadline=None, max_examples=50)
sizes = st.integers(1, 70)
row_counts = st.integers(0, 90)
seeds = st.integers(0, 10**6)
BIG = [
    (2000, 130, 41),
    (777, 33, 257),
    (300, 602, 256),
]  # rows, inner, outer: several chunks, tiles cut off at every edge


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def random_segments(num_rows: int, num_sources: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = (
        torch.randint(0, MOST_IN_EDGES + 1, (num_rows,), generator=generator)
        if num_sources
        else torch.zeros(num_rows, dtype=torch.int64)
    )
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return indptr, torch.randint(0, max(1, num_sources), (int(indptr[-1]),), generator=generator, dtype=torch.int32)


def rows_of(indptr: Tensor) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())


def mean_matrix(indptr: Tensor, indices: Tensor, num_sources: int) -> Bounded:
    """The mean as a dense matrix [num_rows, num_sources]; a neighbour that is there twice is added twice."""
    matrix = torch.zeros(len(indptr) - 1, num_sources, dtype=torch.float64)
    weights = 1 / indptr.diff().clamp(min=1).double()
    matrix.index_put_((rows_of(indptr), indices.long()), weights[rows_of(indptr)], accumulate=True)
    return Bounded.of(matrix).rounded(MOST_IN_EDGES)


def for_any_threads(run, out: Tensor) -> Tensor:
    """The result of `run(out, num_threads)`, which must be the same bits for 1, 2, 3 and many threads."""
    results = []
    for num_threads in (1, 2, 3, 20):
        out.fill_(float("nan"))
        run(out, num_threads)
        results.append(out.clone())
    assert all(torch.equal(results[0], result) for result in results[1:])
    return results[0]


@pytest.mark.each_isa
@few
@given(num_rows=row_counts, num_sources=st.integers(0, 60), columns=sizes, seed=seeds)
def test_segment_mean_and_its_backward(num_rows, num_sources, columns, seed):
    indptr, indices = random_segments(num_rows, num_sources, seed)
    x, grad = normal(num_sources, columns, seed=seed), normal(num_rows, columns, seed=seed + 1)
    matrix = mean_matrix(indptr, indices, num_sources)
    out = for_any_threads(lambda o, t: _native.segment_mean(x, indptr, indices, o, t), torch.empty(num_rows, columns))
    assert_within(out, matrix @ Bounded.of(x))
    back = for_any_threads(
        lambda o, t: _native.segment_mean_backward(grad, indptr, indices, o, t), torch.empty(num_sources, columns)
    )
    assert_within(back, matrix.t() @ Bounded.of(grad))


@pytest.mark.each_isa
@few
@given(num_rows=row_counts, num_features=sizes, columns=sizes, seed=seeds)
def test_sparse_product_and_its_backward(num_rows, num_features, columns, seed):
    indptr, indices = random_segments(num_rows, num_features, seed)
    values = normal(len(indices), seed=seed + 2)
    x = torch.zeros(num_rows, num_features, dtype=torch.float64)
    x.index_put_((rows_of(indptr), indices.long()), values.double(), accumulate=True)
    added = torch.zeros_like(x).index_put_((rows_of(indptr), indices.long()), values.double().abs(), accumulate=True)
    rows = Bounded(x, MOST_IN_EDGES * added)  # a feature that is there twice is added twice
    w, grad = normal(num_features, columns, seed=seed), normal(num_rows, columns, seed=seed + 1)
    out = for_any_threads(
        lambda o, t: _native.sparse_multiply(indptr, indices, values, w, o, t), torch.empty(num_rows, columns)
    )
    assert_within(out, rows @ Bounded.of(w))
    back = for_any_threads(
        lambda o, t: _native.sparse_multiply_backward(indptr, indices, values, grad, o, t),
        torch.empty(num_features, columns),
    )
    assert_within(back, rows.t() @ Bounded.of(grad))


@pytest.mark.each_isa
@few
@given(m=row_counts, n=sizes, k=sizes, seed=seeds, relu=st.booleans(), has_bias=st.booleans())
def test_linear_and_the_gradient_of_its_weight(m, n, k, seed, relu, has_bias):
    check_linear(m, n, k, seed, relu=relu, has_bias=has_bias)


@pytest.mark.parametrize(("m", "k", "n"), BIG)
def test_linear_on_large_matrices(m, k, n):
    check_linear(m, n, k, 5, relu=True, has_bias=True)


def check_linear(m: int, n: int, k: int, seed: int, *, relu: bool, has_bias: bool) -> None:
    a, w, bias = normal(m, k, seed=seed), normal(n, k, seed=seed + 1), normal(n, seed=seed + 2) if has_bias else None
    out = for_any_threads(lambda o, t: _native.linear(a, w, bias, o, relu, None, 0.0, t), torch.empty(m, n))
    expected = Bounded.of(a) @ Bounded.of(w).t() + (0 if bias is None else bias)
    assert_within(out, expected.relu() if relu else expected)
    g = normal(m, n, seed=seed + 3)
    activated = normal(m, n, seed=seed + 4).relu() if relu else None
    behind = Bounded.of(g if activated is None else torch.where(activated > 0, g * 2, 0))
    p = 0.0 if activated is None else 0.5
    db = torch.empty(n)
    dw = for_any_threads(lambda o, t: _native.linear_backward(g, activated, p, a, o, db, t), torch.empty(n, k))
    assert_within(dw, behind.t() @ Bounded.of(a))
    assert_within(db, behind.sum(0))


@pytest.mark.each_isa
@few
@given(
    m=st.integers(0, 200),
    n=st.integers(1, 200),
    k=st.integers(1, 300),
    seed=seeds,
    kept_share=st.sampled_from([0.0, 0.03, 0.25, 0.5, 1.0]),
)
def test_gradient_of_a_weight_behind_relu_and_dropout(m, n, k, seed, kept_share):
    """From no value kept to all of them."""
    a, g = normal(m, k, seed=seed), normal(m, n, seed=seed + 1)
    activated = (torch.rand(m, n, generator=torch.Generator().manual_seed(seed)) < kept_share).float()
    db = torch.empty(n)
    dw = for_any_threads(lambda o, t: _native.linear_backward(g, activated, 0.75, a, o, db, t), torch.empty(n, k))
    behind = Bounded.of(g * activated * 4)
    assert_within(dw, behind.t() @ Bounded.of(a))
    assert_within(db, behind.sum(0))


@pytest.mark.each_isa
@few
@given(m=st.integers(1, 90), n=sizes, seed=seeds, p=st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.75, 0.9]))
def test_dropout_draws_the_bits_of_nn_draws(m, n, seed, p):
    """The mask, and the values: both multiply by the same float32."""
    x, keys, columns = normal(m, n, seed=seed), row_keys(seed, torch.arange(m)), torch.arange(n)
    expected = drop_values(x.relu(), keys.unsqueeze(1), columns, p)
    unsigned = keys.view(torch.uint64)
    out = for_any_threads(lambda o, t: _native.relu_dropout(x, unsigned, p, o, t), torch.empty(m, n))
    assert torch.equal(out > 0, kept(keys.unsqueeze(1), columns, p) & (x > 0))
    assert torch.equal(out, expected)
    identity = torch.eye(n)
    fused = for_any_threads(lambda o, t: _native.linear(x, identity, None, o, True, unsigned, p, t), torch.empty(m, n))
    assert torch.equal(fused, out), "in one pass with the product or after it: the same"


@pytest.mark.each_isa
@few
@given(m=row_counts, n=sizes, seed=seeds, has_bias=st.booleans(), relu=st.booleans(), p=st.sampled_from([0.0, 0.3]))
def test_what_is_done_to_a_product_in_bfloat16(m, n, seed, has_bias, relu, p):
    """To the bit what torch does to it in float32, and to the gradient before it is rounded."""
    product, bias = normal(m, n, seed=seed).bfloat16(), normal(n, seed=seed + 1) if has_bias else None
    if m:
        product[seed % m, 0] = float("nan")
    expected = product.float() if bias is None else product.float() + bias
    expected = expected.relu() if relu else expected
    keys = row_keys(seed, torch.arange(m)) if p else None
    if keys is not None:
        expected = drop_values(expected, keys.unsqueeze(1), torch.arange(n), p)
    unsigned, product = None if keys is None else keys.view(torch.uint64), product.view(torch.uint16)
    out = torch.empty(m, n)
    for num_threads in (1, 3):
        _native.finish(product, bias, out, relu, unsigned, p, num_threads)
        torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)

    grad, activated = normal(m, n, seed=seed + 2), out if relu else None
    behind = torch.where(out <= 0, torch.zeros(()), grad * torch.tensor(1 / (1 - p))) if relu else grad
    narrow = torch.empty(m, n, dtype=torch.uint16)
    db = for_any_threads(lambda o, t: _native.narrow_gradient(grad, activated, p, narrow, o, t), torch.empty(n))
    assert torch.equal(narrow.view(torch.bfloat16), behind.bfloat16())
    assert_within(db, Bounded.of(behind).sum(0))


@pytest.mark.each_isa
@few
@given(m=row_counts, n=sizes, seed=seeds)
def test_backward_of_the_activation(m, n, seed):
    out, grad = normal(m, n, seed=seed).relu(), normal(m, n, seed=seed + 1)
    back = for_any_threads(lambda o, t: _native.relu_dropout_backward(grad, out, 0.5, o, t), torch.empty(m, n))
    assert torch.equal(back, torch.where(out > 0, grad * 2, torch.zeros(())))


def test_the_share_that_is_dropped():
    keys = row_keys(1, torch.arange(2000))
    for p in (0.1, 0.5, 0.9):
        out = torch.empty(2000, 100)
        _native.relu_dropout(torch.ones(2000, 100), keys.view(torch.uint64), p, out, 1)
        dropped = float((out == 0).double().mean())
        assert abs(dropped - p) < 4 * (p * (1 - p) / 200_000) ** 0.5
        assert abs(float(out.double().mean()) - 1) < 0.02


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5])
def test_a_probability_outside_0_to_1_is_refused(p):
    with pytest.raises(ValueError, match="dropout probability"):
        _native.relu_dropout(torch.ones(2, 2), torch.zeros(2, dtype=torch.uint64), p, torch.empty(2, 2), 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: _native.linear(torch.ones(2, 3), torch.ones(4, 5), None, torch.ones(2, 4), False, None, 0.0, 1),
        lambda: _native.linear(torch.ones(2, 3), torch.ones(4, 3), None, torch.ones(2, 5), False, None, 0.0, 1),
        lambda: _native.linear(
            torch.ones(2, 3), torch.ones(4, 3), torch.ones(3), torch.ones(2, 4), False, None, 0.0, 1
        ),
        lambda: _native.linear_backward(
            torch.ones(2, 3), None, 0.0, torch.ones(3, 4), torch.ones(3, 4), torch.ones(3), 1
        ),
        lambda: _native.segment_mean(
            torch.ones(2, 3), torch.tensor([0, 1]), torch.zeros(1, dtype=torch.int32), torch.ones(2, 3), 1
        ),
        lambda: _native.relu_dropout(torch.ones(2, 2), torch.zeros(3, dtype=torch.uint64), 0.5, torch.ones(2, 2), 1),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call):
    with pytest.raises(ValueError, match=r"must be|differ"):
        call()


@pytest.mark.each_isa
@pytest.mark.parametrize("kind", ["relu", "dropout"])
@pytest.mark.parametrize("columns", [1, 7, 64, 130])
def test_nan_stays_nan_behind_relu(columns, kind):
    """As in torch: a model of NaN weights must not look like one that says 0."""
    x, weight = normal(20, 9, seed=1), normal(columns, 9, seed=2)
    x[3:12], weight[-1] = float("nan"), float("inf")
    bias, out = torch.zeros(columns), torch.empty(20, columns)
    keys = row_keys(5, torch.arange(20)).view(torch.uint64) if kind == "dropout" else None
    p = 0.4 if kind == "dropout" else 0.0
    _native.linear(x, weight, bias, out, True, keys, p, 1)
    expected = (x @ weight.t()).relu()
    chosen = (
        kept(keys.view(torch.int64).unsqueeze(1), torch.arange(columns), p)
        if keys is not None
        else expected == expected
    )
    if kind == "relu":
        assert torch.equal(out.isnan(), expected.isnan())
    else:
        assert torch.equal(out.isnan(), expected.isnan() & chosen)
    assert out[3:12].isnan().any()
    grad_out, grad_in = normal(20, columns, seed=3), torch.empty(20, columns)
    _native.relu_dropout_backward(grad_out, out, p, grad_in, 1)
    scale = torch.tensor(1 / (1 - p), dtype=torch.float32)
    assert torch.equal(grad_in, torch.where(out <= 0, torch.zeros(()), grad_out * scale))
    if keys is not None:
        _native.relu_dropout(expected, keys, p, grad_in, 1)
        assert torch.equal(grad_in.isnan(), expected.isnan() & chosen)


@pytest.mark.each_isa
def test_minus_zero_becomes_zero_behind_relu():
    out = torch.empty(1, 40)
    _native.relu_dropout(torch.full((1, 40), -0.0), torch.ones(1, dtype=torch.uint64), 0.0, out, 1)
    assert not out.signbit().any()
    assert not out.any()
