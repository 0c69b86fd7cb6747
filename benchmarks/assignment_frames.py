"""Frames of a tracker that follow each other: graphmill.assignment.solve_sequence, against SciPy and lapx per frame.

    python benchmarks/assignment_frames.py [--sizes 20 50 100 200 500] [--frames 60] [--rounds 5]

Sequences of `graphmill prepare synthetic/assignment` (tracking): gated squared distances, infeasible pairs are inf. All
contenders find the same costs, which is checked. Processor time of one thread, in turns in one process:
  graphmill          solve_sequence(frames)
  graphmill, sparse  solve for each frame, given as a scipy.sparse matrix of the feasible pairs
  SciPy              linear_sum_assignment for each frame
  lapjvx             lapx's for each frame, 1e6 for infeasible pairs, which it cannot do without
"""

import argparse
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from entries import write_entries
from graphmill.assignment import solve, solve_sequence
from graphmill.tasks.assignment.data.generate import sequence
from harness import ForeignLoad, Spread, print_table
from origin import Origin

FAR = 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 50, 100, 200, 500])
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for size in options.sizes:
        origin, watch = Origin.now(), ForeignLoad()
        frames = [frame.costs() for frame in sequence(0, size, 0, options.frames)]
        check_same(frames)
        seconds: dict[str, list[float]] = {}
        for number in range(-1, options.rounds):
            for name, way in contenders(frames).items():
                begin = time.process_time()
                way()
                if number >= 0:
                    seconds.setdefault(name, []).append((time.process_time() - begin) / len(frames))
        result = {
            "frames": len(frames),
            "columns": int(np.median([frame.shape[1] for frame in frames])),
            "seconds": {name: spread(values) for name, values in seconds.items()},
            "ratio_to_graphmill": {
                name: spread([a / b for a, b in zip(values, seconds["graphmill"], strict=True)])
                for name, values in seconds.items()
            },
            "foreign_cores": watch.cores(),
        }
        tell(size, result)
        write_entries("assignment_frames", {str(size): (origin, result)})


def contenders(frames: list[np.ndarray]) -> dict[str, Callable[[], object]]:
    sparse = [csr_array((frame[np.isfinite(frame)], np.nonzero(np.isfinite(frame))), frame.shape) for frame in frames]
    finite = [np.where(np.isfinite(frame), frame, FAR) for frame in frames]
    found: dict[str, Callable[[], object]] = {
        "graphmill": lambda: solve_sequence(frames),
        "graphmill, sparse": lambda: [solve(frame, check=False) for frame in sparse],
        "SciPy": lambda: [linear_sum_assignment(frame) for frame in frames],
    }
    if importlib.util.find_spec("lap") is not None:
        import lap

        found["lapjvx"] = lambda: [lap.lapjvx(frame, extend_cost=True) for frame in finite]
    else:
        print("lapx is not installed: no lapjvx (pip install lapx)")
    return found


def check_same(frames: list[np.ndarray]) -> None:
    for frame, solution in zip(frames, solve_sequence(frames), strict=True):
        best = frame[linear_sum_assignment(frame)].sum()
        if abs(solution.cost - best) > 1e-12 * abs(best):
            raise SystemExit(f"a frame of {frame.shape} costs {solution.cost}, and SciPy finds {best}")


def spread(values: list[float]) -> dict[str, float]:
    found = Spread.of(values)
    return {"median": found.median, "q25": found.q25, "q75": found.q75}


def tell(size: int, result: dict[str, Any]) -> None:
    rows = [
        [
            name,
            f"{1e6 * seconds['median']:.0f}",
            f"{1 / seconds['median']:,.0f}",
            str(Spread(**result["ratio_to_graphmill"][name])),
        ]
        for name, seconds in result["seconds"].items()
    ]
    print_table(f"frames of {size} objects", ["", "µs a frame", "frames/s", "÷ graphmill"], rows)


if __name__ == "__main__":
    main()
