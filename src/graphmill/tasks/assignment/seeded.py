"""A trained model and the exact solver as one: potentials are predicted where that saves more time than it takes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from graphmill.assignment import Solution, solve
from graphmill.assignment.costs import matrix_of
from graphmill.base.arguments import one_of
from graphmill.base.errors import InvalidInputError

Way = Literal["model", "cold"]
Seed = Literal["auto", "model", "cold"]


class Predictor(Protocol):
    """A model as `graphmill.load` gives it."""

    def seed(self, costs: NDArray[Any]) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
        """Costs [n, m] → potentials to begin with, (u or None, v or None)."""


TRIALS: Final = 3  # instances of a size that are solved both ways first
_AGAIN: Final = 64  # of so many instances one is solved the other way, too
_REMEMBERED: Final = 9  # times that a median is taken of


@dataclass(slots=True)
class _Times:
    """What instances of about one size took, each way."""

    seconds: dict[Way, list[float]] = field(default_factory=lambda: {"model": [], "cold": []})
    num_solved: int = 0

    def ways(self) -> Sequence[Way]:
        """How to solve the next instance; the last one's solution is given."""
        if len(self.seconds["cold"]) < TRIALS:
            return ("model", "cold")
        best = self.best
        other: Way = "cold" if best == "model" else "model"
        return (other, best) if self.num_solved % _AGAIN == 0 else (best,)

    @property
    def best(self) -> Way:
        """The faster way so far."""
        of = {way: median(times[-_REMEMBERED:]) for way, times in self.seconds.items() if times}
        return min(of, key=of.__getitem__) if of else "cold"


class SeededSolver:
    """Solves assignment problems exactly, beginning with what a trained model predicts where that is faster.

    `model`: as `graphmill.load(RUN)` gives it. `seed`: "model" always predicts, "cold" never does, "auto"
    measures: of each size (to a factor of two, and apart if not square) the first three problems are solved both ways,
    later ones the way that was faster, and one in 64 the other way again. The costs of solutions do not depend on it:
    every one is optimal.
    """

    def __init__(self, model: Predictor, seed: Seed = "auto") -> None:
        one_of("seed", seed, ("auto", "model", "cold"))
        if not callable(getattr(model, "seed", None)):
            raise InvalidInputError(
                f"the model is {model!r:.40}, which predicts no potentials",
                fix="give what graphmill.load gives of a run of assignment",
            )
        self._model, self.seed = model, seed
        self._times: dict[tuple[int, bool], _Times] = {}

    def solve(self, costs: NDArray[Any], *, check: bool = True) -> Solution:
        """Solve a problem as `graphmill.assignment.solve` does."""
        costs = matrix_of(costs)
        if self.seed == "cold" or not np.size(costs):
            return solve(costs, check=check)
        if self.seed == "model":
            return self._from_model(costs, check=check)
        times = self._times.setdefault(_size_of(costs), _Times())
        times.num_solved += 1
        for way in times.ways():
            begin = time.perf_counter()
            solution = solve(costs, check=check) if way == "cold" else self._from_model(costs, check=check)
            times.seconds[way].append(time.perf_counter() - begin)
        return solution

    def way_of(self, costs: NDArray[Any]) -> Way:
        """How a problem of this size is solved, as far as was measured."""
        if self.seed != "auto":
            return self.seed
        return self._times.get(_size_of(costs), _Times()).best

    def chosen(self) -> dict[str, Way]:
        """Faster way for each range of sizes, as far as was measured."""
        return {
            f"{2**power} to {2 ** (power + 1) - 1}{'' if is_square else ', not square'}": times.best
            for (power, is_square), times in sorted(self._times.items())
        }

    def _from_model(self, costs: NDArray[Any], *, check: bool) -> Solution:
        return solve(costs, self._model.seed(costs), check=check)


def _size_of(costs: NDArray[Any]) -> tuple[int, bool]:
    rows, columns = matrix_of(costs).shape
    return max(rows, columns).bit_length() - 1, rows == columns
