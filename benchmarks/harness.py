"""What every benchmark here shares: interleaved rounds, paired ratios, foreign load, provenance, one JSON per result.

Peers take turns within one process (A, B, C, A, B, C, …), so a slow minute slows them all; a ratio is taken within a
round, and the median of the rounds' ratios is what counts, with its quartiles.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from graphmill.record.provenance import collect_provenance
from origin import Origin

HERE = Path(__file__).parent
RESULTS = Path(os.environ.get("GRAPHMILL_BENCHMARK_RESULTS", HERE / "results"))  # tests write elsewhere
CACHE = Path(os.environ.get("GRAPHMILL_BENCHMARK_CACHE", HERE.parent / "data" / "benchmarks"))
console = Console(width=120)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles."""

    median: float
    q25: float
    q75: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        q25, median, q75 = statistics.quantiles(values * 2 if len(values) == 1 else values, n=4, method="inclusive")
        return cls(median, q25, q75)

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.q25:.3g} to {self.q75:.3g})"


@dataclass(frozen=True, slots=True)
class Rounds:
    """Seconds of each contender in each round, and the cores that other processes used meanwhile."""

    seconds: dict[str, list[float]]
    foreign_cores: float

    def spread(self, name: str) -> Spread:
        return Spread.of(self.seconds[name])

    def ratio(self, peer: str, ours: str) -> Spread:
        """How many times longer the peer takes, paired round by round."""
        return Spread.of([a / b for a, b in zip(self.seconds[peer], self.seconds[ours], strict=True)])


def interleave(
    contenders: Mapping[str, Callable[[int], object]], *, rounds: int, warmup: int = 2, calls: int = 1
) -> Rounds:
    """Time each contender once a round; each is called with the number of the call, its own warm-up rounds first.

    Of its `calls` in a row only the last is timed: what the caches and the memory hold then is its own, not what the
    contender before it left.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    watch = ForeignLoad()
    for number in range(-warmup, rounds):
        for name, run in contenders.items():
            first = (number + warmup) * calls
            for call in range(first, first + calls):
                begin = time.perf_counter()
                run(call)
            if number >= 0:
                seconds[name].append(time.perf_counter() - begin)
    return Rounds(seconds, watch.cores())


class ForeignLoad:
    """Cores in use by other processes since this was made."""

    def __init__(self) -> None:
        self._since, self._busy, self._own = time.perf_counter(), _busy_s(), _own_s()

    def cores(self) -> float:
        elapsed = time.perf_counter() - self._since
        return max(0.0, (_busy_s() - self._busy - (_own_s() - self._own)) / elapsed)


def _busy_s() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait - getattr(times, "guest", 0) - getattr(times, "guest_nice", 0)


def _own_s() -> float:
    own = psutil.Process().cpu_times()
    return own.user + own.system + own.children_user + own.children_system


def write_result(name: str, result: Mapping[str, Any]) -> Path:
    """Write benchmarks/results/<name>.json: the result beside where, when and with what it was measured."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    provenance = collect_provenance(["python", f"benchmarks/{name}.py"]).model_dump(mode="json")
    path.write_text(json.dumps({"result": result, "provenance": provenance}, indent=2, default=asdict) + "\n")
    console.print(f"[dim]{path}[/dim]")
    return path


def write_entries(name: str, entries: Mapping[str, tuple[Origin, Mapping[str, Any]]]) -> Path:
    """Write entries into benchmarks/results/<name>.json, each beside its own origin; those of other names stay.

    `measured.py --check` refuses a file whose entries come from different code.
    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    kept = stored.get("entries", {})
    kept |= {entry: {"origin": origin, "result": result} for entry, (origin, result) in entries.items()}
    path.write_text(json.dumps({"entries": kept}, indent=2, default=asdict) + "\n")
    console.print(f"[dim]{path}[/dim]")
    return path


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title, title_justify="left", header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
