"""A seeded solver: optimal whatever its model says, and it takes the way that it measured to be the faster."""

import time

import numpy as np
import pytest
from scipy import optimize

from graphmill import SeededSolver
from graphmill.assignment import solve


class Model:
    """Says what it is told to, and counts how often it was asked."""

    def __init__(self, seed, *, slow=False):
        self._seed, self._slow, self.num_asked = seed, slow, 0

    def seed(self, costs):
        self.num_asked += 1
        if self._slow:
            time.sleep(0.05)  # far longer than a problem of this size takes
        return self._seed(costs)


def optimal(costs):
    return None, solve(costs).v


def useless(costs):
    return np.random.default_rng(0).standard_normal(len(costs)), None


def problems(number, size=40):
    return [np.random.default_rng([1, q]).random((size, size)) for q in range(number)]


@pytest.mark.parametrize("how", ["auto", "model", "cold"])
@pytest.mark.parametrize("seed", [optimal, useless])
def test_every_solution_is_optimal(how, seed):
    solver = SeededSolver(Model(seed), how)
    for costs in [*problems(5), np.random.default_rng(2).random((9, 5)), np.zeros((0, 3))]:
        solution = solver.solve(costs)
        rows, columns = optimize.linear_sum_assignment(costs)
        assert solution.cost == pytest.approx(costs[rows, columns].sum(), rel=1e-12, abs=0)
        assert solution.certificate.is_optimal


def test_a_model_that_takes_longer_than_it_saves_is_asked_three_times():
    model = Model(optimal, slow=True)
    solver = SeededSolver(model)
    costs = problems(20)
    for matrix in costs:
        solver.solve(matrix)
    assert model.num_asked == 3
    assert solver.way_of(costs[0]) == "cold"
    assert solver.chosen() == {"32 to 63": "cold"}


def test_sizes_are_measured_apart():
    solver = SeededSolver(Model(optimal, slow=True))
    for matrix in [*problems(4), *problems(4, size=70), *(matrix[:20] for matrix in problems(4))]:
        solver.solve(matrix)
    assert list(solver.chosen()) == ["32 to 63, not square", "32 to 63", "64 to 127"]


def test_model_and_cold_are_as_asked():
    model = Model(optimal)
    for matrix in problems(4):
        SeededSolver(model, "model").solve(matrix)
    assert model.num_asked == 4
    for matrix in problems(4):
        SeededSolver(model, "cold").solve(matrix)
    assert model.num_asked == 4
    with pytest.raises(ValueError, match="seed is 'both'"):
        SeededSolver(model, "both")
