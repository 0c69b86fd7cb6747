"""The program that a partitioner runs in, `python -m graphmill.partition.methods.program`.

Its arguments: the process that started it, method, graph file, file for the answer, number of parts, seed.
In a process of its own, a crash of native code that is not ours, or its being killed for memory, is an error message of
ours and not the end of graphmill.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.partition.methods.files import read_graph_file
from graphmill.runtime.machine import peak_bytes

_PR_SET_PDEATHSIG: Final = 1
_EPSILON: Final = 0.03  # imbalance that they may make of their one weight; what follows evens out to 5 %


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
