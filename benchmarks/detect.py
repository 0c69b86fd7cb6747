"""Time of `graphmill detect` for one window on one core, as its frames arrive, by model.

    python benchmarks/detect.py --capture CAPTURE --runs RUN_FOLDER … [--windows 400] [--rounds 3]

The process is held to one core. A window's lines arrive together; its time is from there to its verdict: reading the
lines, building the graph, the score, and the causes if it is an alarm. Beside each model stand a detector that scores
nothing (what reading and building take: the floor of every model), and what a whole capture takes per window.
Published: 1.15 ms a window on one core (MIDS, see the seeds digest).
"""

import argparse
import gzip
import io
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.record.run_folder import RunFolder
from graphmill.tasks.intrusion.data.windows import WindowGraphs
from graphmill.tasks.intrusion.live import CauseWeights, LiveWindows
from graphmill.tasks.intrusion.page import IntrusionPlan
from graphmill.tasks.task import Detector
from graphmill.train.detect import detector_of
from harness import ForeignLoad, Spread, print_table, write_result
from origin import Origin

PUBLISHED_MS = 1.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capture", type=Path, required=True)
    parser.add_argument("--runs", type=Path, nargs="+", required=True, metavar="RUN_FOLDER")
    parser.add_argument("--windows", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    origin, watch = Origin.now(), ForeignLoad()
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    plans = {folder: RunFolder.open(folder).read_plan().task for folder in options.runs}
    size, stride = shape_of(plans.values())
    lines = lines_of(options.capture, size + stride * options.windows + 1)
    found: dict[str, dict[str, Any]] = {}
    for number in range(options.rounds):
        for name, make in contenders(plans, size, stride):
            entry = found.setdefault(name, {"arriving_ms": [], "whole_ms": [], "num_alarms": 0})
            times, alarms = arriving(make(), lines, size, stride)
            entry["arriving_ms"] += times[len(times) // 10 :] if number == 0 else times  # the first are warm-up
            entry["whole_ms"].append(whole(make(), lines))
            entry["num_alarms"] = alarms
    result = {
        "models": {name: {**entry, **summary(entry)} for name, entry in found.items()},
        "published_ms": PUBLISHED_MS,
        "num_windows": options.windows,
        "foreign_cores": watch.cores(),
    }
    write_result("detect", result, origin)
    print_table(
        f"ms a window, one core of {origin.processor.name}; published {PUBLISHED_MS}",
        ["model", "arriving: median (quartiles)", "99 %", "whole capture", "alarms"],
        [
            [
                name,
                str(Spread(**each["arriving"])),
                f"{each['p99']:.3g}",
                f"{each['whole']:.3g}",
                f"{each['num_alarms']}/{options.windows}",
            ]
            for name, each in result["models"].items()
        ],
    )


def summary(entry: dict[str, Any]) -> dict[str, Any]:
    spread = Spread.of(entry["arriving_ms"])
    return {
        "arriving": {"median": spread.median, "q25": spread.q25, "q75": spread.q75},
        "p99": float(np.quantile(entry.pop("arriving_ms"), 0.99)),
        "whole": float(np.median(entry["whole_ms"])),
    }


def shape_of(plans: Iterable[Any]) -> tuple[int, int]:
    """Frames of a window, and from one to the next, which must be those of all runs."""
    shapes = {(plan.dataset.window, plan.dataset.stride) for plan in plans if isinstance(plan, IntrusionPlan)}
    if len(shapes) != 1:
        raise SystemExit(f"runs of windows of one shape are needed, and these have {sorted(shapes)}")
    return shapes.pop()


def lines_of(capture: Path, num_frames: int) -> list[bytes]:
    """The header and as many frames."""
    with (gzip.open if capture.suffix == ".gz" else open)(capture, "rb") as file:
        lines = [line for line, _ in zip(file, range(num_frames + 1), strict=False)]
    if len(lines) <= num_frames:
        raise SystemExit(f"{capture} has {len(lines) - 1:,} frames, and {num_frames:,} are needed → --windows")
    return lines


def contenders(plans: dict[Path, Any], size: int, stride: int) -> Iterator[tuple[str, Any]]:
    yield "nothing", lambda: LiveWindows(zeros, unweighed, 1.0, size, stride)
    for folder, plan in plans.items():
        scale = getattr(plan.model, "scale", "")
        name = f"{plan.model.kind} {scale}".strip()
        name += "" if getattr(plan.model, "edge_features", True) else ", no edge features"
        yield name, lambda folder=folder: detector_of(RunFolder.open(folder), "best")


def zeros(graphs: WindowGraphs) -> Any:
    return np.zeros(len(graphs))


def unweighed(graphs: WindowGraphs) -> CauseWeights:
    nodes, edges = np.zeros(int(graphs.num_nodes.sum())), np.zeros(int(graphs.num_edges.sum()))
    return CauseWeights(nodes, edges, np.zeros((len(graphs), 0)), np.zeros((2, 0), np.uint32))


class Arriving(io.BytesIO):
    """A pipe that gets the lines of one window at a time, and notes when."""

    def __init__(self, lines: list[bytes], size: int, stride: int) -> None:
        super().__init__()
        ends = range(1 + size + 1, len(lines) + 1, stride)  # the header; and a frame behind the window
        self.parts = [b"".join(lines[: ends[0]]), *(b"".join(lines[end - stride : end]) for end in ends[1:])]
        self.given: list[float] = []

    def read1(self, _size: int | None = -1) -> bytes:
        if len(self.given) == len(self.parts):
            return b""
        self.given.append(time.perf_counter())
        return self.parts[len(self.given) - 1]

    read = read1


def arriving(detector: Detector, lines: list[bytes], size: int, stride: int) -> tuple[list[float], int]:
    """Milliseconds of each window, from the arrival of its last line to its verdict; and the number of alarms."""
    pipe = Arriving(lines, size, stride)
    took, alarms = [], 0
    for verdict in detector.verdicts(pipe, "capture", layout="auto", threshold=threshold_of(detector)):
        took.append(1e3 * (time.perf_counter() - pipe.given[verdict.number]))
        alarms += verdict.is_alarm
    return took, alarms


def whole(detector: Detector, lines: list[bytes]) -> float:
    """Milliseconds of a window where all frames are there from the beginning."""
    begin = time.perf_counter()
    count = sum(1 for _ in detector.verdicts(io.BytesIO(b"".join(lines)), "capture", layout="auto", threshold=2.0))
    return 1e3 * (time.perf_counter() - begin) / count


def threshold_of(detector: Detector) -> float:
    found = detector.threshold
    return 1.0 if found is None else found


if __name__ == "__main__":
    main()
