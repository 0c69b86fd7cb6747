"""Many graphs as one: their nodes and edges one after another in flat arrays, and where each graph begins.

A mini-batch is cut out by gathering rows: no object is made for a graph, however many there are. Edges lie by target,
and a second order by source is kept beside, so that no batch has to be sorted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.base.errors import UserError
from graphmill.graph.arrays import map_array
from graphmill.graph.header import ArrayRecord, Expected

Ids = NDArray[np.int64]
Locals = NDArray[np.int32]
"""Numbers of nodes, or of edges, within one graph."""

Allocate = Callable[[Any, np.dtype[Any]], NDArray[Any]]
"""(shape, dtype) → an array of any content."""
MOST: Final = 2**31 - 1  # nodes, and edges, of a graph or a batch


@dataclass(frozen=True, slots=True)
class GraphSet:
    """`num_graphs` directed graphs, `n` nodes and `e` edges in all; usually mapped, and shared by all ranks of a host.

    The edges of a graph are in the order of their targets, edges to one node as they were given.
    """

    node_offsets: Ids  # [num_graphs + 1], rising
    edge_offsets: Ids  # [num_graphs + 1], rising
    first_in: Locals  # [n]: the first edge to each node, counted within its graph
    sources: Locals  # [e]: each edge's source, counted within its graph
    first_out: Locals  # [n]: where in `edges_by_source` the edges from each node begin, counted within its graph
    edges_by_source: Locals  # [e]: of each graph its edges, counted within it, in the order of their sources
    x: NDArray[np.float32]  # [n, num_features]
    edge_attr: NDArray[np.float32]  # [e, num_edge_features]; 0 columns: there are none

    @classmethod
    def of(
        cls,
        num_nodes: Ids,
        num_edges: Ids,
        edge_index: NDArray[np.integer[Any]],
        x: NDArray[np.float32],
        edge_attr: NDArray[np.float32] | None = None,
    ) -> Self:
        """Make a set of graphs one after another: sizes [num_graphs], `edge_index` [2, e], nodes counted within each.

        `x` [n, num_features], `edge_attr` [e, num_edge_features], in the order of `edge_index`.

        Raises:
            UserError: sizes that do not fit each other, or an edge to a node that its graph does not have.
        """
        node_offsets, edge_offsets = offsets_of(num_nodes), offsets_of(num_edges)
        _refuse_misfits(num_nodes, num_edges, edge_index, x, edge_attr)
        first_node = np.repeat(node_offsets[:-1], num_edges)
        targets = edge_index[1] + first_node
        by_target = np.argsort(targets, kind="stable")  # graphs stay in order: their nodes are
        sources = edge_index[0][by_target]
        by_source = np.argsort(sources + first_node, kind="stable")  # `first_node` is the same in either order
        attr = np.empty((len(sources), 0), np.float32) if edge_attr is None else edge_attr
        return cls(
            node_offsets=node_offsets,
            edge_offsets=edge_offsets,
            first_in=_firsts(targets, node_offsets, edge_offsets),
            sources=sources.astype(np.int32),
            first_out=_firsts(sources + first_node, node_offsets, edge_offsets),
            edges_by_source=(by_source - np.repeat(edge_offsets[:-1], num_edges)).astype(np.int32),
            x=np.ascontiguousarray(x, np.float32),
            edge_attr=np.ascontiguousarray(attr[by_target], np.float32),
        )

    @classmethod
    def mapped(cls, folder: Path, records: Mapping[str, ArrayRecord]) -> Self:
        """The arrays that were stored by their names."""
        return cls(
            **{field.name: map_array(folder / f"{field.name}.npy", records[field.name]) for field in fields(cls)}
        )

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of the set, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def num_graphs(self) -> int:
        """Number of graphs."""
        return len(self.node_offsets) - 1

    def cut(self, graphs: Ids, *, num_threads: int, allocate: Allocate = np.empty) -> "CutGraphs":
        """Cut out the graphs `graphs` [num_graphs of the batch], one after another, as one graph.

        `allocate(shape, dtype)` gives the memory, which need not be fresh: fresh memory costs more than what is copied.
        """
        nodes, node_offsets = _ranges(self.node_offsets, graphs)
        edges, edge_offsets = _ranges(self.edge_offsets, graphs)
        num_nodes, num_edges = int(node_offsets[-1]), int(edge_offsets[-1])
        if max(num_nodes, num_edges) > MOST:
            raise ValueError(f"a batch of {num_nodes} nodes and {num_edges} edges is too large for its numbers")
        first_nodes, first_edges = node_offsets[:-1], edge_offsets[:-1]
        made = CutGraphs(
            node_offsets=node_offsets,
            indptr=allocate(num_nodes + 1, np.dtype(np.int64)),
            sources=allocate(num_edges, np.dtype(np.int32)),
            indptr_by_source=allocate(num_nodes + 1, np.dtype(np.int64)),
            edges_by_source=allocate(num_edges, np.dtype(np.int32)),
            x=allocate((num_nodes, self.x.shape[1]), np.dtype(np.float32)),
            edge_attr=allocate((num_edges, self.edge_attr.shape[1]), np.dtype(np.float32)),
        )
        shifted = _native.copy_ranges_shifted
        for table, out in ((self.first_in, made.indptr), (self.first_out, made.indptr_by_source)):
            shifted(table, nodes, node_offsets, first_edges, out[:-1], num_threads)
            out[-1] = num_edges
        shifted(self.sources, edges, edge_offsets, first_nodes, made.sources, num_threads)
        shifted(self.edges_by_source, edges, edge_offsets, first_edges, made.edges_by_source, num_threads)
        _native.copy_ranges(self.x, nodes, node_offsets, made.x, num_threads)
        if self.edge_attr.shape[1]:
            _native.copy_ranges(self.edge_attr, edges, edge_offsets, made.edge_attr, num_threads)
        return made


@dataclass(frozen=True, slots=True)
class CutGraphs:
    """Graphs of a batch as one graph of `n` nodes and `e` edges, with no path between them; numbers are the batch's."""

    node_offsets: Ids  # [num_graphs + 1]: the nodes of each graph
    indptr: Ids  # [n + 1]: the edges to each node
    sources: Locals  # [e]
    indptr_by_source: Ids  # [n + 1]: where in `edges_by_source` the edges from each node are
    edges_by_source: Locals  # [e]: places in `sources`
    x: NDArray[np.float32]  # [n, num_features]
    edge_attr: NDArray[np.float32]  # [e, num_edge_features]


def arrays_of_graphs(graphs: int, nodes: int, edges: int, features: int, edge_features: int) -> Expected:
    """Dtypes and shapes of the arrays of a set with these numbers of graphs, nodes, edges and columns."""
    return {
        **dict.fromkeys(("node_offsets", "edge_offsets"), ("int64", (graphs + 1,))),
        **dict.fromkeys(("first_in", "first_out"), ("int32", (nodes,))),
        **dict.fromkeys(("sources", "edges_by_source"), ("int32", (edges,))),
        "x": ("float32", (nodes, features)),
        "edge_attr": ("float32", (edges, edge_features)),
    }


def offsets_of(counts: NDArray[np.integer[Any]]) -> Ids:
    """[n] → [n + 1]: where each of n ranges of these lengths begins, and the end.

    >>> offsets_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _firsts(ends: Ids, node_offsets: Ids, edge_offsets: Ids) -> Locals:
    """[n]: of all edges [e], each with the node at one end, the first at each node, if they lie in its order."""
    firsts = offsets_of(np.bincount(ends, minlength=int(node_offsets[-1])))[:-1]
    return (firsts - np.repeat(edge_offsets[:-1], np.diff(node_offsets))).astype(np.int32)


def _ranges(offsets: Ids, graphs: Ids) -> tuple[Ids, Ids]:
    """Where the nodes, or the edges, of graphs begin: at rest [num_graphs], and in a batch [num_graphs + 1]."""
    begins = np.ascontiguousarray(offsets[graphs])
    return begins, offsets_of(offsets[graphs + 1] - begins)


def _refuse_misfits(
    num_nodes: Ids,
    num_edges: Ids,
    edge_index: NDArray[np.integer[Any]],
    x: NDArray[np.float32],
    edge_attr: NDArray[np.float32] | None,
) -> None:
    fix = "count nodes within each graph, from 0, and give one row for each node and edge"
    sizes = {
        "graphs with nodes and with edges": (len(num_nodes), len(num_edges)),
        "nodes and rows of x": (int(num_nodes.sum()), len(x)),
        "edges and columns of edge_index": (int(num_edges.sum()), edge_index.shape[1]),
        "edges and rows of edge_attr": (
            edge_index.shape[1],
            edge_index.shape[1] if edge_attr is None else len(edge_attr),
        ),
    }
    for what, (one, other) in sizes.items():
        if one != other:
            raise UserError(f"{what} are {one:,} and {other:,}", fix=fix)
    for what, counts in (("nodes", num_nodes), ("edges", num_edges)):
        if len(counts) and (counts.min() < 0 or counts.max() > MOST):
            raise UserError(f"a graph has {counts.min()} or {counts.max()} {what}", fix=f"0 to {MOST}")
    outside = (edge_index < 0) | (edge_index >= np.repeat(num_nodes, num_edges))
    if outside.any():
        column = int(np.flatnonzero(outside.any(axis=0))[0])
        graph = int(np.searchsorted(offsets_of(num_edges), column, side="right")) - 1
        raise UserError(
            f"graph {graph} has {num_nodes[graph]:,} nodes, and an edge from {edge_index[0, column]} to"
            f" {edge_index[1, column]}",
            fix=fix,
        )
