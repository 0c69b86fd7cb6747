"""The assignment solver is exact, whatever it begins with, and proves it; what is no problem is refused."""

from pathlib import Path
from typing import Final

import numpy as np
import pytest
from assignment_costs import KINDS, problem, some_duals
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from graphmill.assignment import InvalidCostsError, solve, solve_many, solve_sequence
from graphmill.base.errors import UserError

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
RELATIVE = 1e-12  # of a total: what the issue asks for; sums of the same pairs in another order differ by less


def check(costs, duals=None):
    rows, cols = linear_sum_assignment(costs)
    solution = solve(costs, duals)
    assert (np.diff(solution.rows) > 0).all()
    assert len(np.unique(solution.cols)) == len(solution.cols) == min(costs.shape)
    ours, best = costs[solution.rows, solution.cols].sum(), costs[rows, cols].sum()
    certificate = solution.certificate
    assert certificate.is_optimal, certificate
    if costs.dtype.kind in "iub":
        assert (ours, solution.cost, certificate.gap) == (best, best, 0)
    else:
        # float32 costs are summed in float32 by both.
        relative = RELATIVE if costs.dtype == np.float64 else 1e-6
        assert abs(float(ours) - float(best)) <= relative * abs(float(best))
    return solution


@pytest.mark.each_isa
@pytest.mark.parametrize("kind", KINDS)
def test_the_cost_is_the_least_from_any_potentials(kind):
    rng = np.random.default_rng([1, KINDS.index(kind)])
    for _ in range(40):
        costs = problem(kind, rng, largest=120)
        check(costs, some_duals(costs, rng))


@pytest.mark.parametrize("kind", ["uniform", "geometric", "noisy_linear", "sparse", "ties", "integers"])
def test_problems_that_need_more_than_their_first_candidates(kind):
    rng = np.random.default_rng([2, KINDS.index(kind)])
    costs = problem(kind, rng, largest=900, smallest=600)
    check(costs)
    check(costs, some_duals(costs, rng))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_five_thousand_problems(part):
    rng = np.random.default_rng([3, part])
    for number in range(500):
        kind = KINDS[number % len(KINDS)]
        costs = problem(kind, rng, largest=2048 if number % 25 == 0 else 200)
        check(costs, some_duals(costs, rng))


def moved_points(n, noise, rng):
    points = rng.random((n, 1, 2))
    copies = points[rng.permutation(n)] + noise / np.sqrt(n) * rng.standard_normal((n, 1, 2))
    return np.linalg.norm(points - copies[:, 0], axis=-1)


@pytest.mark.each_isa
@pytest.mark.parametrize("noise", [0, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_a_nearly_solved_problem_is_solved_from_the_least_pairs_of_its_columns(noise, dtype):
    costs = (1e4 * moved_points(500, noise, np.random.default_rng(13))).astype(dtype)
    work = check(costs).work
    num_over = 500 - len(np.unique(costs.argmin(axis=0)))
    assert work["free_after_greedy"] == num_over <= 500 * 5 // 16
    assert work["free_after_auction"] == 0, "no auction was held"
    assert work["rows_chosen"] <= 6 * num_over, "only rows that a search came to were read again"


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_one_row_over_moves_all_others(dtype):
    """All but the last prefer the column of their number, whose owner can go one further; the last wants the first."""
    n = 400
    costs = np.full((n, n), 1000, dtype)
    i = np.arange(n - 1)
    costs[i, i], costs[i, i + 1], costs[-1, 0] = 1, 2, 0
    assert check(costs[:, ::-1]).cost == 2 * (n - 1)
    work = check(costs).work
    assert work["free_after_greedy"] == 1
    assert work["rows_chosen"] == n


@pytest.mark.parametrize("wrong", [np.nan, -np.inf, np.inf])
@pytest.mark.parametrize("place", [(0, 0), (255, 131), (256, 256)])
def test_a_cost_of_a_nearly_solved_problem_that_is_not_finite(wrong, place):
    costs = moved_points(257, 0.1, np.random.default_rng(14))
    costs[place] = wrong
    if wrong > 0:
        check(costs)
    else:
        with pytest.raises(InvalidCostsError, match=f"row {place[0]}, column {place[1]} "):
            solve(costs)


FINITE = st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)
SHAPES = arrays.array_shapes(min_dims=2, max_dims=2, max_side=7)


@settings(max_examples=300, deadline=None)
@given(arrays.arrays(np.int64, SHAPES, elements=st.integers(-5, 5)), st.data())
def test_small_integers(costs, data):
    v = data.draw(arrays.arrays(np.int64, costs.shape[1], elements=st.integers(-(10**9), 10**9)))
    check(costs, (None, v))


@settings(max_examples=300, deadline=None)
@given(arrays.arrays(np.float64, SHAPES, elements=FINITE), st.data())
def test_potentials_bound_the_cost_from_below(costs, data):
    u = data.draw(arrays.arrays(np.float64, costs.shape[0], elements=FINITE))
    solution = solve(costs, (u, None))
    certificate = solution.certificate
    assert certificate.is_optimal
    # Of each pair the cost differs from u + v by at most the tolerance; of what is left over the potential is 0.
    assert abs(certificate.gap) <= (len(solution.rows) + 1) * (certificate.tolerance + 1e-15)


def test_or_library_optima(shared_data):
    archive = np.load(shared_data("lap/orlib_assign.npz"))
    optima = {int(x) for x in (305, 475, 626, 804, 991, 1176, 1362, 1552)}
    matrices = [archive[name] for name in archive.files if archive[name].ndim == 2]
    assert len(matrices) == len(optima)
    assert {solve(costs.astype(np.int64)).cost for costs in matrices} == optima
    assert {round(solve(costs.astype(np.float32)).cost) for costs in matrices} == optima


def test_the_potentials_of_both_sides_have_the_caller_s_order():
    costs = np.random.default_rng(4).random((9, 5))
    tall, wide = solve(costs), solve(costs.T)
    assert tall.cost == wide.cost
    for solution, matrix in ((tall, costs), (wide, costs.T)):
        reduced = matrix - solution.u[:, None] - solution.v[None]
        tolerance = solution.certificate.tolerance
        assert reduced.min() >= -tolerance
        assert np.abs(reduced[solution.rows, solution.cols]).max() <= tolerance


def test_the_largest_total():
    costs = np.random.default_rng(5).random((30, 40))
    rows, cols = linear_sum_assignment(costs, maximize=True)
    solution = solve(costs, (np.ones(30), None), maximize=True)
    assert solution.cost == pytest.approx(costs[rows, cols].sum(), rel=RELATIVE)
    assert (costs - solution.u[:, None] - solution.v[None]).max() <= solution.certificate.tolerance


def test_optimal_potentials_leave_nothing_to_search():
    costs = problem("geometric", np.random.default_rng(6), largest=400, smallest=400)
    cold = solve(costs)
    warm = solve(costs, (None, cold.v))
    assert warm.cost == pytest.approx(cold.cost, rel=RELATIVE)
    assert warm.work["bids"] + warm.work["row_scans"] < cold.work["bids"] + cold.work["row_scans"]


@pytest.mark.parametrize("wide", [False, True])
def test_sparse_costs_are_dense_ones_with_infeasible_pairs(wide):
    rng = np.random.default_rng(7)
    for _ in range(30):
        num_rows = int(rng.integers(1, 60))
        num_columns = num_rows + (int(rng.integers(0, 30)) if wide else 0)
        allowed = rng.random((num_rows, num_columns)) < 0.2
        allowed[np.arange(num_rows), rng.permutation(num_columns)[:num_rows]] = True
        costs = rng.integers(-9, 10, allowed.shape)
        rows, cols = np.nonzero(allowed)
        sparse = csr_array((costs[rows, cols], (rows, cols)), shape=allowed.shape)
        for given_costs in (sparse, sparse.T):
            solution = solve(given_costs)
            best = solve(np.where(allowed, costs, np.inf)).cost
            assert solution.cost == best
            assert solution.certificate.is_optimal


@pytest.mark.parametrize(
    ("costs", "duals", "words"),
    [
        ([[1.0, np.nan], [0.0, 1.0]], None, "row 0, column 1 is NaN"),
        ([[1.0, -np.inf], [0.0, 1.0]], None, "row 0, column 1 is -inf"),
        ([[np.inf, np.inf], [0.0, 1.0]], None, "no assignment"),
        ([[np.inf, 1.0], [np.inf, 1.0]], None, "no assignment"),
        ([1.0, 2.0], None, "1 dimensions"),
        ([["a"]], None, "type <U1"),
        ([[1.0, 2.0], [3.0, 4.0]], ([np.nan, 0.0], None), "u holds NaN"),
        ([[1.0, 2.0], [3.0, 4.0]], (None, [0.0]), "v is float64 \\[1\\]"),
        ([[2**60, 2**60], [0, 0]], None, "overflow"),
    ],
)
def test_what_is_no_problem_is_refused(costs, duals, words):
    with pytest.raises(ValueError, match=words) as caught:
        solve(costs, duals)
    assert isinstance(caught.value, UserError)


def test_nan_is_found_wherever_it_is():
    rng = np.random.default_rng(8)
    for dtype in (np.float32, np.float64):
        for shape in ((5, 9), (80, 80), (300, 300)):
            costs = rng.random(shape).astype(dtype)
            i, j = rng.integers(shape[0]), rng.integers(shape[1])
            costs[i, j] = np.nan
            for duals in (None, (np.zeros(shape[0]), None), (None, np.zeros(shape[1]))):
                with pytest.raises(InvalidCostsError, match=f"row {i}, column {j} is NaN"):
                    solve(costs, duals)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_nothing_to_assign(shape):
    solution = solve(np.zeros(shape))
    assert (len(solution.rows), solution.cost, len(solution.u), len(solution.v)) == (0, 0.0, *shape)
    assert solution.certificate.is_optimal


def test_one_row_takes_the_least_and_leaves_the_costs_alone():
    costs = np.random.default_rng(9).random((1, 1000))
    before = costs.copy()
    assert solve(costs).cols.tolist() == [int(costs.argmin())]
    assert (costs == before).all()


def test_a_batch_over_threads_is_its_problems_one_by_one():
    rng = np.random.default_rng(10)
    batch = [problem(kind, rng, largest=90) for kind in KINDS for _ in range(3)] + [np.zeros((0, 4))]
    for threads in (1, 3):
        for costs, solution in zip(batch, solve_many(batch, threads=threads), strict=True):
            alone = solve(costs)
            assert solution.cols.tolist() == alone.cols.tolist()
            assert solution.v.tolist() == alone.v.tolist()


def test_a_bad_problem_of_a_batch_is_named():
    with pytest.raises(InvalidCostsError, match="problem 1"):
        solve_many([np.ones((2, 2)), np.ones(3)])
    with pytest.raises(InvalidCostsError, match="problem 1"):
        solve_many([np.ones((2, 2)), np.full((2, 2), np.inf)])
    with pytest.raises(InvalidCostsError, match=r"problem 1.* NaN"):
        solve_many([np.ones((2, 2), np.float32), np.full((2, 2), np.nan)])


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("motion", [0.01, 0.5])
def test_frames_that_follow_each_other(named, motion):
    rng = np.random.default_rng(11)
    points = rng.random((70, 2))
    frames, ids = [], []
    for _ in range(12):
        seen = np.sort(rng.permutation(70)[: rng.integers(40, 60)])
        found = points + motion * rng.standard_normal(points.shape)
        frames.append(np.linalg.norm(points[seen, None] - found[None, rng.permutation(70)], axis=-1))
        ids.append(seen.tolist())
    solutions = solve_sequence(frames, ids if named else None, check=True)
    for frame, solution in zip(frames, solutions, strict=True):
        rows, cols = linear_sum_assignment(frame)
        assert solution.cost == pytest.approx(frame[rows, cols].sum(), rel=RELATIVE)
        assert solution.certificate.is_optimal
    with pytest.raises(InvalidCostsError, match="frame 0"):
        solve_sequence(frames, [[1]])


SOLVE_ALL: Final = """
import hashlib, sys, numpy as np
sys.path.insert(0, sys.argv[1])
from assignment_costs import KINDS, problem
from graphmill.assignment import solve
digest = hashlib.sha256()
for number, kind in enumerate(KINDS):
    rng = np.random.default_rng([12, number])
    for _ in range(4):
        solution = solve(problem(kind, rng, largest=300))
        digest.update(solution.cols.tobytes() + solution.u.tobytes() + solution.v.tobytes())
print(digest.hexdigest())
"""


def test_the_same_solution_with_every_instruction_set(printed_on_each_isa):
    assert len(set(printed_on_each_isa("-c", SOLVE_ALL, PLUGINS).values())) == 1
