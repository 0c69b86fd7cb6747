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

from rich.console import Console
from rich.table import Table

from entries import ONLY, write_entries
from foreign import ForeignLoad
from origin import Origin

# What is started is measured as an installation runs it: with its modules compiled in the warm-up round.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

HERE = Path(__file__).parent
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


def write_result(name: str, result: Mapping[str, Any], origin: Origin | Mapping[str, Any]) -> None:
    """Write a result that has one entry. `origin` is taken when the measurement begins."""
    console.print(f"[dim]{write_entries(name, {ONLY: (origin, result)})}[/dim]")


class Ledger:
    """Who made the runs in a folder: the code, and what others used of the machine in each call that ran some.

    A benchmark that leaves out what is done already would else stamp old runs with new code. The first call writes the
    ledger beside the folder; later ones must come from the same code.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder.parent / f".{folder.name}.ledger.json"
        now = asdict(Origin.now())
        if folder.exists() and self.path.exists():
            self.stored = json.loads(self.path.read_text())
        elif folder.exists():
            raise SystemExit(f"nothing says which code made {folder} → remove it, and measure again")
        else:
            self.stored = {"origin": now, "calls": []}
        if self.stored["origin"]["code"]["checksum"] != now["code"]["checksum"]:
            raise SystemExit(f"{folder} was made by other code → remove it and {self.path}, and measure again")

    def __enter__(self) -> "Ledger":
        self._watch = ForeignLoad()
        self._write()
        return self

    def __exit__(self, *_: object) -> None:
        foreign_s, elapsed_s = self._watch.seconds()
        self.stored["calls"].append({"foreign_s": foreign_s, "elapsed_s": elapsed_s})
        self._write()

    @property
    def origin(self) -> dict[str, Any]:
        """Of the first call, as JSON."""
        return dict(self.stored["origin"])

    def foreign_cores(self) -> float:
        """Over all calls so far."""
        calls = self.stored["calls"]
        return sum(call["foreign_s"] for call in calls) / max(sum(call["elapsed_s"] for call in calls), 1e-9)

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.stored, indent=1) + "\n")


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title, title_justify="left", header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
