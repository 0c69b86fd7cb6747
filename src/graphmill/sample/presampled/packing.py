"""One sampled neighbourhood as few bytes, and back to the bit.

In a row: node ids, local ids of the edges' sources, edge ids, and of each row how many edges it has, which is one byte
where no fan-out is above 255. How many there are of each stands in the index of the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.sampled import NodeIds, Sampled, SeedIds, Seeds
from graphmill.graph.topology import index_dtype
from graphmill.sample.neighbor import cut_into_blocks

_PER_HOP: Final = 3  # nodes that it adds, its edges, its rows


@dataclass(frozen=True, slots=True)
class Form:
    """How the neighbourhoods of a schedule are stored: the same for all of them."""

    node_ids: np.dtype[Any]
    edge_ids: np.dtype[Any] | None  # None: they are not stored, and come back empty
    degrees: np.dtype[Any]
    num_hops: int
    resample: bool  # see NeighborSampler

    @classmethod
    def of(
        cls, num_nodes: int, num_entries: int, fanouts: Sequence[int], *, resample: bool, with_edge_ids: bool
    ) -> "Form":
        """The narrowest that holds whatever can be sampled of a topology of so many nodes and entries."""
        edges = index_dtype(num_entries) if with_edge_ids else None
        degrees = np.min_scalar_type(num_entries if -1 in fanouts else max(fanouts))
        return cls(index_dtype(num_nodes), edges, degrees, len(fanouts), resample)

    @property
    def num_counts(self) -> int:
        """Numbers that the index has of a neighbourhood."""
        return 1 + _PER_HOP * self.num_hops

    def as_text(self) -> dict[str, Any]:
        """For the header of a file."""
        return {
            "node_ids": self.node_ids.str,
            "edge_ids": None if self.edge_ids is None else self.edge_ids.str,
            "degrees": self.degrees.str,
            "num_hops": self.num_hops,
            "resample": self.resample,
        }

    @classmethod
    def from_text(cls, known: Mapping[str, Any]) -> "Form":
        """The inverse of `as_text`."""
        edge_ids = None if known["edge_ids"] is None else np.dtype(known["edge_ids"])
        return cls(
            np.dtype(known["node_ids"]), edge_ids, np.dtype(known["degrees"]), known["num_hops"], known["resample"]
        )


def packed(sampled: Sampled, form: Form) -> tuple[bytes, NDArray[np.int64]]:
    """Its bytes, and its counts [form.num_counts]: seeds, then of each hop nodes added, edges, rows."""
    hops = sampled.blocks[::-1]
    if form.resample:
        degrees = np.concatenate([np.diff(block.indptr) for block in hops])
        num_rows = [block.num_rows for block in hops]
    else:  # all blocks are parts of the first layer's
        degrees = np.diff(sampled.blocks[0].indptr)
        num_rows = np.diff([0, *(block.num_rows for block in hops)]).tolist()
    pieces = [sampled.node_ids.astype(form.node_ids), sampled.blocks[0].indices]
    if form.edge_ids is not None:
        pieces.insert(0, sampled.edge_ids.astype(form.edge_ids))
    pieces.append(degrees.astype(form.degrees))
    per_hop = zip(sampled.num_nodes_per_hop[1:], sampled.num_edges_per_hop, num_rows, strict=True)
    counts = np.array([len(sampled.seeds.ids), *(count for hop in per_hop for count in hop)], dtype=np.int64)
    return b"".join(piece.tobytes() for piece in pieces), counts


def num_bytes_of(counts: NDArray[np.int64], form: Form) -> int:
    """Of a neighbourhood with these counts."""
    return sum(count * dtype.itemsize for count, dtype in _pieces(counts, form))


def unpacked(buffer: NDArray[np.uint8], counts: NDArray[np.int64], form: Form, epoch: int, step: int) -> Sampled:
    """The neighbourhood of `buffer` [num_bytes_of(counts)], which it goes on to use."""
    arrays, begin = [], 0
    for count, dtype in _pieces(counts, form):
        end = begin + count * dtype.itemsize
        arrays.append(buffer[begin:end].view(dtype))
        begin = end
    edge_ids = arrays.pop(0).astype(np.int64, copy=False) if form.edge_ids is not None else np.empty(0, np.int64)
    node_ids, indices, degrees = arrays
    indptr = np.zeros(len(degrees) + 1, dtype=np.int64)
    np.cumsum(degrees, out=indptr[1:])
    nodes, edges, rows = counts[1:].reshape(form.num_hops, _PER_HOP).T.tolist()
    ids, num_seeds = NodeIds(node_ids.astype(np.int64, copy=False)), int(counts[0])
    return Sampled(
        seeds=Seeds(epoch, step, SeedIds(ids[:num_seeds])),
        node_ids=ids,
        blocks=cut_into_blocks(indptr, indices, rows, resample=form.resample),
        edge_ids=edge_ids,
        num_nodes_per_hop=(num_seeds, *nodes),
        num_edges_per_hop=tuple(edges),
    )


def _pieces(counts: NDArray[np.int64], form: Form) -> list[tuple[int, np.dtype[Any]]]:
    """Length and dtype of each array, in order; widest first, so that each is aligned."""
    nodes, edges, rows = counts[1:].reshape(form.num_hops, _PER_HOP).sum(axis=0).tolist()
    pieces = [(int(counts[0]) + nodes, form.node_ids), (edges, np.dtype(np.int32)), (rows, form.degrees)]
    return pieces if form.edge_ids is None else [(edges, form.edge_ids), *pieces]
