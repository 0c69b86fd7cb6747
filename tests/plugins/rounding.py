"""How far a float32 result may be from the exact one: tolerances that follow from an error bound.

`Bounded` carries an exact value in float64 and beside it how many unit roundoffs a float32 computation of it may be off
(running error analysis: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 3.1 and 3.3). An
operation passes on the errors of its operands and adds its own: one rounding of the result, and for a sum of n products
n + 1 roundings of the sum of their absolute values, in whatever order they are added up. So a sum that cancels is
judged by its terms, not by what is left of it.

    exact = (Bounded.of(x) @ Bounded.of(w).t() + bias).relu()
    assert_within(found, exact)

The tolerance is `FACTOR` * unit roundoff * that count: it is missed by a wrong computation only, never by chance.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
FACTOR = 2
"""For products of errors, and for other ways to the same result: a mean as sum * (1 / n) or as sum / n, say."""
CHANCE = 6
"""Times sqrt(n) unit roundoffs that n roundings come to: see `drift`."""
FUNCTION_ROUNDINGS = 8
"""Of a sigmoid or hyperbolic tangent, whose values are at most 1: e^x to 2 units in the last place, three roundings."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """A float64 tensor and, of the same shape, how many unit roundoffs the computed one may be off."""

    value: Tensor
    slack: Tensor

    @classmethod
    def of(cls, x: Bounded | Tensor | float) -> Bounded:
        """What is given and not computed, float32 numbers for example, is exact."""
        if isinstance(x, Bounded):
            return x
        value = torch.as_tensor(x, dtype=torch.float64).detach()
        return cls(value, torch.zeros_like(value))

    def rounded(self, times: float = 1) -> Bounded:
        """After so many roundings of the result."""
        return Bounded(self.value, self.slack + times * self.value.abs())

    def __add__(self, other: Bounded | Tensor | float) -> Bounded:
        other = Bounded.of(other)
        return Bounded(self.value + other.value, self.slack + other.slack).rounded()

    __radd__ = __add__

    def __neg__(self) -> Bounded:
        return Bounded(-self.value, self.slack)

    def __sub__(self, other: Bounded | Tensor | float) -> Bounded:
        return self + -Bounded.of(other)

    def __rsub__(self, other: float) -> Bounded:
        return Bounded.of(other) - self

    def __mul__(self, other: Bounded | Tensor | float) -> Bounded:
        other = Bounded.of(other)
        slack = self.value.abs() * other.slack + self.slack * other.value.abs()
        return Bounded(self.value * other.value, slack).rounded()

    __rmul__ = __mul__

    def __truediv__(self, other: Tensor | float) -> Bounded:
        """By what is exact."""
        other = torch.as_tensor(other, dtype=torch.float64)
        return Bounded(self.value / other, self.slack / other.abs()).rounded()

    def __matmul__(self, other: Bounded | Tensor) -> Bounded:
        other = Bounded.of(other)
        a, b = self.value.abs(), other.value.abs()
        terms = _used(self).double() @ _used(other).double()  # what is zero and exact adds no rounding
        return Bounded(self.value @ other.value, a @ other.slack + self.slack @ b + (terms + 1) * (a @ b))

    def sum(self, dim: int) -> Bounded:
        terms = _used(self).sum(dim)
        return Bounded(self.value.sum(dim), self.slack.sum(dim) + terms * self.value.abs().sum(dim))

    def abs(self) -> Bounded:
        return Bounded(self.value.abs(), self.slack)

    def relu(self) -> Bounded:
        return Bounded(self.value.relu(), self.slack)

    def sigmoid(self) -> Bounded:
        return Bounded(self.value.sigmoid(), self.slack / 4 + FUNCTION_ROUNDINGS)

    def tanh(self) -> Bounded:
        return Bounded(self.value.tanh(), self.slack + FUNCTION_ROUNDINGS)

    def is_positive(self) -> Bounded:
        """1 where the value is above 0, else 0; where rounding may decide that, either is right."""
        unsure = self.value.abs() <= FACTOR * UNIT[torch.float32] * self.slack
        return Bounded((self.value > 0).double(), torch.where(unsure & (self.slack > 0), 1 / UNIT[torch.float32], 0.0))

    def t(self) -> Bounded:
        return self.moved(lambda x: x.mT)

    def moved(self, how: Callable[[Tensor], Tensor]) -> Bounded:
        """The same numbers in another shape or order."""
        return Bounded(how(self.value), how(self.slack))

    def __getitem__(self, index: object) -> Bounded:
        return self.moved(lambda x: x[index])  # type: ignore[index]

    def split(self, sizes: int | list[int], dim: int) -> list[Bounded]:
        parts = zip(self.value.split(sizes, dim), self.slack.split(sizes, dim), strict=True)
        return [Bounded(value, slack) for value, slack in parts]


def _used(x: Bounded) -> Tensor:
    return (x.value != 0) | (x.slack != 0)


def cat(parts: list[Bounded], dim: int) -> Bounded:
    return Bounded(torch.cat([each.value for each in parts], dim), torch.cat([each.slack for each in parts], dim))


def cross_entropy(
    logits: Bounded, labels: Tensor, weight: Tensor | None = None, label_smoothing: float = 0.0
) -> Bounded:
    """Of each row [n]. A logarithm of a softmax is a logit less the logarithm of a sum of exponentials."""
    weight = None if weight is None else weight.double()
    options = {"weight": weight, "label_smoothing": label_smoothing, "reduction": "none"}
    value = nn.functional.cross_entropy(logits.value, labels, **options)
    terms = logits.value.abs().amax(dim=1) + logits.value.logsumexp(dim=1).abs()
    own = (logits.value.shape[1] + FUNCTION_ROUNDINGS) * terms
    most = 1.0 if weight is None else float(weight.max())
    return Bounded(value, most * (2 * logits.slack.amax(dim=1) + own))


def magnitude(model: nn.Module, *inputs: Tensor) -> Tensor:
    """What the absolute terms of a model's outputs add up to, where it is made of products, means, sums and ReLUs.

    That is what the same model gives with the absolute values of its parameters for those of its inputs.
    """
    absolute = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in absolute.parameters():
            parameter.abs_()
        return absolute(*(x.abs() if x.is_floating_point() else x for x in inputs)).double()


def drift(value: float, *, terms: int, updates: int, computed: torch.dtype = torch.float32) -> float:
    """How far a mean of non-negative numbers may be off between two trainings that add up in another order.

    After training nothing bounds a difference by the worst case usefully: n roundings of random sign add up to about
    sqrt(n) unit roundoffs of the sum of absolute terms, and to more than `CHANCE` times that once in 30 million
    (Higham and Mary 2019, "A new approach to probabilistic rounding error analysis", theorem 2.4). Here n is the
    `terms` of the longest sum of an update times the `updates`.
    """
    return CHANCE * UNIT[computed] * math.sqrt(terms * updates) * abs(value)


def tolerance(exact: Bounded, *, computed: torch.dtype = torch.float32, stored: torch.dtype | None = None) -> Tensor:
    """How far each value may be off that was computed in one format, and then stored in another."""
    bound = FACTOR * UNIT[computed] * exact.slack
    return bound if stored in (None, computed) else bound + UNIT[stored] * (exact.value.abs() + bound)


def assert_near(found: float, exact: Bounded, *, computed: torch.dtype = torch.float32) -> None:
    """`assert_within` for one number."""
    assert_within(torch.tensor(found, dtype=torch.float64), exact, computed=computed)


def assert_within(
    found: Tensor, exact: Bounded, *, computed: torch.dtype = torch.float32, stored: torch.dtype | None = None
) -> None:
    """`found` is as near to `exact` as its roundings allow; else says by how much, and where, it is not."""
    assert found.shape == exact.value.shape
    off = (found.detach().double() - exact.value).abs()
    allowed = tolerance(exact, computed=computed, stored=stored)
    wrong = ~(off <= allowed)  # also what is no number
    if wrong.any():
        worst = int((off / allowed.clamp(min=torch.finfo(torch.float64).tiny)).nan_to_num(nan=float("inf")).argmax())
        raise AssertionError(
            f"{int(wrong.sum())} of {off.numel()} values are off by more than their bound; at flat index {worst}: "
            f"{found.flatten()[worst].item()!r}, exact {exact.value.flatten()[worst].item()!r}, "
            f"off by {off.flatten()[worst].item():.3g}, bound {allowed.flatten()[worst].item():.3g}"
        )
