"""One probability of an attack out of several scores: logistic regression on them, fitted on validation windows.

Stacking (Wolpert 1992). The scores are standardised, and ‖w‖²/2 is added to the cross-entropy summed over the windows,
as scikit-learn's default does (C = 1). Newton's method in float64: few features and a convex objective, so the minimum
is the same whatever the machine, to rounding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.intrusion.threshold import refuse_one_kind

_MAX_STEPS: Final = 100
_TOLERANCE: Final = 1e-10  # of the largest entry of the gradient of the mean objective

Columns = Mapping[str, NDArray[np.floating]]
"""Scores of the same windows [num_windows], by what made them."""


@dataclass(frozen=True, slots=True)
class Stacking:
    """The regression: what it reads, and by which weights."""

    names: tuple[str, ...]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    """Of a score that did not vary: 1."""
    weight: NDArray[np.float64]
    """Of the standardised scores."""
    bias: float
    num_windows: int
    """That it was fitted on."""

    @classmethod
    def fit(cls, scores: Columns, is_attack: NDArray[np.bool_], penalty: float = 1.0) -> "Stacking":
        """Fit on windows that nothing scored was trained on. `UserError` if all, or none, `is_attack` [num_windows].

        `penalty`: of ‖w‖²/2.
        """
        refuse_one_kind(is_attack, "a fusion cannot be fitted")
        x = _matrix(scores, tuple(scores))
        mean, std = x.mean(axis=0), x.std(axis=0)
        std = np.where(std > 0, std, 1.0)
        weight = _minimum((x - mean) / std, is_attack.astype(np.float64), penalty)
        return cls(tuple(scores), mean, std, weight[:-1], float(weight[-1]), len(is_attack))

    def probability(self, scores: Columns) -> NDArray[np.float64]:
        """Probability of an attack [num_windows]."""
        return _sigmoid((_matrix(scores, self.names) - self.mean) / self.std @ self.weight + self.bias)


def _matrix(scores: Columns, names: tuple[str, ...]) -> NDArray[np.float64]:
    if missing := [name for name in names if name not in scores]:
        raise ValueError(f"a fusion of {', '.join(names)} lacks {', '.join(missing)}")
    x = np.stack([np.asarray(scores[name], np.float64) for name in names], axis=1)
    if not np.isfinite(x).all():
        raise ValueError(f"scores of {', '.join(names)} are not all finite")
    return x


def _minimum(x: NDArray[np.float64], y: NDArray[np.float64], held: float) -> NDArray[np.float64]:
    """Weights [num_features + 1], the bias last: it alone is not held near 0."""
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    penalty = np.append(np.full(x.shape[1] - 1, held), 0.0)
    weight = np.zeros(x.shape[1])
    for _ in range(_MAX_STEPS):
        p = _sigmoid(x @ weight)
        gradient = x.T @ (p - y) + penalty * weight
        if np.abs(gradient).max() <= _TOLERANCE * len(x):
            return weight
        hessian = (x * (p * (1 - p))[:, None]).T @ x + np.diag(penalty)
        step = np.linalg.lstsq(hessian, -gradient, rcond=None)[0].astype(np.float64)
        weight = _shortened(x, y, penalty, weight, step)
    return weight


def _shortened(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    penalty: NDArray[np.float64],
    weight: NDArray[np.float64],
    step: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The weights after a step that is halved until the objective does not rise: Newton's may leap too far."""

    def objective(at: NDArray[np.float64]) -> float:
        z = x @ at
        return float((np.logaddexp(0, z) - y * z).sum() + (penalty * at**2).sum() / 2)

    before, share = objective(weight), 1.0
    while objective(weight + share * step) > before and share > 2**-30:
        share /= 2
    return weight + share * step


def _sigmoid(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(-np.logaddexp(0, -z))
