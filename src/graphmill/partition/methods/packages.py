"""KaMinPar and METIS, from their packages: graph and answer are files, and they run in a process of their own.

The program is this module, `python -m graphmill.partition.methods.packages`: the process that started it, method, graph
file, file for the answer, number of parts, seed. There a crash of native code that is not ours, or its being killed for
memory, is an error message of ours and not the end of graphmill.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.python import python_m
from graphmill.partition.methods.files import read_graph_file, write_graph_file
from graphmill.partition.problem import PartitionProblem, Parts
from graphmill.runtime.machine import peak_bytes

PACKAGES: Final = {"kaminpar": "kaminpar", "metis": "pymetis"}
_MOST_SEED: Final = 2**31  # they take C's int
_SHOWN: Final = 2000  # characters of what a partitioner that failed has said last
_PR_SET_PDEATHSIG: Final = 1
_EPSILON: Final = 0.03  # imbalance that they may make of their one weight; what follows evens out to 5 %


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


class PartitionResult(NamedTuple):
    """What a partitioner's process has found."""

    parts: Parts  # -1: of nodes without neighbours
    peak_bytes: int  # of its process


def partition_with(method: Literal["kaminpar", "metis"], problem: PartitionProblem, scratch: Path) -> PartitionResult:
    """Nodes with neighbours in parts. The graph is written below `scratch`, and removed again."""
    require_package(method)
    with tempfile.TemporaryDirectory(dir=scratch, prefix=f".{method}-") as name:
        graph, out = Path(name) / "graph.parhip", Path(name) / "parts"
        cleaned = write_graph_file(graph, problem.graph, problem.weights)
        if problem.num_parts == 1 or len(cleaned.nodes) == 0:
            return PartitionResult(cleaned.of_all_nodes(np.zeros(len(cleaned.nodes), np.int32)), 0)
        seed = problem.rng_seed % _MOST_SEED
        arguments = [method, str(graph), str(out), str(problem.num_parts), str(seed)]
        _run(method, arguments)
        parts = cleaned.of_all_nodes(_read(method, out, len(cleaned.nodes), problem.num_parts))
        return PartitionResult(parts, int(Path(f"{out}.peak").read_text()))


def _run(method: str, arguments: list[str]) -> None:
    """Run the program to its end, or end it: no process is left computing."""
    command = python_m("graphmill.partition.methods.packages", str(os.getpid()), *arguments)
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


def _failed(method: str, code: int, output: str) -> UserError:
    last = output.strip()[-_SHOWN:]
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


def _kaminpar(path: Path, num_parts: int, seed: int) -> NDArray[np.int32]:
    import kaminpar

    kaminpar.reseed(seed)
    graph = kaminpar.load_graph(str(path), kaminpar.GraphFileFormat.PARHIP)
    # With more threads than one, the same seed gives another partition each time.
    found = kaminpar.KaMinPar(1, kaminpar.default_context()).compute_partition(graph, num_parts, _EPSILON)
    return np.asarray(found, dtype=np.int32)


def _metis(path: Path, num_parts: int, seed: int) -> NDArray[np.int32]:
    import pymetis

    graph = read_graph_file(path)
    found = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(graph.indptr, graph.indices),
        vweights=graph.weights,
        recursive=False,  # k-way: recursive bisection balances weights of power-law graphs worse
        options=pymetis.Options(seed=seed, ufactor=round(1000 * _EPSILON)),
    )
    return np.asarray(found.vertex_part, dtype=np.int32)


def main(words: list[str]) -> None:
    """Partition the graph file, and write the part of each of its nodes."""
    parent, method, path, out, num_parts, seed = words
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # who started us died before we could ask to die with it
        return
    partition = {"kaminpar": _kaminpar, "metis": _metis}[method]
    found = partition(Path(path), int(num_parts), int(seed))
    Path(out).write_bytes(found.data)
    Path(f"{out}.peak").write_text(str(peak_bytes()))


if __name__ == "__main__":
    main(sys.argv[1:])
