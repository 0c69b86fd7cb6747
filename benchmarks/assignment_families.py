"""The families of square assignment problems that the solver is measured on: nine of `prepare`, and three more."""

from collections.abc import Callable
from typing import Final, cast

import numpy as np

from graphmill.tasks.assignment.data.families import SQUARE, rng_of
from graphmill.tasks.assignment.page.data import Family

Matrix = np.ndarray
CODES: Final = {"moved": 101, "integers": 102, "products": 103}  # part of what makes an instance: never reuse one


def moved(n: int, rng: np.random.Generator) -> Matrix:
    """Distances of points in the unit square from their moved copies, shuffled: nearly solved, as tracking has it.

    A copy lies about a fifth as far away as the nearest other point.
    """
    points = rng.random((n, 2))
    copies = (points + 0.1 / np.sqrt(n) * rng.standard_normal((n, 2)))[rng.permutation(n)]
    squares = np.square(points[:, None, 0] - copies[None, :, 0])
    squares += np.square(points[:, None, 1] - copies[None, :, 1])
    return np.sqrt(squares, out=squares)


def integers(n: int, rng: np.random.Generator) -> Matrix:
    """Whole numbers from 1 to 100, as floats: many are equal."""
    return rng.integers(1, 101, (n, n)).astype(np.float64)


def products(n: int, rng: np.random.Generator) -> Matrix:
    """Give the products of the numbers of row and column, shuffled: every row prefers the same columns.

    Machol and Wien's instances (1976), hard for augmenting paths.
    """
    return np.multiply.outer(1.0 + rng.permutation(n), 1.0 + rng.permutation(n))


OWN: Final = {"moved": moved, "integers": integers, "products": products}
FAMILIES: Final[dict[str, Callable[[int, np.random.Generator], Matrix]]] = {
    **{str(name): make for name, make in SQUARE.items()},
    **OWN,
}


def instance(family: str, size: int, number: int) -> Matrix:
    """Another one for each number, the same wherever it is made."""
    if family in OWN:
        seeds = np.random.SeedSequence([0, CODES[family], size, number])
        return OWN[family](size, np.random.Generator(np.random.PCG64(seeds)))
    of_prepare = cast(Family, family)
    return SQUARE[of_prepare](size, rng_of(0, of_prepare, size, number))
