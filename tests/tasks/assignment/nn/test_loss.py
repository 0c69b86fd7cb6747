"""The dual objective: its value, its gradient, and what it is measured by."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from graphmill.tasks.assignment.data.batches import reduced
from graphmill.tasks.assignment.nn.loss import capped, completed, distance, missing_share, objective

EPS = 2**-23


def instances(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    matrices = [rng.random(shape) for shape in shapes]
    optima = [matrix[linear_sum_assignment(matrix)].sum() for matrix in matrices]
    given, minima = reduced(matrices)
    return given, torch.tensor(np.array(optima) - minima, dtype=torch.float32)


@pytest.mark.parametrize("shapes", [[(7, 7)] * 3, [(5, 9)] * 2, [(4, 4), (3, 6), (6, 6)]])
def test_gradient_is_one_less_how_many_rows_want_a_column(shapes):
    given, _ = instances(*shapes)
    v = (
        0.3 * torch.randn(given.costs.shape[0], given.costs.shape[2], generator=torch.Generator().manual_seed(1))
    ).double()
    v = torch.where(given.is_column, torch.where(given.is_capped, v.clamp(max=0), v), 0.0).requires_grad_()
    costs = given.costs.double()
    rows = torch.where(given.is_row, (costs - v.unsqueeze(1)).amin(dim=2), 0.0)
    (plain,) = torch.autograd.grad((rows.sum(1) + v.sum(1)).sum(), v)
    v32 = v.detach().float().requires_grad_()
    found = objective(completed(v32, given), given)
    (made,) = torch.autograd.grad(found.sum(), v32)
    torch.testing.assert_close(made, torch.where(given.is_column, plain, 0.0).float(), rtol=0, atol=0)
    torch.testing.assert_close(found, (rows.sum(1) + v.sum(1)).float(), rtol=30 * EPS, atol=30 * EPS)


@pytest.mark.parametrize("shape", [(8, 8), (6, 11)])
def test_no_potentials_exceed_the_optimum_and_optimal_ones_reach_it(shape):
    given, optimum = instances(shape, shape)
    v = torch.zeros(2, shape[1], requires_grad=True)
    optimizer, best = torch.optim.SGD([v], lr=0.02), torch.full((2,), -torch.inf)
    for step in range(3000):
        optimizer.param_groups[0]["lr"] = 0.02 / (1 + step / 30)
        optimizer.zero_grad()
        found = objective(completed(capped(v, given), given), given)
        assert (found <= optimum + 20 * EPS * shape[1]).all()
        best = torch.maximum(best, found.detach())
        (-found.sum()).backward()
        optimizer.step()
    assert (optimum - best).max() < 0.01  # subgradients of a decreasing rate come near


def test_a_cap_lets_through_what_lowers():
    given, _ = instances((2, 4))
    v = torch.tensor([[0.5, -0.5, 0.5, 0.0]], requires_grad=True)
    capped(v, given).backward(torch.tensor([[1.0, -1.0, -1.0, -1.0]]))
    assert v.grad.tolist() == [[1.0, -1.0, 0.0, -1.0]]


def test_a_share_is_one_of_row_minima_and_zero_of_the_optimum():
    optimum, trivial, unit = torch.tensor([10.0, 5.0]), torch.tensor([6.0, 5.0]), torch.tensor([1e-9, 1.0])
    assert missing_share(trivial, optimum, trivial, unit).tolist() == pytest.approx([1.0, 0.0])
    assert missing_share(optimum, optimum, trivial, unit).tolist() == [0.0, 0.0]
    assert missing_share(torch.tensor([6.0, 4.0]), optimum, trivial, unit)[1] == pytest.approx(100.0)


def test_distance_has_no_gauge():
    given, _ = instances((4, 4), (2, 4))
    oracle = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.0, -0.1, 0.0, -0.2]])
    shifted = distance(oracle + 3, oracle, given, torch.ones(2, 1))
    assert shifted.tolist() == pytest.approx([0.0, 3.0], abs=8 * EPS)  # of a rectangle it is fixed
