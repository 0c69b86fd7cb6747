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

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
FACTOR = 2
"""For products of errors, and for other ways to the same result: a mean as sum * (1 / n) or as sum / n, say."""
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

    def __matmul__(self, other: Bounded | Tensor) -> Bounded:
        other = Bounded.of(other)
        a, b = self.value.abs(), other.value.abs()
        terms = _used(self).double() @ _used(other).double()  # what is zero and exact adds no rounding
        return Bounded(self.value @ other.value, a @ other.slack + self.slack @ b + (terms + 1) * (a @ b))

    def sum(self, dim: int) -> Bounded:
        terms = _used(self).sum(dim)
        return Bounded(self.value.sum(dim), self.slack.sum(dim) + terms * self.value.abs().sum(dim))

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


def tolerance(exact: Bounded, *, computed: torch.dtype = torch.float32, stored: torch.dtype | None = None) -> Tensor:
    """How far each value may be off that was computed in one format, and then stored in another."""
    bound = FACTOR * UNIT[computed] * exact.slack
    return bound if stored in (None, computed) else bound + UNIT[stored] * (exact.value.abs() + bound)


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
