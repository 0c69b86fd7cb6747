"""Sweeps over costs: the native ones are the definitions; order, unit and constants of rows change nothing."""

import pytest
import torch

from graphmill.tasks.assignment.data.batches import reduced
from graphmill.tasks.assignment.data.features import (
    Instances,
    first_features,
    nearest,
    nearest_as_defined,
    round_features,
    soften,
    soften_as_defined,
)

EPS = 2**-23


def costs(batch: int, rows: int, columns: int, *, absent: float = 0.3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows * 1000 + columns)
    made = torch.rand(batch, rows, columns, generator=generator)
    made[torch.rand(made.shape, generator=generator) < absent] = torch.inf
    made[0, -1] = torch.inf  # a row without any pair
    return made


@pytest.mark.each_isa
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 9), (5, 5), (33, 50), (40, 137)])
@pytest.mark.parametrize("k", [1, 2, 4, 7, 8])
def test_nearest_is_as_defined(rows, columns, k):
    given = costs(3, rows, columns)
    v = torch.rand(3, columns, generator=torch.Generator().manual_seed(1)) - 0.5
    one, other = nearest(given, v, k), nearest_as_defined(given, v, k)
    assert torch.equal(one.row_values, other.row_values)
    assert torch.equal(one.row_columns, other.row_columns)
    assert torch.equal(one.column_values, other.column_values)


@pytest.mark.each_isa
def test_equal_costs_are_taken_by_column():
    found = nearest(torch.zeros(1, 2, 40), torch.zeros(1, 40), 3)
    assert found.row_columns.tolist() == [[[0, 1, 2], [0, 1, 2]]]


@pytest.mark.each_isa
@pytest.mark.parametrize("threads", [1, 2])
def test_soften_is_as_defined(threads):
    given, generator = costs(3, 33, 50), torch.Generator().manual_seed(1)
    v = torch.rand(3, 50, generator=generator) - 0.5
    u, epsilon = nearest(given, v, 1).row_values[:, :, 0], torch.tensor([0.05, 0.3, 2.0])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found = soften(given, u, v, epsilon)
    torch.set_num_threads(before)
    wanted = soften_as_defined(given, u, v, epsilon)
    for one, other in zip(found, wanted, strict=True):
        # Sums of 50 exponentials, each to 2 units in the last place, in another order; |x / ε| up to 30 beforehand.
        torch.testing.assert_close(one, other, rtol=100 * EPS, atol=100 * EPS)


def seen(matrices, **more):
    """Potentials over the scale, and features of two sweeps."""
    given, _ = reduced(matrices)
    first = first_features(given, **{"topk": 4, "soft_sweeps": 5, **more})
    features, _ = round_features(nearest(given.costs, first.v, 4), first.scale, given.is_column)
    return first.v / first.scale, first.columns, features, first.scale


@pytest.mark.parametrize("shape", [(40, 40), (25, 60)])
def test_unit_and_constants_of_rows_change_nothing(shape):
    matrix = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).numpy()
    rows = torch.linspace(-5, 5, shape[0], dtype=torch.float64).numpy()
    plain, other = seen([matrix]), seen([matrix * 4096 + rows[:, None] * 1000])
    assert float(other[3] / plain[3]) == pytest.approx(4096, rel=1e-6)
    for one, two in zip(plain[:3], other[:3], strict=True):
        # A constant of 5,000 in float64 leaves 1e-12 of a cost; then sums as above, sharpened by features' slopes.
        torch.testing.assert_close(one, two, rtol=2000 * EPS, atol=2000 * EPS)


@pytest.mark.parametrize("shape", [(40, 40), (25, 60)])
def test_order_is_kept(shape):
    generator = torch.Generator().manual_seed(4)
    matrix = torch.rand(shape, dtype=torch.float64, generator=generator).numpy()
    rows, columns = torch.randperm(shape[0], generator=generator), torch.randperm(shape[1], generator=generator)
    plain, other = seen([matrix]), seen([matrix[rows][:, columns]])
    for one, two in zip(plain[:3], other[:3], strict=True):
        torch.testing.assert_close(one[:, columns], two, rtol=2000 * EPS, atol=2000 * EPS)


def test_filling_up_changes_nothing():
    generator = torch.Generator().manual_seed(5)
    small, large = (torch.rand(n, n + 2, dtype=torch.float64, generator=generator).numpy() for n in (9, 20))
    alone, both = seen([small]), seen([small, large])
    for one, two in zip(alone[:3], both[:3], strict=True):
        torch.testing.assert_close(one[0], two[0, :11], rtol=2000 * EPS, atol=2000 * EPS)
        assert not two[0, 11:].any()


@pytest.mark.parametrize("far", [1e6, float("inf")])
def test_pairs_that_are_too_dear_hardly_show(far):
    generator = torch.Generator().manual_seed(6)
    matrix = torch.rand(60, 60, dtype=torch.float64, generator=generator).numpy()
    is_far = (torch.rand(60, 60, generator=generator) < 0.6).numpy()
    matrix[is_far] = far
    for each in seen([matrix]):
        assert each.isfinite().all()
    assert float(seen([matrix])[3]) < 1


@pytest.mark.parametrize("matrix", [torch.zeros(5, 5), torch.full((4, 6), 3.0), torch.tensor([[2.0]])])
def test_equal_costs_have_a_scale(matrix):
    *seen_, scale = seen([matrix.double().numpy()])
    assert scale.item() > 0
    assert all(each.isfinite().all() for each in seen_)


def test_rows_that_fill_up_are_none():
    given = Instances(torch.zeros(2, 3, 4), torch.tensor([3.0, 2.0]), torch.tensor([4.0, 2.0]))
    assert given.is_row.tolist() == [[True] * 3, [True, True, False]]
    assert given.is_capped.tolist() == [[True], [False]]
