"""The exact assignment solver, cold, one thread, against SciPy and lapx: processor time by family and size.

    python benchmarks/assignment.py [--sizes 512 1024 2048 4096] [--families …] [--rounds 3] [--limit 90]

Instances of the families of `graphmill prepare synthetic/assignment`, another one in each round; every contender gets
the same, in turns in one process, and must find the same cost. Contenders:
  graphmill            graphmill.assignment.solve(costs, check=False)
  graphmill, checked   the same with its certificate, one more sweep
  SciPy                scipy.optimize.linear_sum_assignment
  lapjv, lapjvs        of lapx (pip install lapx): Jonker and Volgenant's, and its form for square problems
The floor: the matrix read twice, at the speed of numpy's minimum over it. A contender that would take longer than
--limit seconds, as eight times what it took at half the size, is left out, and the table says so.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable
from statistics import geometric_mean
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from entries import write_entries
from graphmill.assignment import solve
from graphmill.tasks.assignment.data.families import SQUARE, rng_of
from graphmill.tasks.assignment.page.data import Family
from harness import ForeignLoad, Spread, print_table
from origin import Origin

OURS = "graphmill"
PEERS = ("SciPy", "lapjv", "lapjvs")
Contender = Callable[[np.ndarray], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--families", nargs="+", choices=list(SQUARE), default=list(SQUARE))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=90.0, metavar="S")
    options = parser.parse_args()
    contenders = all_contenders()
    last: dict[tuple[str, str], tuple[int, float]] = {}
    for size in sorted(options.sizes):
        origin, watch = Origin.now(), ForeignLoad()
        found = {}
        for family in options.families:
            names = [name for name in contenders if expected(last.get((family, name)), size) <= options.limit]
            found[family] = measured(family, size, {name: contenders[name] for name in names}, options.rounds)
            for name in names:
                last[family, name] = size, found[family]["seconds"][name]["median"]
            tell(family, size, found[family])
        result = {"families": found, "rounds": options.rounds, "foreign_cores": watch.cores()}
        result |= overall(found)
        print(f"{size}: geometric means {result['geometric_mean']}")
        write_entries("assignment", {str(size): (origin, result)})


def all_contenders() -> dict[str, Contender]:
    found: dict[str, Contender] = {
        OURS: lambda costs: solve(costs, check=False).cost,
        "graphmill, checked": lambda costs: solve(costs).cost,
        "SciPy": lambda costs: costs[linear_sum_assignment(costs)].sum(),
    }
    if importlib.util.find_spec("lap") is None:
        print("lapx is not installed: no lapjv (pip install lapx)")
        return found
    import lap

    found["lapjv"] = lambda costs: lap.lapjv(costs)[0]
    found["lapjvs"] = lambda costs: costs[np.arange(len(costs)), of_pairs(lap.lapjvs(costs, return_cost=False))].sum()
    return found


def of_pairs(found: Any) -> np.ndarray:
    """The column of each row, of whatever form lapjvs gives."""
    first, second = np.asarray(found[0]), np.asarray(found[1])
    columns = np.empty_like(first)
    columns[first] = second
    return columns


def expected(last: tuple[int, float] | None, size: int) -> float:
    return 0.0 if last is None else last[1] * (size / last[0]) ** 3


def measured(family: Family, size: int, contenders: dict[str, Contender], rounds: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {name: [] for name in [*contenders, "floor"]}
    for number in range(rounds):
        costs = SQUARE[family](size, rng_of(0, family, size, number))
        best = None
        for name, way in contenders.items():
            begin = time.process_time()
            cost = float(way(costs))
            seconds[name].append(time.process_time() - begin)
            best = cost if best is None else best
            if abs(cost - best) > 1e-9 * abs(best):
                raise SystemExit(f"{family} {size}: {name} found {cost}, {OURS} {best}")
        begin = time.process_time()
        costs.min(axis=0)
        seconds["floor"].append(2 * (time.process_time() - begin))
    ratios = {name: [a / b for a, b in zip(seconds[name], seconds[OURS], strict=True)] for name in seconds}
    return {
        "seconds": {name: spread(values) for name, values in seconds.items()},
        "ratio_to_graphmill": {name: spread(values) for name, values in ratios.items()},
    }


def spread(values: list[float]) -> dict[str, float]:
    found = Spread.of(values)
    return {"median": found.median, "q25": found.q25, "q75": found.q75}


def overall(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Geometric means over families, and the least ratio to the fastest peer."""
    ratios = {
        family: {name: value["median"] for name, value in entry["ratio_to_graphmill"].items()}
        for family, entry in found.items()
    }
    means = {}
    for name in PEERS:
        of = [ratio[name] for ratio in ratios.values() if name in ratio]
        if of:
            means[name] = geometric_mean(of)
    fastest = {
        family: min(ratio[name] for name in PEERS if name in ratio)
        for family, ratio in ratios.items()
        if set(PEERS) & set(ratio)
    }
    return {"geometric_mean": means, "fastest_peer": fastest}


def tell(family: str, size: int, entry: dict[str, Any]) -> None:
    rows = []
    for name in [OURS, "graphmill, checked", *PEERS, "floor"]:
        if name not in entry["seconds"]:
            rows.append([name, "over the limit", ""])
            continue
        ratio = entry["ratio_to_graphmill"][name]
        rows.append(
            [
                name,
                f"{1e3 * entry['seconds'][name]['median']:.2f}",
                str(Spread(**{"median": ratio["median"], "q25": ratio["q25"], "q75": ratio["q75"]})),
            ]
        )
    print_table(f"{family}, {size:,} by {size:,}", ["", "ms of processor time", "÷ graphmill"], rows)


if __name__ == "__main__":
    main()
