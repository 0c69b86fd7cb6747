"""KaMinPar and METIS, from their packages: graph and answer are files, and they run in a process of their own."""

import os
import signal
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.python import python_m
from graphmill.partition.methods.files import write_graph_file
from graphmill.partition.problem import PartitionProblem, Parts

PACKAGES: Final = {"kaminpar": "kaminpar", "metis": "pymetis"}
_MOST_SEED: Final = 2**31  # they take C's int
_SHOWN: Final = 2000  # characters of what a partitioner that failed has said last


def is_installed(method: str) -> bool:
    """Whether the method's package is there, or it needs none."""
    return method not in PACKAGES or find_spec(PACKAGES[method]) is not None


def require_package(method: str) -> None:
    """`UserError` that says what to install, if it is not there."""
    if not is_installed(method):
        raise UserError(
            f"--method {method} needs the package {PACKAGES[method]}, which is not installed",
            fix="pip install 'graphmill[partition]', or --method ldg, which needs nothing",
        )


class Found(NamedTuple):
    """What a partitioner's process has found."""

    parts: Parts  # -1: of nodes without neighbours
    peak_bytes: int  # of its process


def partition_with(method: Literal["kaminpar", "metis"], problem: PartitionProblem, scratch: Path) -> Found:
    """Nodes with neighbours in parts. The graph is written below `scratch`, and removed again."""
    require_package(method)
    with tempfile.TemporaryDirectory(dir=scratch, prefix=f".{method}-") as name:
        graph, out = Path(name) / "graph.parhip", Path(name) / "parts"
        cleaned = write_graph_file(graph, problem.graph, problem.weights)
        if problem.num_parts == 1 or len(cleaned.nodes) == 0:
            return Found(cleaned.whole(np.zeros(len(cleaned.nodes), np.int32)), 0)
        seed = problem.rng_seed % _MOST_SEED
        arguments = [method, str(graph), str(out), str(problem.num_parts), str(seed)]
        _run(method, arguments)
        parts = cleaned.whole(_read(method, out, len(cleaned.nodes), problem.num_parts))
        return Found(parts, int(Path(f"{out}.peak").read_text()))


def _run(method: str, arguments: list[str]) -> None:
    """Run the program to its end, or end it: no process is left computing."""
    command = python_m("graphmill.partition.methods.program", str(os.getpid()), *arguments)
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    try:
        said, _ = process.communicate()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise _failed(method, process.returncode, said)


def _failed(method: str, code: int, said: str) -> UserError:
    last = said.strip()[-_SHOWN:]
    told = f"; it said: {last}" if last else ""
    fix = "try --method ldg, which needs no partitioner, or another --seed"
    if code < 0:
        name = signal.Signals(-code).name
        why = ", could be by the kernel because memory ran out" if -code == signal.SIGKILL else ""
        return UserError(f"{method} was ended by {name}{why}{told}", fix=f"{fix}, or a machine with more memory")
    return UserError(f"{method} ended with status {code}{told}", fix=fix)


def _read(method: str, path: Path, num_nodes: int, num_parts: int) -> NDArray[np.int32]:
    found = np.fromfile(path, dtype=np.int32) if path.exists() else np.empty(0, np.int32)
    if len(found) != num_nodes or found.min() < 0 or found.max() >= num_parts:
        raise UserError(
            f"{method} has not put each of {num_nodes} nodes into one of {num_parts} parts",
            fix="try --method ldg, or another --seed",
        )
    return found
