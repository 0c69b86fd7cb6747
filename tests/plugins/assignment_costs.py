"""Assignment problems of every sort, and potentials to begin with, good and useless."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = (
    *("uniform", "geometric", "noisy_linear", "sparse", "low_rank", "clustered", "integers", "ties", "equal"),
    *("infeasible_pairs", "negative", "float32", "scaled", "moved"),
)


def problem(kind: str, rng: np.random.Generator, *, largest: int, smallest: int = 1) -> NDArray[Any]:
    """Costs of a problem of random size, square or not, either way round."""
    n = int(np.exp(rng.uniform(np.log(smallest), np.log(largest))))
    m = n + int(rng.integers(0, max(2, n))) if rng.random() < 0.4 else n
    shape = (m, n) if rng.random() < 0.3 else (n, m)
    uniform = rng.random(shape)
    if kind == "geometric":
        return np.linalg.norm(rng.random((shape[0], 1, 2)) - rng.random((1, shape[1], 2)), axis=-1)
    if kind == "moved":
        points = rng.random((max(shape), 1, 2))
        moved = points[rng.permutation(shape[1])] + rng.choice([0, 0.01, 0.05]) * rng.standard_normal((shape[1], 1, 2))
        return np.linalg.norm(points[: shape[0]] - moved[:, 0], axis=-1)
    if kind == "noisy_linear":
        return np.outer(rng.random(shape[0]), rng.random(shape[1])) + 0.1 * rng.standard_normal(shape)
    if kind == "low_rank":
        product = rng.standard_normal((shape[0], 12)) @ rng.standard_normal((12, shape[1]))
        return np.clip(product + 0.1 * uniform, 0, None)
    if kind == "clustered":
        blocks = (np.arange(shape[0])[:, None] * 4 // shape[0]) == (np.arange(shape[1])[None] * 4 // shape[1])
        return np.clip(uniform - 0.4 * blocks, 0, None)
    if kind in ("sparse", "infeasible_pairs"):
        allowed = rng.random(shape) < min(1.0, 4 * np.log(n + 2) / n)
        allowed[tuple(rng.permutation(size)[:n] for size in shape)] = True  # one assignment at least
        return np.where(allowed, uniform, 1e6 if kind == "sparse" else np.inf)
    simple: dict[str, Any] = {
        "uniform": uniform,
        "integers": rng.integers(-1000, 1000, shape),
        "ties": rng.integers(0, 3, shape) / 3,
        "equal": np.zeros(shape) + rng.integers(0, 2),
        "negative": uniform - 2 * rng.random(),
        "float32": uniform.astype(np.float32),
        "scaled": uniform * 10.0 ** rng.integers(-200, 200),
    }
    return np.asarray(simple[kind])


def some_duals(costs: NDArray[Any], rng: np.random.Generator) -> tuple[Any, Any] | None:
    """None, potentials of one side or both, of any size, or all zero."""
    scale = 10.0 ** rng.integers(-3, 6)
    u, v = (scale * rng.standard_normal(size) for size in costs.shape)
    choices = [None, (u, None), (None, v), (u, v), (None, 1e294 * v), (np.zeros_like(u), np.zeros_like(v))]
    return choices[rng.integers(len(choices))]
