"""`graphmill bench assignment RUN`: what a trained run saves the solver, beside seeds that learn nothing."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from statistics import geometric_mean, median
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.assignment import solve
from graphmill.base.errors import UserError
from graphmill.tasks.assignment.data.store import AssignmentStore
from graphmill.tasks.assignment.page.bench import AssignmentBenchOptions
from graphmill.tasks.assignment.seeded import TRIALS, SeededSolver
from graphmill.tasks.task import Benched

_log = logging.getLogger(__name__)

_FORBIDDEN: Final = 1e6  # costs from here on stand for infeasible pairs in the seed's data: they count for no density
Matrix = NDArray[Any]
Duals = tuple[Matrix | None, Matrix | None]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class InstanceTimes:
    """One instance. Times are medians in seconds, one thread; nothing is left out of `total_time`.

    The first twelve are the columns of the seed's benchmark. `lap_time`: None where no lap or lapx is installed.
    """

    dataset: str
    size: str
    family: str
    density: float
    scipy_time: float
    lap_time: float | None
    gnn_time: float  # features and model
    seeded_time: float  # the solver, from what the model predicts
    total_time: float
    speedup_vs_scipy: float
    speedup_vs_lap: float | None
    primal_gap: float  # percent, of the seeded solution over SciPy's
    cold_time: float  # graphmill's solver without any seed: column reduction
    zero_time: float  # from u = 0, and so from the minima of the columns: the column-reduced seed
    row_minima_time: float  # from u = the minima of the rows, these counted
    oracle_time: float  # from the optimal v: what no model can beat
    auto_time: float  # `SeededSolver(model)` as a whole, once it has measured problems of this family and size
    auto_seed: str
    dual_gap: float  # (optimum - dual objective of the prediction) / |optimum|


def measure(model: Any, store: AssignmentStore, options: AssignmentBenchOptions, progress: Progress) -> Benched:  # noqa: ANN401
    """`tasks.task.Benches`: one thread, all ways in turns."""
    numbers = _chosen(store, options)
    scipy, lapjv = _scipy(), _lapjv()
    if lapjv is None:
        _log.warning("neither lapx nor lap is installed, so there is no lap_time → pip install lapx")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        autos: dict[tuple[str, int], SeededSolver] = {}  # one for each distribution, as a user's own problems are one
        rows = []
        for done, number in enumerate(numbers):
            auto = autos.setdefault((store.family(number), _size_of(store, number)), SeededSolver(model))
            rows.append(_row(model, auto, store, number, options.repeats, scipy, lapjv))
            progress(f"{done + 1} of {len(numbers)}: {rows[-1].family}, {rows[-1].size}")
    finally:
        torch.set_num_threads(threads)
    return Benched([asdict(row) for row in rows], _summary(rows))


def _chosen(store: AssignmentStore, options: AssignmentBenchOptions) -> list[int]:
    numbers: list[int] = []
    counted: dict[tuple[str, int], int] = {}
    for number in store.instances(options.split, sizes=options.sizes, families=options.families).tolist():
        key = store.family(number), _size_of(store, number)
        counted[key] = counted.get(key, 0) + 1
        if counted[key] <= options.instances:
            numbers.append(number)
    if not numbers:
        raise UserError(
            f"the {options.split} split holds no instance of sizes {_listed(options.sizes)}, families"
            f" {_listed(options.families)}",
            fix="leave out -o sizes=… and -o families=…, or name some that `graphmill inspect` shows",
        )
    return numbers


def _listed(values: Sequence[object] | None) -> str:
    return "all" if values is None else ", ".join(map(str, values))


def _size_of(store: AssignmentStore, number: int) -> int:
    """Rows; of frames that follow each other, whose sizes vary, a power of two."""
    rows, columns = store.shape(number)
    return rows if rows == columns else 1 << (rows - 1).bit_length()


def _row(
    model: Any,  # noqa: ANN401  # what graphmill.load gives
    auto: SeededSolver,
    store: AssignmentStore,
    number: int,
    repeats: int,
    scipy: Callable[[Matrix], tuple[Matrix, Matrix]],
    lapjv: Callable[[Matrix], object] | None,
) -> InstanceTimes:
    costs = np.ascontiguousarray(store.cost(number), np.float64)
    optimum, oracle_v = store.optimum(number), np.asarray(store.v(number))
    seed = model.seed(costs)
    ways: dict[str, Callable[[], object]] = {
        "scipy": lambda: scipy(costs),
        "cold": lambda: solve(costs, check=False),
        "zero": lambda: solve(costs, (np.zeros(len(costs)), None), check=False),
        "row_minima": lambda: solve(costs, (costs.min(axis=1), None), check=False),
        "oracle": lambda: solve(costs, (None, oracle_v), check=False),
        "gnn": lambda: model.seed(costs),
        "seeded": lambda: solve(costs, seed, check=False),
        "auto": lambda: auto.solve(costs, check=False),
    }
    if lapjv is not None:
        finite = np.where(np.isfinite(costs), costs, _FORBIDDEN)  # lapx knows no infeasible pairs
        ways["lap"] = lambda: lapjv(finite)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TRIALS):
        auto.solve(costs, check=False)
    for repeat in range(-1, repeats):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            if repeat >= 0:
                times[name].append(time.perf_counter() - begin)
    took = {name: median(found) for name, found in times.items()}
    rows, columns = scipy(costs)
    best = float(costs[rows, columns].sum())
    solution = solve(costs, seed)
    total = took["gnn"] + took["seeded"]
    lap_time = took.get("lap")
    shape = store.shape(number)
    return InstanceTimes(
        dataset=store.path.name,
        size=str(shape[0]) if shape[0] == shape[1] else f"{shape[0]}x{shape[1]}",
        family=store.family(number),
        density=float((costs < _FORBIDDEN).mean()),
        scipy_time=took["scipy"],
        lap_time=lap_time,
        gnn_time=took["gnn"],
        seeded_time=took["seeded"],
        total_time=total,
        speedup_vs_scipy=took["scipy"] / total,
        speedup_vs_lap=None if lap_time is None else lap_time / total,
        primal_gap=100 * (solution.cost - best) / (abs(best) or 1.0),
        cold_time=took["cold"],
        zero_time=took["zero"],
        row_minima_time=took["row_minima"],
        oracle_time=took["oracle"],
        auto_time=took["auto"],
        auto_seed=auto.way_of(costs),
        dual_gap=(optimum - _dual_objective(costs, seed)) / (abs(optimum) or 1.0),
    )


def _dual_objective(costs: Matrix, seed: Duals) -> float:
    v = seed[1] if seed[1] is not None else (costs - np.asarray(seed[0])[:, None]).min(axis=0)
    if costs.shape[0] < costs.shape[1]:
        v = np.minimum(v, 0)
    return float((costs - v).min(axis=1).sum() + v.sum())


def _scipy() -> Callable[[Matrix], tuple[Matrix, Matrix]]:
    if find_spec("scipy") is None:
        raise UserError(
            "SciPy is not installed, and its solver is what times are compared with", fix="pip install scipy"
        )
    from scipy import optimize

    return optimize.linear_sum_assignment  # type: ignore[attr-defined, no-any-return]


def _lapjv() -> Callable[[Matrix], object] | None:
    if find_spec("lap") is None:
        return None
    import lap

    return lambda costs: lap.lapjv(costs, extend_cost=costs.shape[0] != costs.shape[1])


def _summary(rows: Sequence[InstanceTimes]) -> list[dict[str, Any]]:
    """Geometric means over the instances of a family and size, and over all."""
    groups: dict[tuple[str, str], list[InstanceTimes]] = {}
    for row in rows:
        size = row.size.split("x")[0]
        groups.setdefault((row.family, size), []).append(row)
        groups.setdefault(("all", "all"), []).append(row)
    return [_means(family, size, group) for (family, size), group in sorted(groups.items(), key=_order)]


def _order(item: tuple[tuple[str, str], list[InstanceTimes]]) -> tuple[bool, str, int]:
    (family, size), _ = item
    return family == "all", family, int(size) if size.isdigit() else 0


def _means(family: str, size: str, group: Sequence[InstanceTimes]) -> dict[str, Any]:
    def ratio(of: Callable[[InstanceTimes], float | None]) -> float | None:
        found = [value for row in group if (value := of(row)) is not None]
        return geometric_mean(found) if found else None

    return {
        "family": family,
        "size": size,
        "instances": len(group),
        "vs_scipy": ratio(lambda row: row.speedup_vs_scipy),
        "vs_lap": ratio(lambda row: row.speedup_vs_lap),
        "vs_best_trivial": ratio(lambda row: min(row.cold_time, row.zero_time, row.row_minima_time) / row.total_time),
        "cold_vs_scipy": ratio(lambda row: row.scipy_time / row.cold_time),
        "cold_vs_lap": ratio(lambda row: None if row.lap_time is None else row.lap_time / row.cold_time),
        "oracle_vs_cold": ratio(lambda row: row.cold_time / row.oracle_time),
        "auto_vs_cold": ratio(lambda row: row.cold_time / row.auto_time),
        "auto_seed": max({row.auto_seed for row in group}, key=[row.auto_seed for row in group].count),
        "dual_gap": median(row.dual_gap for row in group),
        "largest_primal_gap": max(abs(row.primal_gap) for row in group),
    }
