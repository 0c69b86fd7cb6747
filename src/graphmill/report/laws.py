"""Amdahl's and Gustafson's laws, fitted to measured points; with what they leave unexplained."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Fit:
    """A law and how well it holds."""

    law: Literal["amdahl", "gustafson"]
    serial_share: float  # of the smallest cell's time; it may leave [0, 1]: then the law does not hold
    residual: float | None  # root mean square of (measured ÷ fitted − 1); None: as many parameters as points
    num_points: int

    def speedup(self, n: float) -> float:
        """Speed-up at n times the smallest size."""
        s = self.serial_share
        if self.law == "amdahl":
            return 1 / (s + (1 - s) / n)
        return n - s * (n - 1)


def fit_amdahl(n: Sequence[float], speedup: Sequence[float]) -> Fit | None:
    """1 ÷ speed-up = s + (1 − s) ÷ n, by least squares on 1 ÷ speed-up (time), weighted by the speed-up².

    `n` counts in sizes of the smallest cell. None: there is nothing but that one cell.

    >>> round(fit_amdahl([1, 2, 4], [1, 1.6, 2.2857142857]).serial_share, 6)
    0.25
    """
    pairs = [(x, y) for x, y in zip(n, speedup, strict=True) if x > 1]
    if not pairs:
        return None
    # 1/y − 1/x = s (1 − 1/x), each side divided by the measured time 1/y: the relative error is what is to be small
    sides = [(y * (1 / y - 1 / x), y * (1 - 1 / x)) for x, y in pairs]
    share = sum(left * right for left, right in sides) / sum(right * right for _, right in sides)
    fit = Fit("amdahl", share, None, len(pairs) + 1)
    return _with_residual(fit, pairs)


def fit_gustafson(n: Sequence[float], speedup: Sequence[float]) -> Fit | None:
    """Scaled speed-up = n − s (n − 1), by least squares on the relative error. None as above.

    >>> round(fit_gustafson([1, 2, 4], [1, 1.9, 3.7]).serial_share, 6)
    0.1
    """
    pairs = [(x, y) for x, y in zip(n, speedup, strict=True) if x > 1]
    if not pairs:
        return None
    sides = [((x - y) / y, (x - 1) / y) for x, y in pairs]
    share = sum(left * right for left, right in sides) / sum(right * right for _, right in sides)
    return _with_residual(Fit("gustafson", share, None, len(pairs) + 1), pairs)


def _with_residual(fit: Fit, pairs: Sequence[tuple[float, float]]) -> Fit:
    if len(pairs) < 2:
        return fit
    squares = [(y / fit.speedup(x) - 1) ** 2 for x, y in pairs]
    return Fit(fit.law, fit.serial_share, math.sqrt(sum(squares) / len(squares)), fit.num_points)
