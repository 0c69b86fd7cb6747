"""Frames/s of reading a CAN capture, of making its windows' graphs, and of both, beside pandas' read_csv and groupby.

    python benchmarks/can_reading.py CAPTURE.csv [--rounds 5]

CAPTURE has the columns timestamp, arbitration_id, data_field, attack. pandas is no dependency: without it the peer is
left out, and that is said. The peer makes counts of nodes and of edges of a window and no other feature, so it does
less. Times of the wall, and of the processor, which a busy machine disturbs less.
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from graphmill.tasks.intrusion.data.captures import iterate, read_capture
from graphmill.tasks.intrusion.data.frames import Problems
from graphmill.tasks.intrusion.data.windows import Leftover, graphs_of


def with_pandas(path: Path) -> None:
    import pandas as pd

    frames = pd.read_csv(path, dtype={"arbitration_id": str, "data_field": str})
    frames["next"] = frames["arbitration_id"].shift(-1)
    frames["window"] = frames.index // 100
    frames.groupby(["window", "arbitration_id"]).size()
    frames.groupby(["window", "arbitration_id", "next"]).size()
    frames.groupby("window")["attack"].max()


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    frames, problems = read_capture(asked.capture)
    print(f"{len(frames):,} frames; {str(problems) or 'no bad line'}; {processor()}")
    ways: dict[str, Callable[[], object]] = {
        "read": lambda: [len(part) for part in iterate(asked.capture, Problems())],
        "windows": lambda: [len(part) for part in graphs_of([frames], Leftover())],
        "whole": lambda: [len(part) for part in graphs_of(iterate(asked.capture, Problems()), Leftover())],
    }
    if importlib.util.find_spec("pandas"):
        ways["pandas"] = lambda: with_pandas(asked.capture)
    else:
        print("pandas is not installed: no peer")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(asked.rounds + 1):
        for name, way in ways.items():
            begin, begin_cpu = time.perf_counter(), time.process_time()
            way()
            times[name].append((time.perf_counter() - begin, time.process_time() - begin_cpu))
    for name, measured in times.items():
        wall, cpu = (statistics.median(column) for column in zip(*measured[1:], strict=True))
        print(f"{name:8} {len(frames) / wall:12,.0f} frames/s  {len(frames) / cpu:12,.0f} frames/s of processor time")


if __name__ == "__main__":
    main()
