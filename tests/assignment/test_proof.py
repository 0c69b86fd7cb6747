"""The certificate refuses what is wrong, and where potentials round costs away no solution follows from them."""

from fractions import Fraction

import numpy as np
import pytest
from assignment_costs import KINDS, problem
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from graphmill.assignment import InvalidCostsError, solve, solve_many, solve_sequence
from graphmill.assignment.costs import costs_of
from graphmill.assignment.proof import certificate_of, prove

GIVEN = {
    "floats": lambda rng: rng.random((30, 30)),
    "float32": lambda rng: rng.random((30, 30)).astype(np.float32),
    "integers": lambda rng: rng.integers(0, 1000, (30, 30)),
    "rectangular": lambda rng: rng.random((30, 45)),
    "transposed": lambda rng: rng.random((45, 30)),
    "transposed integers": lambda rng: rng.integers(0, 1000, (45, 30)),
    "sparse": lambda rng: csr_array(rng.random((30, 30)) + 0.5),
    "sparse, rectangular": lambda rng: csr_array(rng.random((30, 45)) + 0.5),
    "sparse integers": lambda rng: csr_array(rng.integers(1, 1000, (30, 30))),
    "far from 0": lambda rng: 1e9 + rng.random((30, 30)),
}


def exact(costs: NDArray[np.float64], rows: NDArray[np.int64], cols: NDArray[np.int64]) -> Fraction:
    return sum((Fraction(float(cost)) for cost in costs[rows, cols]), Fraction())


def solved(kind: str):
    """A problem as the solver has it, its columns and potentials."""
    given = GIVEN[kind](np.random.default_rng(0))
    found, own = solve(given), costs_of(given)
    columns, u, v = found.cols, found.u, found.v
    if own.is_transposed:
        order = np.argsort(found.cols)
        columns, u, v = found.rows[order], found.v, found.u
    assert certificate_of(own, columns, u, v).is_optimal
    return own, columns, u, v


@pytest.mark.parametrize("kind", GIVEN)
def test_exchanged_columns_are_not_optimal(kind):
    own, columns, u, v = solved(kind)
    best = own.of_pairs(columns).astype(float).sum()
    seen = 0
    for first in range(len(columns) - 1):
        wrong = columns.copy()
        wrong[[first, first + 1]] = wrong[[first + 1, first]]
        if own.of_pairs(wrong).astype(float).sum() > best:
            seen += 1
            assert not certificate_of(own, wrong, u, v).is_optimal
            assert not prove(own, wrong, u, v)[2].is_optimal, "potentials were found for it"
    assert seen


@pytest.mark.parametrize("by", [2, -2])
@pytest.mark.parametrize("kind", GIVEN)
def test_a_potential_that_is_off_by_two_tolerances_proves_nothing(kind, by):
    own, columns, u, v = solved(kind)
    least = certificate_of(own, columns, u, v).tolerance or 0.5  # of integers it is 0
    for side, number in (("u", 0), ("u", len(u) - 1), ("v", columns[0]), ("v", columns[-1])):
        moved = {"u": u.copy(), "v": v.copy()}
        moved[side][number] += round(by * least) if u.dtype.kind == "i" else by * least
        found = certificate_of(own, columns, moved["u"], moved["v"])
        assert not found.is_optimal, (side, number, found)


@pytest.mark.parametrize("to", [1, -1])
@pytest.mark.parametrize("kind", ["rectangular", "transposed", "transposed integers", "sparse, rectangular"])
def test_what_is_left_over_has_no_price(kind, to):
    """Below 0 no pair is violated by it, and none that is assigned has slack."""
    own, columns, u, v = solved(kind)
    left = np.setdiff1d(np.arange(own.num_columns), columns)
    for number in (left[0], left[-1]):
        moved = v.copy()
        moved[number] = to
        assert not certificate_of(own, columns, u, moved).is_optimal


@pytest.mark.parametrize("kind", GIVEN)
def test_the_tolerance_is_some_roundings_of_the_costs(kind):
    own, columns, u, v = solved(kind)
    tolerance = certificate_of(own, columns, u, v).tolerance
    pairs = own.of_pairs(columns)
    assert tolerance <= (0 if pairs.dtype == np.int64 else 1e-12 * np.abs(pairs).astype(float).mean())


def spread(rng: np.random.Generator) -> NDArray[np.float64]:
    return 10 ** rng.uniform(-12, 12, (40, 40))


@pytest.mark.parametrize("kind", ["spread", *(kind for kind in KINDS if kind not in ("integers", "infeasible_pairs"))])
@pytest.mark.parametrize("scale", [1.0, 1e6, 1e12])
def test_potentials_of_any_size_change_no_cost(kind, scale):
    """By exact sums, which nothing of ours computes; with and without the certificate, alone and in a sequence."""
    for seed in range(4):
        rng = np.random.default_rng([seed, 3])
        costs = spread(rng) if kind == "spread" else problem(kind, rng, largest=40, smallest=2)
        costs = np.asarray(costs, np.float64)
        best = exact(costs, *linear_sum_assignment(costs))
        u, v = (scale * rng.standard_normal(length) for length in costs.shape)
        for duals in ((u, None), (None, v), (u, v)):
            for check in (True, False):
                found = solve(costs, duals, check=check)
                scale_of_pairs = sum(abs(Fraction(float(cost))) for cost in costs[found.rows, found.cols])
                assert exact(costs, found.rows, found.cols) - best <= scale_of_pairs * Fraction(1, 10**11)
                assert found.certificate is None or found.certificate.is_optimal


def test_potentials_that_round_the_costs_away_prove_nothing():
    """What the solver finds from such potentials, by itself."""
    costs = spread(np.random.default_rng(0))
    own = costs_of(costs)
    v = 1e6 * np.random.default_rng(1).standard_normal(40)
    u = np.empty(40)
    columns, _work = own.solve(2, 4, u, v)
    assert exact(costs, np.arange(40), columns) > exact(costs, *linear_sum_assignment(costs)), "they do round"
    assert not certificate_of(own, columns, u, v).is_optimal
    assert not prove(own, columns, u, v)[2].is_optimal


def test_a_frame_after_one_of_large_costs():
    rng = np.random.default_rng(3)
    large = 1e9 * np.linalg.norm(rng.random((60, 1, 2)) - rng.random((1, 60, 2)), axis=-1)
    frames = [large, large, spread(rng)[:, :40], large]
    for frame, found in zip(frames, solve_sequence(frames, check=True), strict=True):
        assert found.certificate.is_optimal
        best = exact(frame, *linear_sum_assignment(frame))
        assert float(exact(frame, found.rows, found.cols)) == pytest.approx(float(best), rel=1e-11)


def test_a_cost_that_stands_for_never_leaves_the_proof_as_good_as_it_is_without():
    rng = np.random.default_rng(5)
    for never in (1e6, 1e15):
        costs = np.where(rng.random((50, 50)) < 0.1, rng.random((50, 50)), never)
        np.fill_diagonal(costs, rng.random(50))
        found = solve(costs)
        assert found.certificate.is_optimal
        assert found.certificate.tolerance < 1e-12
        assert (costs - found.u[:, None] - found.v).min() >= -found.certificate.tolerance


@pytest.mark.parametrize("num_columns", [50, 60], ids=["square", "columns left over"])
def test_potentials_too_large_for_a_proof_give_way_to_smaller_ones(num_columns):
    """An auction leaves such where a row's second best pair stands for "never": by themselves they prove nothing."""
    proven = 0
    for seed in range(6):
        rng = np.random.default_rng([seed, 5])
        costs = np.where(rng.random((50, num_columns)) < 0.1, rng.random((50, num_columns)), 1e15)
        np.fill_diagonal(costs, rng.random(50))
        own, u, v = costs_of(costs), np.zeros(50), np.zeros(num_columns)
        columns, _work = own.solve(0, 16, u, v)
        proven += not certificate_of(own, columns, u, v).is_optimal
        smaller_u, smaller_v, certificate = prove(own, columns, u, v)
        assert certificate.is_optimal
        assert (costs - smaller_u[:, None] - smaller_v).min() >= -certificate.tolerance
        assert np.abs(np.delete(smaller_v, columns)).max(initial=0) <= certificate.tolerance, "of what is left over"
    assert proven, "the potentials of the auction did"


HUGE = {"all equal": np.full((4, 4), 1.5e308), "signed": 1.7e308 * np.random.default_rng(0).uniform(-1, 1, (6, 9))}


@pytest.mark.parametrize("kind", HUGE)
@pytest.mark.parametrize("maximize", [False, True])
def test_costs_near_the_largest_float_are_refused(kind, maximize):
    for call in (solve, lambda costs, maximize: solve_many([costs], maximize=maximize)):
        with pytest.raises(InvalidCostsError, match=r"e\+308") as refused:
            call(HUGE[kind], maximize=maximize)
        assert "1e+300" in refused.value.fix
    scaled = HUGE[kind] * 2.0**-60  # the advice, followed
    rows, cols = linear_sum_assignment(scaled, maximize=maximize)
    assert solve(scaled, maximize=maximize).cost == pytest.approx(scaled[rows, cols].sum())


def test_what_is_refused_is_named_as_it_was_given():
    with pytest.raises(InvalidCostsError, match="row 0, column 1 is inf") as refused:
        solve([[1.0, np.inf], [2.0, 3.0]], maximize=True)
    assert "-inf for a pair" in refused.value.fix
    assert solve([[1.0, -np.inf], [2.0, 3.0]], maximize=True).cols.tolist() == [0, 1]
    with pytest.raises(InvalidCostsError, match="row 2, column 1 is NaN"):
        solve([[1.0, 2.0], [3.0, 4.0], [5.0, np.nan]])
    for duals in ("x", 5, (1,), ([1.0, 2.0],), (None, "ab"), {"u": 1}):
        with pytest.raises(InvalidCostsError, match=r"duals are|v is") as refused:
            solve([[1.0, 2.0], [3.0, 4.0]], duals)
        assert "None" in refused.value.fix
