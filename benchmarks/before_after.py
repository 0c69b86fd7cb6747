"""Is this version as fast as that one? The same work in two installations of graphmill, in turns.

    python benchmarks/before_after.py --before PYTHON --after PYTHON [--workloads NAME …] [--rounds 9] [--sessions 3]
        [--graph reddit_shaped] [--threads 2] [--bar 0.98]

Workloads: the raw sampler and the blocks that training samples (both on one thread), a step of GraphSAGE, of DCRNN, of
GATv2 with features of edges, the start of commands, `graphmill submit` on a dev cluster (root, Slurm); whole commands
on small data: a training of one short epoch, of a few epochs of CAN windows, of two ranks on four parts, and `list` of
200 runs, which are copies of one. Each installation has a process of its own for each workload; one works while the
other waits, and who comes first changes from round to round. A session begins with new processes, because two processes
of the same program differ in where their memory lies: by a percent or two, DCRNN's step by up to eight, so it wants a
dozen sessions. `before ÷ after` is taken within a round: above 1, the new one is faster. Exit status 1 where a median
is below the bar. With the same PYTHON twice it measures its own uncertainty.

CPU time stands beside wall-clock time: it moves less where others use the machine.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from graphs import CACHE, load
from harness import ForeignLoad, Spread, print_table, write_entries
from origin import Origin, code_of
from submit import ENVIRONMENT_NAME, Submitter

CHILD = Path(__file__).parent / "peers" / "takes_turns.py"
CALLS = {"sampler": 60, "blocks": 40, "sage_step": 4, "dcrnn_step": 1, "attention_step": 4}  # in a turn
COMMANDS = {
    "import": ["-c", "import graphmill.cli"],
    "help": ["-m", "graphmill.cli", "--help"],
    "train_help": ["-m", "graphmill.cli", "train", "--help"],
    "datasets": ["-m", "graphmill.cli", "datasets"],
}
TINY = (("prepare", "synthetic/motifs", "-o", "num_graphs=100"),)
IN_PARTS = (
    ("prepare", "debian-packages"),
    ("partition", "debian-packages", "--num-parts", "4", "--method", "kaminpar"),
)
RUNS = {  # what is prepared, and the training that is timed
    "train": (TINY, ("motifs-gin", "-O", "train.epochs=1")),
    "can_epochs": ((("prepare", "synthetic/can"),), ("can-gat", "-O", "train.epochs=3")),
    "parts_epochs": (IN_PARTS, ("debian-packages-parts", "-O", "train.epochs=2")),
}
LISTED = 200
WORKLOADS = (*CALLS, *COMMANDS, *RUNS, "list", "submit")
SIDES = ("before", "after")


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds a call."""

    wall_s: float
    cpu_s: float


class Side(Protocol):
    """One installation at one workload."""

    def turn(self, number: int) -> Turn: ...
    def close(self) -> None: ...


class Worker:
    """A process that works when it is asked to, and sleeps otherwise. `command` speaks as peers/takes_turns.py."""

    def __init__(self, command: list[str], calls: int) -> None:
        environ = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}  # threads that spin would take the other's cores
        self.command, self.calls = command, calls
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environ)
        self.facts = self._read()

    def turn(self, number: int) -> Turn:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number * (self.calls + 1)} {self.calls}\n")
        self.process.stdin.flush()
        return Turn(**self._read())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _read(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(self.command)} ended with exit status {self.process.wait()}")
        return json.loads(line)


class Command:
    """A program that is started anew in each turn."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.turn(0)  # compiled modules and the page cache

    def turn(self, number: int) -> Turn:
        del number
        cpu, began = _children_s(), time.perf_counter()
        subprocess.run(self.command, check=True, capture_output=True)
        return Turn(time.perf_counter() - began, _children_s() - cpu)

    def close(self) -> None:
        pass


class Train:
    """Whole trainings, each a run of its own, in a folder where the data were prepared."""

    def __init__(self, python: str, name: str, folder: Path) -> None:
        self.graphmill, self.folder = [python, "-m", "graphmill.cli"], folder
        prepared, self.training = RUNS[name]
        for words in prepared:
            self._call(*words)

    def turn(self, number: int) -> Turn:
        cpu, began = _children_s(), time.perf_counter()
        self._call("train", *self.training, "--run-id", f"turn-{number}")
        return Turn(time.perf_counter() - began, _children_s() - cpu)

    def close(self) -> None:
        pass

    def _call(self, *words: str) -> None:
        subprocess.run([*self.graphmill, *words], check=True, capture_output=True, cwd=self.folder)


class ListRuns(Train):
    """`graphmill list` of copies of one run."""

    def __init__(self, python: str, folder: Path) -> None:
        super().__init__(python, "train", folder)
        self._call("train", *self.training, "--run-id", "turn-0")
        for number in range(1, LISTED):
            shutil.copytree(folder / "logs" / "turn-0", folder / "logs" / f"turn-{number}")

    def turn(self, number: int) -> Turn:
        del number
        cpu, began = _children_s(), time.perf_counter()
        self._call("list")
        return Turn(time.perf_counter() - began, _children_s() - cpu)


class Submit:
    """Beyond what sbatch itself takes."""

    def __init__(self, python: str, folder: Path) -> None:
        self.submitter = Submitter(python, folder)
        self.submitter.submit("warm-up")

    def turn(self, number: int) -> Turn:
        parts = self.submitter.submit(f"r{number}")
        return Turn(parts["beyond sbatch"], parts["CPU time of it all"])

    def close(self) -> None:
        pass


def take_turns(make: Mapping[str, Callable[[], Side]], *, rounds: int, sessions: int) -> dict[str, object]:
    """Measure; `make` starts a side. Returns the spread of seconds of each, and of before ÷ after."""
    turns: dict[str, list[Turn]] = {side: [] for side in make}
    watch = ForeignLoad()
    for _ in range(sessions):
        with ExitStack() as stack:
            sides = {name: start() for name, start in make.items()}
            for side in sides.values():
                stack.callback(side.close)
            for side in sides.values():
                side.turn(0)
            for number in range(1, rounds + 1):
                for name in SIDES if number % 2 else SIDES[::-1]:
                    turns[name].append(sides[name].turn(number))
    return summary(turns, rounds=rounds) | {"foreign_cores": watch.cores(), "rounds": rounds, "sessions": sessions}


def summary(turns: Mapping[str, list[Turn]], *, rounds: int) -> dict[str, object]:
    """Medians, quartiles and paired ratios of the turns of both sides, round by round, session after session."""
    found: dict[str, object] = {}
    for kind in ("wall_s", "cpu_s"):
        seconds = {side: [getattr(turn, kind) for turn in turns[side]] for side in SIDES}
        ratios = [a / b for a, b in zip(seconds["before"], seconds["after"], strict=True)]
        by_session = [Spread.of(ratios[at : at + rounds]).median for at in range(0, len(ratios), rounds)]
        found[kind] = {
            **{side: Spread.of(values) for side, values in seconds.items()},
            "before_over_after": Spread.of(ratios),
            "by_session": by_session,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, metavar="PYTHON")
    parser.add_argument("--after", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=WORKLOADS, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--graph", default="reddit_shaped", help="of the step; the sampler runs on it, too")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bar", type=float, default=0.98)
    options = parser.parse_args()
    if "submit" in options.workloads and ENVIRONMENT_NAME not in os.environ:
        start = [sys.executable, "-m", "graphmill.cli", "devcluster", "run", "--no-ssh", "--no-accounting", "--"]
        sys.exit(subprocess.run([*start, sys.executable, *sys.argv], check=False).returncode)
    pythons = {side: str(Path(getattr(options, side)).absolute()) for side in SIDES}
    codes = {side: asdict(code_of(*_package(python))) for side, python in pythons.items()}
    entries = {}
    for name in options.workloads:
        origin = Origin.now()
        with tempfile.TemporaryDirectory() as folder:
            found = take_turns(
                sides(name, pythons, Path(folder), options), rounds=options.rounds, sessions=options.sessions
            )
        entries[name] = (origin, {**found, **codes, "graph": options.graph, "threads": options.threads})
        report(name, found)
    write_entries("before_after", entries)
    slower = [name for name, (_, found) in entries.items() if found["wall_s"]["before_over_after"].median < options.bar]
    if slower:
        sys.exit(f"before ÷ after is below {options.bar}: {', '.join(slower)}")


def sides(
    name: str, pythons: Mapping[str, str], folder: Path, options: argparse.Namespace
) -> dict[str, Callable[[], Side]]:
    """What starts each side of a workload."""

    def start(side: str) -> Side:
        python = pythons[side]
        if name == "submit":
            return Submit(python, Path(tempfile.mkdtemp(dir=folder)))
        if name in COMMANDS:
            return Command([python, *COMMANDS[name]])
        if name in RUNS:
            return Train(python, name, Path(tempfile.mkdtemp(dir=folder)))
        if name == "list":
            return ListRuns(python, Path(tempfile.mkdtemp(dir=folder)))
        return Worker(
            [python, str(CHILD), name, str(CACHE / f"{options.graph}.npz"), str(options.threads)], CALLS[name]
        )

    if name in {"sampler", "blocks", "sage_step"}:
        load(options.graph)  # made where it is not there yet
    return {side: lambda side=side: start(side) for side in SIDES}  # type: ignore[misc]


def report(name: str, found: Mapping) -> None:
    rows = [
        [what, str(found[kind]["before"]), str(found[kind]["after"]), str(found[kind]["before_over_after"]), sessions]
        for what, kind in (("wall clock s", "wall_s"), ("CPU s", "cpu_s"))
        for sessions in [" ".join(f"{ratio:.3f}" for ratio in found[kind]["by_session"])]
    ]
    title = f"{name}: {found['sessions']} sessions of {found['rounds']} rounds"
    title += f"; others used {found['foreign_cores']:.2f} cores"
    print_table(title, ["", "before", "after", "before ÷ after (quartiles)", "by session"], rows)


def _package(python: str) -> tuple[Path, str]:
    """Where the graphmill of an installation is, and the instruction set that its core picks."""
    code = "import graphmill, graphmill._native as n; print(graphmill.__file__); print(n.isa())"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, cwd="/")
    file, isa = done.stdout.splitlines()
    return Path(file).parent, isa


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
