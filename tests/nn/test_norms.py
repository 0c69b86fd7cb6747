"""relu(batch norm) in one pass against torch's in float64: results, gradients, running moments."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import FACTOR, UNIT
from torch import Tensor, nn

from graphmill.nn.operators import norm_relu

UNIT_32 = UNIT[torch.float32]
TERMS = 300 * UNIT_32  # sums of at most 256 rows are float32, and what is made of them is rounded a few times
ROWS = [2, 3, 255, 256, 257, 1000]
COLUMNS = [1, 15, 16, 17, 64, 70, 130]  # around one vector, and a strip of vectors, of each instruction set


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def norm_of(n: int, dtype: torch.dtype = torch.float32) -> nn.BatchNorm1d:
    norm = nn.BatchNorm1d(n, momentum=0.3)
    with torch.no_grad():
        norm.weight.copy_(normal(n, seed=10))
        norm.bias.copy_(normal(n, seed=11))
    return norm.to(dtype)


@dataclass
class Errors:
    """How far float32 may be off, to first order, in the columns of x, of which `norm` makes z before the rectifier."""

    x: Tensor  # float64 [m, n]
    norm: nn.BatchNorm1d  # float64
    grad: Tensor  # float64 [m, n]: of the result

    def __post_init__(self) -> None:
        x, weight, bias = self.x, self.norm.weight.detach(), self.norm.bias.detach()
        self.distance, variance = x - x.mean(0), x.var(0, correction=0)
        self.inverse = 1 / (variance + self.norm.eps).sqrt()
        self.of_mean = TERMS * x.abs().mean(0)
        self.of_distance = self.of_mean + UNIT_32 * x.abs()
        self.of_variance = TERMS * variance + 2 * (self.distance.abs() * self.of_distance).mean(0) + self.of_mean**2
        of_inverse = self.of_variance * self.inverse**2 / 2 + 2 * UNIT_32
        self.factor = weight * self.inverse
        terms = x.abs() * self.factor.abs() + (bias - x.mean(0) * self.factor).abs()
        self.of_z = 3 * UNIT_32 * terms + self.factor.abs() * (self.of_mean + self.distance.abs() * of_inverse)
        z = self.distance * self.factor + bias
        unsure = (z.abs() <= FACTOR * self.of_z) * self.grad.abs()  # rounding decides whether they pass
        passed = self.grad * (z > 0)
        m = len(x)
        product, total = (passed * self.distance).sum(0), passed.sum(0)
        of_total = TERMS * passed.abs().sum(0) + unsure.sum(0)
        of_product = (
            TERMS * (passed * self.distance).abs().sum(0)
            + (passed.abs() * self.of_distance).sum(0)
            + (unsure * self.distance.abs()).sum(0)
        )
        self.of_bias = of_total + UNIT_32 * total.abs()
        self.of_weight = self.inverse * (of_product + product.abs() * (of_inverse + 2 * UNIT_32))
        squared = self.inverse**2
        inner = passed.abs() + self.distance.abs() * squared * product.abs() / m + total.abs() / m
        of_inner = (
            unsure
            + self.distance.abs() * squared * of_product / m
            + self.of_distance * squared * product.abs() / m
            + of_total / m
        )
        self.of_x = self.factor.abs() * (of_inner + (3 * of_inverse + 6 * UNIT_32) * inner)


def results(norm: nn.BatchNorm1d, x: Tensor, grad: Tensor) -> list[Tensor]:
    leaves = [x.clone().requires_grad_(), norm.weight, norm.bias]
    out = norm_relu(norm, leaves[0])
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def check(m: int, n: int, seed: int, shift: float = 0.0, scale: float = 1.0) -> None:
    x, grad = normal(m, n, seed=seed) * scale + shift, normal(m, n, seed=seed + 1)
    mine, torchs = norm_of(n), norm_of(n, torch.float64)
    found, exact = results(mine, x, grad), results(torchs, x.double(), grad.double())
    errors = Errors(x.double(), torchs, grad.double())
    allowed = [errors.of_z, errors.of_x, errors.of_weight, errors.of_bias]
    for name, each, wanted, most in zip(("out", "x", "weight", "bias"), found, exact, allowed, strict=True):
        off = (each.double() - wanted).abs()
        assert (off <= FACTOR * most).all(), f"{name}: {float((off / most).max())} times its bound"
    of_running = 0.3 * errors.of_variance * m / (m - 1) + 4 * UNIT_32 * torchs.running_var
    assert ((mine.running_mean.double() - torchs.running_mean).abs() <= FACTOR * 0.3 * errors.of_mean + UNIT_32).all()
    assert ((mine.running_var.double() - torchs.running_var).abs() <= FACTOR * of_running).all()
    assert mine.num_batches_tracked == 1


@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize("n", COLUMNS)
def test_it_is_torchs_in_float64(m, n):
    check(m, n, seed=m + n)


@settings(deadline=None, max_examples=30)
@given(
    m=st.integers(2, 600),
    n=st.integers(1, 80),
    seed=st.integers(0, 10**6),
    shift=st.sampled_from([0.0, 3.0, -100.0]),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_columns_far_from_zero_and_of_any_scale(m, n, seed, shift, scale):
    check(m, n, seed, shift, scale)


def test_threads_change_no_bit():
    x, grad, before, found = normal(3000, 70, seed=0), normal(3000, 70, seed=1), torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            norm = norm_of(70)
            found.append([*results(norm, x, grad), norm.running_mean, norm.running_var])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))


def test_what_is_no_number_stays_none():
    """A model that has diverged must not look like one of zeros."""
    x = normal(300, 20, seed=0)
    x[7, 3] = torch.nan
    out, grad_x, *_ = results(norm_of(20), x, torch.ones(300, 20))
    assert out[:, 3].isnan().all()
    assert grad_x[:, 3].isnan().all()
    assert not out[:, :3].isnan().any()
    assert not out[:, 4:].isnan().any()


def test_what_torch_computes_stays_torchs():
    x, norm = normal(30, 8, seed=0), norm_of(8)
    norm_relu(norm, x)
    norm.eval()
    assert torch.equal(norm_relu(norm, x), torch.relu(norm(x)))
    assert norm.num_batches_tracked == 1
    layer_norm = nn.LayerNorm(8)
    assert torch.equal(norm_relu(layer_norm, x), torch.relu(layer_norm(x)))
    with pytest.raises(ValueError, match="more than 1 value"):
        norm_relu(norm_of(8), x[:1])


def test_rows_may_lie_in_any_order_of_memory():
    x, grad = normal(8, 30, seed=0).t(), normal(8, 30, seed=1).t()
    found, wanted = results(norm_of(8), x, grad), results(norm_of(8), x.contiguous(), grad.contiguous())
    assert all(map(torch.equal, found, wanted))
