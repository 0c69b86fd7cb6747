"""The file that partitioners read: ParHIP's binary format, of a graph that was cleaned on the way.

KaMinPar reads files only. The header is three words: flags, nodes, edges; then the offset in bytes of every node's
neighbours, and one past the last; the neighbours; a weight for each node. All are 64 bits wide, as its wheels want.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.topology import Topology, index_dtype
from graphmill.partition.problem import Ids, Parts, nothing_assigned

_HEADER_BYTES: Final = 24
_NO_EDGE_WEIGHTS: Final = 1  # the other five flags are 0: node weights, and 64 bits for ids and weights
_ENTRIES_AT_A_TIME: Final = 2**20


class Cleaned(NamedTuple):
    """Which nodes of a graph the file has: those with a neighbour other than themselves."""

    nodes: Ids  # ascending
    num_nodes: int  # of the whole graph

    def of_all_nodes(self, parts_of_nodes: NDArray[np.int32]) -> Parts:
        """The parts of all nodes: what was found for these, and -1 for the others."""
        parts = nothing_assigned(self.num_nodes)
        parts[self.nodes] = parts_of_nodes
        return parts


class GraphFile(NamedTuple):
    """What is in such a file, mapped."""

    indptr: Ids  # [num_nodes + 1]
    indices: Ids
    weights: NDArray[np.int64]


def write_graph_file(path: Path, graph: Topology, weights: NDArray[np.int64]) -> Cleaned:
    """Write the nodes that have neighbours, without self-loops and renumbered."""
    degree = np.diff(graph.indptr)
    for start, stop in row_blocks(graph.indptr, _ENTRIES_AT_A_TIME):
        rows, entries = _block(graph, start, stop)
        np.subtract.at(degree, rows[entries == rows], 1)
    nodes = np.flatnonzero(degree)
    number = np.full(graph.num_nodes, -1, dtype=index_dtype(graph.num_nodes))
    number[nodes] = np.arange(len(nodes))
    ends = np.concatenate([[0], np.cumsum(degree[nodes])])
    with path.open("wb") as file:
        file.write(np.array([_NO_EDGE_WEIGHTS, len(nodes), ends[-1]], dtype="<u8").data)
        file.write((_HEADER_BYTES + 8 * (len(nodes) + 1) + 8 * ends).astype("<u8").data)
        del degree, ends
        for start, stop in row_blocks(graph.indptr, _ENTRIES_AT_A_TIME):
            rows, entries = _block(graph, start, stop)
            file.write(number[entries[entries != rows]].astype("<u8").data)
        file.write(weights[nodes].astype("<i8", copy=False).data)
    return Cleaned(nodes, graph.num_nodes)


def read_graph_file(path: Path) -> GraphFile:
    """Map a graph file that `write_graph_file` wrote."""
    words = np.memmap(path, dtype="<i8", mode="r")
    num_nodes, num_edges = int(words[1]), int(words[2])
    first = _HEADER_BYTES // 8
    indptr = (words[first : first + num_nodes + 1] - (_HEADER_BYTES + 8 * (num_nodes + 1))) // 8
    neighbours = first + num_nodes + 1
    return GraphFile(
        np.asarray(indptr),
        np.asarray(words[neighbours : neighbours + num_edges]),
        np.asarray(words[neighbours + num_edges : neighbours + num_edges + num_nodes]),
    )


def row_blocks(indptr: Ids, most_entries: int, most_rows: int | None = None) -> Iterator[tuple[int, int]]:
    """Ranges of consecutive rows with at most `most_entries` entries and `most_rows` rows; one row may have more."""
    num_rows, start = len(indptr) - 1, 0
    while start < num_rows:
        stop = int(np.searchsorted(indptr, indptr[start] + most_entries, side="right")) - 1
        if most_rows is not None:
            stop = min(stop, start + most_rows)
        stop = min(max(stop, start + 1), num_rows)
        yield start, stop
        start = stop


def _block(graph: Topology, start: int, stop: int) -> tuple[Ids, NDArray[np.int32] | NDArray[np.int64]]:
    """The row and the neighbour of each entry of some rows."""
    rows = np.repeat(np.arange(start, stop), np.diff(graph.indptr[start : stop + 1]))
    return rows, graph.indices[graph.indptr[start] : graph.indptr[stop]]
