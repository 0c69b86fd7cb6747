"""The exact assignment solver, cold, one thread, against SciPy and all of lapx: processor time by family and size.

    pip install -r benchmarks/peers/assignment.txt
    python benchmarks/assignment.py [--sizes 256 512 1024 2048 4096] [--families …] [--rounds 5] [--limit 15]

Twelve families (assignment_families.py), another instance in each round; every contender gets the same matrix of
float64, in turns in one process, each round from another one on, and finds it as a sweep over it has left it in the
caches. Contenders:
  graphmill            graphmill.assignment.solve(costs, check=False)
  graphmill, checked   the same with its certificate, one more sweep
  SciPy                scipy.optimize.linear_sum_assignment
  lapjv, lapjvx, lapjvc, lapjvs, lapjvr, lapjvh, lapmod   of lapx, without the sum of costs, which ours has
lapjvs computes in float32 unless it is asked not to: both forms. lapmod gets its sparse form made beforehand.
The floor: the matrix read twice, at the speed of numpy's minimum over it. A peer that finds another cost than SciPy
is none: its answer is told as inexact. One that would take longer than --limit seconds, as eight times what it took at
half the size, is left out unless it was the fastest peer there. Small sizes have more rounds.
"""

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")

import argparse
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import lap
import numpy as np
from scipy.optimize import linear_sum_assignment

from assignment_families import FAMILIES, instance
from assignment_tables import best_peer, mean_of_best
from entries import write_entries
from graphmill.assignment import Solution, solve
from graphmill.tasks.assignment.data.families import FORBIDDEN
from harness import ForeignLoad, Spread, print_table
from origin import Origin

OURS, CHECKED, FLOOR = "graphmill", "graphmill, checked", "floor"
PINS = Path(__file__).parent / "peers" / "assignment.txt"
EQUAL = 1e-9  # relative: of two sums of the same pairs in another order, and far below the next best assignment
Pairs = tuple[Any, Any]  # rows, and the column of each
Contender = Callable[[], Pairs]
PEERS = ("SciPy", "lapjv", "lapjvx", "lapjvc", "lapjvs", "lapjvs, float32", "lapjvr", "lapjvh", "lapmod")
NAMES = (OURS, CHECKED, *PEERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096])
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=15.0, metavar="S")
    options = parser.parse_args()
    versions = pinned()
    before: dict[str, dict[str, Any]] = {}
    for size in sorted(options.sizes):
        origin, watch = Origin.now(), ForeignLoad()
        found = {}
        for family in options.families:
            names = chosen(before.get(family), size, options.limit)
            if family == "products" and size**2 >= FORBIDDEN:
                names = [name for name in names if name != "lapmod"]  # which takes no cost from a million on
            rounds = options.rounds * max(1, 1024 // size)
            found[family] = measured(family, size, names, rounds)
            before[family] = {"size": size, **found[family]}
            tell(family, size, found[family])
        result = {"families": found, "rounds": options.rounds, "versions": versions, "foreign_cores": watch.cores()}
        mean = mean_of_best([result])
        print(f"{size}: {mean:.3g} times as fast as the best peer of each family (geometric mean)")
        write_entries("assignment", {str(size): (origin, result)})


def pinned() -> dict[str, str]:
    """The version of each peer's package, as pinned."""
    versions = {}
    for line in PINS.read_text().split():
        name, _, wanted = line.partition("==")
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = "no version"
        if installed != wanted:
            raise SystemExit(f"{name}: {installed} is installed, {wanted} is pinned → pip install -r {PINS.name}")
        versions[name] = wanted
    return versions


def contenders(costs: np.ndarray, names: Sequence[str]) -> dict[str, Contender]:
    sparse = sparse_of(costs) if "lapmod" in names else ()
    found: dict[str, Contender] = {
        OURS: lambda: of_solution(solve(costs, check=False)),
        CHECKED: lambda: of_solution(solve(costs)),
        "SciPy": lambda: linear_sum_assignment(costs),
        "lapjv": lambda: of_columns(lap.lapjv(costs, return_cost=False)),
        "lapjvx": lambda: lap.lapjvx(costs, return_cost=False),
        "lapjvc": lambda: lap.lapjvc(costs, return_cost=False),
        "lapjvs": lambda: lap.lapjvs(costs, return_cost=False, prefer_float32=False),
        "lapjvs, float32": lambda: lap.lapjvs(costs, return_cost=False),
        "lapjvr": lambda: lap.lapjvr(costs, return_cost=False),
        "lapjvh": lambda: lap.lapjvh(costs, return_cost=False),
        "lapmod": lambda: of_columns(lap.lapmod(*sparse, return_cost=False)),
    }
    return {name: found[name] for name in names}


def sparse_of(costs: np.ndarray) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """The pairs that are not forbidden, as lapmod takes them: number of rows, costs, where rows begin, columns."""
    is_kept = costs < FORBIDDEN
    begins = np.concatenate([[0], np.cumsum(is_kept.sum(axis=1))])
    return len(costs), costs[is_kept], begins.astype(np.int32), np.nonzero(is_kept)[1].astype(np.int32)


def of_solution(solution: Solution) -> Pairs:
    return solution.rows, solution.cols


def of_columns(found: tuple[Any, ...]) -> Pairs:
    return np.arange(len(found[0])), found[0]


def chosen(before: dict[str, Any] | None, size: int, limit: float) -> list[str]:
    """Ours, the peers that are expected to end within the limit, and the one that was fastest."""
    if before is None:
        return list(NAMES)
    grown = (size / before["size"]) ** 3
    seconds = {name: value["median"] for name, value in before["seconds"].items()}
    kept = {OURS, CHECKED, best_peer(before)}
    return [name for name in NAMES if name in kept or (name in seconds and seconds[name] * grown <= limit)]


def measured(family: str, size: int, names: list[str], rounds: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {name: [] for name in [*names, FLOOR]}
    inexact: set[str] = set()
    for number in range(-1 if size <= 1024 else 0, rounds):  # the first of a small size warms up
        costs = instance(family, size, max(number, 0))
        ways, found = contenders(costs, names), {}
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            costs.max()  # else it would be what the contender before leaves in the caches
            begin = time.process_time()
            pairs = ways[name]()
            took = time.process_time() - begin
            found[name] = total(costs, pairs)
            if number >= 0:
                seconds[name].append(took)
        inexact |= others_than_best(family, size, found)
        begin = time.process_time()
        costs.min(axis=0)
        if number >= 0:
            seconds[FLOOR].append(2 * (time.process_time() - begin))
    ratios = {name: [a / b for a, b in zip(seconds[name], seconds[OURS], strict=True)] for name in seconds}
    spreads = {name: spread(values) for name, values in ratios.items()}
    return {
        "seconds": {name: spread(values) for name, values in seconds.items()},
        "ratio_to_graphmill": spreads,
        "inexact": sorted(inexact),
    }


def total(costs: np.ndarray, pairs: Pairs) -> float:
    rows, columns = (np.asarray(side) for side in pairs)
    if len(np.unique(rows)) != len(costs) or len(np.unique(columns)) != len(costs):
        return np.inf  # not an assignment
    return float(costs[rows, columns].sum())


def others_than_best(family: str, size: int, found: dict[str, float]) -> set[str]:
    """Peers that found another cost than SciPy, or than ours where SciPy was left out. Ours must not."""
    best = found.get("SciPy", found[OURS])
    wrong = {name for name, cost in found.items() if not abs(cost - best) <= EQUAL * abs(best)}
    if wrong & {OURS, CHECKED}:
        raise SystemExit(f"{family} {size}: {OURS} found {found[OURS]}, SciPy {best}")
    return wrong


def spread(values: list[float]) -> dict[str, float]:
    found = Spread.of(values)
    return {"median": found.median, "q25": found.q25, "q75": found.q75}


def tell(family: str, size: int, entry: dict[str, Any]) -> None:
    rows = []
    for name in [*NAMES, FLOOR]:
        if name not in entry["seconds"]:
            rows.append([name, "left out", ""])
            continue
        ms, ratio = 1e3 * entry["seconds"][name]["median"], Spread(**entry["ratio_to_graphmill"][name])
        rows.append([name, f"{ms:.3g}", f"{ratio}{', inexact' if name in entry['inexact'] else ''}"])
    print_table(f"{family}, {size:,} by {size:,}", ["", "ms of processor time", "÷ graphmill"], rows)


if __name__ == "__main__":
    main()
