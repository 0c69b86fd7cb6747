"""Many graphs as one: their nodes and edges one after another in flat arrays, and where each graph begins.

A mini-batch is cut out by gathering rows: no object is made for a graph, however many there are. Edges lie by target,
and a second order by source is kept beside, so that no batch has to be sorted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.base.errors import UserError
from graphmill.graph.arrays import map_array, write_array
from graphmill.graph.header import ArrayRecord

Ids = NDArray[np.int64]
Locals = NDArray[np.int32]
"""Numbers of nodes, or of edges, within one graph."""

MOST_IN_A_GRAPH = 2**31 - 1  # nodes, and edges


@dataclass(frozen=True, slots=True)
class GraphSet:
    """`num_graphs` directed graphs, `n` nodes and `e` edges in all; usually mapped, and shared by all ranks of a host.

    The edges of a graph are in the order of their targets, edges to one node as they were given.
    """

    node_offsets: Ids  # [num_graphs + 1], rising
    edge_offsets: Ids  # [num_graphs + 1], rising
    in_degrees: Locals  # [n]: edges to each node
    sources: Locals  # [e]: each edge's source, counted within its graph
    out_degrees: Locals  # [n]: edges from each node
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
        """From graphs one after another: sizes [num_graphs], `edge_index` [2, e] with nodes counted within each graph.

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
            in_degrees=np.bincount(targets, minlength=len(x)).astype(np.int32),
            sources=sources.astype(np.int32),
            out_degrees=np.bincount(edge_index[0] + first_node, minlength=len(x)).astype(np.int32),
            edges_by_source=(by_source - np.repeat(edge_offsets[:-1], num_edges)).astype(np.int32),
            x=np.ascontiguousarray(x, np.float32),
            edge_attr=np.ascontiguousarray(attr[by_target], np.float32),
        )

    @classmethod
    def mapped(cls, folder: Path, records: Mapping[str, ArrayRecord]) -> Self:
        """The arrays that `write` wrote."""
        return cls(
            **{field.name: map_array(folder / f"{field.name}.npy", records[field.name]) for field in fields(cls)}
        )

    def write(self, folder: Path) -> dict[str, ArrayRecord]:
        """One .npy file for each array."""
        return {
            field.name: write_array(folder / f"{field.name}.npy", getattr(self, field.name)) for field in fields(self)
        }

    @property
    def num_graphs(self) -> int:
        """How many there are."""
        return len(self.node_offsets) - 1

    def cut(self, graphs: Ids, *, num_threads: int) -> "CutGraphs":
        """These graphs [num_graphs of the batch], one after another, as one graph."""
        first_nodes, num_nodes = _begins_and_counts(self.node_offsets, graphs)
        first_edges, num_edges = _begins_and_counts(self.edge_offsets, graphs)
        nodes, edges = ranges(first_nodes, num_nodes), ranges(first_edges, num_edges)
        node_offsets, edge_offsets = offsets_of(num_nodes), offsets_of(num_edges)
        first_node = np.repeat(node_offsets[:-1], num_edges)
        x = np.empty((len(nodes), self.x.shape[1]), np.float32)
        edge_attr = np.empty((len(edges), self.edge_attr.shape[1]), np.float32)
        _native.gather_rows(self.x, nodes, x, num_threads)
        if edge_attr.shape[1]:
            _native.gather_rows(self.edge_attr, edges, edge_attr, num_threads)
        return CutGraphs(
            node_offsets=node_offsets,
            indptr=offsets_of(self.in_degrees[nodes]),
            sources=self.sources[edges] + first_node,
            indptr_by_source=offsets_of(self.out_degrees[nodes]),
            edges_by_source=np.add(
                self.edges_by_source[edges], np.repeat(edge_offsets[:-1], num_edges), dtype=np.int64
            ),
            x=x,
            edge_attr=edge_attr,
        )


@dataclass(frozen=True, slots=True)
class CutGraphs:
    """Graphs of a batch as one graph of `n` nodes and `e` edges, with no path between them; numbers are the batch's."""

    node_offsets: Ids  # [num_graphs + 1]: the nodes of each graph
    indptr: Ids  # [n + 1]: the edges to each node
    sources: Ids  # [e]
    indptr_by_source: Ids  # [n + 1]: where in `edges_by_source` the edges from each node are
    edges_by_source: Ids  # [e]: places in `sources`
    x: NDArray[np.float32]  # [n, num_features]
    edge_attr: NDArray[np.float32]  # [e, num_edge_features]


def offsets_of(counts: NDArray[np.integer[Any]]) -> Ids:
    """[n] → [n + 1]: where each of so many things begins, and the end.

    >>> offsets_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def ranges(begins: Ids, counts: Ids) -> Ids:
    """All numbers of ranges one after another.

    >>> ranges(np.array([10, 4]), np.array([3, 2])).tolist()
    [10, 11, 12, 4, 5]
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(begins - (ends - counts), counts) + np.arange(total)


def _begins_and_counts(offsets: Ids, graphs: Ids) -> tuple[Ids, Ids]:
    begins = np.asarray(offsets[graphs])
    return begins, np.asarray(offsets[graphs + 1]) - begins


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
        if len(counts) and (counts.min() < 0 or counts.max() > MOST_IN_A_GRAPH):
            raise UserError(f"a graph has {counts.min()} or {counts.max()} {what}", fix=f"0 to {MOST_IN_A_GRAPH}")
    outside = (edge_index < 0) | (edge_index >= np.repeat(num_nodes, num_edges))
    if outside.any():
        column = int(np.flatnonzero(outside.any(axis=0))[0])
        graph = int(np.searchsorted(offsets_of(num_edges), column, side="right")) - 1
        raise UserError(
            f"graph {graph} has {num_nodes[graph]:,} nodes, and an edge from {edge_index[0, column]} to"
            f" {edge_index[1, column]}",
            fix=fix,
        )
