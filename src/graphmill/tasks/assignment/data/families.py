"""Distributions of costs. Each instance is a function of (seed, family, size, number), whatever else is made.

No product of matrices by BLAS: how that rounds may depend on the number of threads.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.assignment.page.data import Family

Matrix = NDArray[np.float64]
Generator = np.random.Generator

CODES: Final[Mapping[Family, int]] = {
    **{"uniform": 1, "sparse": 2, "metric": 3, "clustered": 4, "noisy_linear": 5, "low_rank": 6, "tie": 7},
    **{"geometric": 8, "tracking": 9, "transportation": 10},
}
"""Part of what makes an instance repeatable: never reuse a number."""
FORBIDDEN: Final = 1e6
"""The cost of a pair that is not to be taken, in the family sparse: finite, as in the data that it comes from."""
_KEPT: Final = 0.3
_BLOCKS: Final = 4
_RANK: Final = 12
_LEVELS: Final = 5
_CLOUDS: Final = 8


def rng_of(seed: int, family: Family, size: int, *numbers: int) -> Generator:
    """The random numbers of an instance, or of a sequence."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, CODES[family], size, *numbers])))


def uniform(n: int, rng: Generator) -> Matrix:
    """Costs in [0, 1)."""
    return rng.random((n, n))


def sparse(n: int, rng: Generator) -> Matrix:
    """30 % of the pairs and one assignment cost up to 1, all others `FORBIDDEN`."""
    costs = rng.random((n, n))
    is_kept = rng.random((n, n)) < _KEPT
    is_kept[np.arange(n), rng.permutation(n)] = True
    costs[~is_kept] = FORBIDDEN
    return costs


def metric(n: int, rng: Generator) -> Matrix:
    """Distances between two sets of points in the unit square."""
    return _distances(rng.random((n, 2)), rng.random((n, 2)))


def geometric(n: int, rng: Generator) -> Matrix:
    """Squared distances between two clouds in the plane, each of eight normal distributions of its own."""
    distances = _distances(_cloud(n, rng), _cloud(n, rng))
    return np.square(distances, out=distances)


def clustered(n: int, rng: Generator) -> Matrix:
    """Costs in [0, 1), 0.4 less where row and column are of one of four blocks; noise of s.d. 0.1, 0 at least."""
    costs = rng.random((n, n))
    rows, columns = (rng.permutation(np.arange(n) % _BLOCKS) for _ in range(2))
    costs -= 0.4 * (rows[:, None] == columns)
    costs += 0.1 * rng.standard_normal((n, n))
    return np.maximum(costs, 0, out=costs)


def noisy_linear(n: int, rng: Generator) -> Matrix:
    """A product of two vectors and noise of s.d. 0.1, shifted so that the least cost is 0."""
    costs = rng.random((n, 1)) * rng.random((1, n))
    costs += 0.1 * rng.standard_normal((n, n))
    costs -= costs.min()
    return costs


def low_rank(n: int, rng: Generator) -> Matrix:
    """Twelve products of normal vectors, of variance 1 together, and noise of s.d. 0.1, 0 at least."""
    rows, columns = rng.standard_normal((_RANK, n)), rng.standard_normal((_RANK, n))
    costs = 0.1 * rng.standard_normal((n, n))
    for row, column in zip(rows, columns / np.sqrt(_RANK), strict=True):
        costs += row[:, None] * column
    return np.maximum(costs, 0, out=costs)


def tie(n: int, rng: Generator) -> Matrix:
    """Five levels between 0 and 0.8, and up to 1e-6 more."""
    return rng.integers(0, _LEVELS, (n, n)) / _LEVELS + 1e-6 * rng.random((n, n))


def transportation(n: int, rng: Generator) -> Matrix:
    """Draw about √n sources and about √n sinks, a row for each unit of supply and a column for each unit of demand.

    A unit costs the distance, times the tariff of its route. Lines of the same site are equal: a transportation problem
    as an assignment is degenerate.
    """
    sites = max(2, round(np.sqrt(n))) if n > 1 else 1
    route = _distances(rng.random((sites, 2)), rng.random((sites, 2))) * rng.uniform(0.8, 1.2, (sites, sites))
    source, sink = (_units(n, sites, rng) for _ in range(2))
    return route[source[:, None], sink]


def _units(n: int, sites: int, rng: Generator) -> NDArray[np.int64]:
    """The site of every unit, in random order: each site has one or more."""
    amounts = 1 + rng.multinomial(n - sites, rng.dirichlet(np.full(sites, 2.0)))
    return rng.permutation(np.repeat(np.arange(sites), amounts))


def _cloud(n: int, rng: Generator) -> Matrix:
    centres, widths = rng.random((_CLOUDS, 2)), rng.uniform(0.02, 0.1, _CLOUDS)
    cloud = rng.integers(0, _CLOUDS, n)
    return centres[cloud] + widths[cloud, None] * rng.standard_normal((n, 2))


def _distances(one: Matrix, other: Matrix) -> Matrix:
    squares = np.square(one[:, None, 0] - other[None, :, 0])
    squares += np.square(one[:, None, 1] - other[None, :, 1])
    return np.sqrt(squares, out=squares)


SQUARE: Final[Mapping[Family, Callable[[int, Generator], Matrix]]] = {
    "uniform": uniform,
    "sparse": sparse,
    "metric": metric,
    "clustered": clustered,
    "noisy_linear": noisy_linear,
    "low_rank": low_rank,
    "tie": tie,
    "geometric": geometric,
    "transportation": transportation,
}
"""All families whose instances are square and stand alone."""


def add_noise(costs: Matrix, noise_std: float, rng: Generator) -> Matrix:
    """Normal noise on what may be taken; costs that were 0 or more stay so."""
    may_be_taken = costs < FORBIDDEN
    floor = 0.0 if costs.min() >= 0 else -np.inf
    noisy = np.maximum(costs + noise_std * rng.standard_normal(costs.shape), floor)
    return np.where(may_be_taken, noisy, costs)
