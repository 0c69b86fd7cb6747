"""One sampled neighbourhood as few bytes, and the identical one back.

In a row: node ids, local ids of the edges' sources, edge ids, and of each row how many edges it has, which is one byte
where no fan-out is above 255. How many there are of each stands in the index of the file.

Checksums tell damage, not who wrote the file: what leads out of the arrays that it is of is refused before native code
or torch, which follow it without a look, get to see it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.sampled import NodeIds, Sampled, SeedIds, Seeds
from graphmill.graph.topology import index_dtype
from graphmill.sample.neighbor import cut_into_blocks

_PER_HOP: Final = 3  # nodes that it adds, its edges, its rows
_OF_IDS: Final = (np.dtype("<i4"), np.dtype("<i8"))
_OF_DEGREES: Final = tuple(np.dtype(f"<u{size}") for size in (1, 2, 4, 8))


@dataclass(frozen=True, slots=True)
class Form:
    """How the neighbourhoods of a schedule are stored: the same for all of them."""

    node_ids: np.dtype[Any]
    edge_ids: np.dtype[Any] | None  # None: they are not stored, and come back empty
    degrees: np.dtype[Any]
    num_hops: int
    resample: bool  # see WholeSampler
    num_nodes: int  # of the topology
    num_entries: int

    @classmethod
    def of(
        cls, num_nodes: int, num_entries: int, fanouts: Sequence[int], *, resample: bool, with_edge_ids: bool
    ) -> "Form":
        """Narrowest form that holds all that can be sampled of a topology of that number of nodes and entries."""
        edges = index_dtype(num_entries) if with_edge_ids else None
        degrees = np.min_scalar_type(num_entries if -1 in fanouts else max(fanouts))
        return cls(index_dtype(num_nodes), edges, degrees, len(fanouts), resample, num_nodes, num_entries)

    @property
    def num_counts(self) -> int:
        """Numbers that the index has of a neighbourhood."""
        return 1 + _PER_HOP * self.num_hops

    def as_text(self) -> dict[str, Any]:
        """Names and values for the header of a file."""
        return {
            "node_ids": self.node_ids.str,
            "edge_ids": None if self.edge_ids is None else self.edge_ids.str,
            "degrees": self.degrees.str,
            "num_hops": self.num_hops,
            "resample": self.resample,
            "num_nodes": self.num_nodes,
            "num_entries": self.num_entries,
        }

    @classmethod
    def from_text(cls, known: Mapping[str, Any]) -> "Form":
        """The inverse of `as_text`. ValueError, TypeError or KeyError for what that cannot have written."""
        numbers = [known[name] for name in ("num_hops", "num_nodes", "num_entries")]
        node_ids, degrees = np.dtype(known["node_ids"]), np.dtype(known["degrees"])
        edge_ids = None if known["edge_ids"] is None else np.dtype(known["edge_ids"])
        are_ids = node_ids in _OF_IDS and edge_ids in (None, *_OF_IDS)
        if not (are_ids and degrees in _OF_DEGREES and all(is_count(number) for number in numbers)):
            raise ValueError(f"no form of a neighbourhood: {known}")
        return cls(node_ids, edge_ids, degrees, numbers[0], bool(known["resample"]), *numbers[1:])


def is_count(number: object) -> bool:
    """Whether a number of JSON is a whole number of things."""
    return type(number) is int and number >= 0


def packed(sampled: Sampled, form: Form) -> tuple[bytes, NDArray[np.int64]]:
    """Bytes of a neighbourhood, and its counts [form.num_counts]: seeds, then of each hop nodes added, edges, rows."""
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


def num_bytes_of(counts: NDArray[np.int64], form: Form, most: int) -> int:
    """Bytes of a neighbourhood with these counts. ValueError if one of them is negative, or more than `most`."""
    if counts.min() < 0 or counts.max() > most:  # each: their sum could overflow
        raise ValueError(f"counts from {counts.min()} to {counts.max()}")
    return sum(count * dtype.itemsize for count, dtype in _pieces(counts, form))


def unpacked(buffer: NDArray[np.uint8], counts: NDArray[np.int64], form: Form, epoch: int, step: int) -> Sampled:
    """The neighbourhood of `buffer` [num_bytes_of(counts)], which it goes on to use. ValueError if it is none."""
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
    found = Sampled(
        seeds=Seeds(epoch, step, SeedIds(ids[:num_seeds])),
        node_ids=ids,
        blocks=cut_into_blocks(indptr, indices, rows, resample=form.resample),
        edge_ids=edge_ids,
        num_nodes_per_hop=(num_seeds, *nodes),
        num_edges_per_hop=tuple(edges),
    )
    _refuse_impossible(found, form)
    return found


def _refuse_impossible(sampled: Sampled, form: Form) -> None:
    """ValueError if rows, sources, nodes or edges are not those of a neighbourhood in such a graph."""
    known, edges = list(accumulate(sampled.num_nodes_per_hop)), list(accumulate(sampled.num_edges_per_hop))
    for hop, block in enumerate(reversed(sampled.blocks)):  # whose rows were known before it, and sources after it
        begin, end = block.indptr[[0, -1]].tolist()
        if block.num_rows != known[hop] or end != edges[hop]:
            raise ValueError(f"hop {hop + 1} has {block.num_rows} rows and {end} edges up to its own")
        _refuse_beyond(block.indices[begin:end], known[hop + 1], "source")
    _refuse_beyond(sampled.node_ids, form.num_nodes, "node")
    _refuse_beyond(sampled.edge_ids, form.num_entries, "edge")


def _refuse_beyond(ids: NDArray[Any], end: int, what: str) -> None:
    if ids.size and int(ids.view(f"u{ids.itemsize}").max()) >= end:  # what is negative is large, too
        raise ValueError(f"a {what} that is not one of {end}")


def _pieces(counts: NDArray[np.int64], form: Form) -> list[tuple[int, np.dtype[Any]]]:
    """Length and dtype of each array, in order; widest first, so that each is aligned."""
    nodes, edges, rows = counts[1:].reshape(form.num_hops, _PER_HOP).sum(axis=0).tolist()
    pieces = [(int(counts[0]) + nodes, form.node_ids), (edges, np.dtype(np.int32)), (rows, form.degrees)]
    return pieces if form.edge_ids is None else [(edges, form.edge_ids), *pieces]
