"""Sampling where the topology is in parts: each hop's nodes go to their owners, who draw with the same keys.

What is drawn for a node depends on the key and the node's identity alone (`sample/neighbor.py`), so a batch is the one
that a graph stored whole gives, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.base.errors import UserError
from graphmill.graph.keys import Purpose
from graphmill.graph.sampled import AnySeeds, NodeIds, Sampled
from graphmill.graph.topology import index_dtype
from graphmill.partition.parts import Part
from graphmill.sample.collect import NeighbourSource
from graphmill.sample.distributed.shares import Shares
from graphmill.sample.distributed.wire import Wire
from graphmill.sample.neighbor import NeighborSampler, blocks_of

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Rows:
    """In-edges of some nodes, node after node."""

    counts: NDArray[np.int32]  # [num_nodes]
    sources: NDArray[Any]  # [num_edges]
    edge_ids: Ids  # [num_edges]; [0] if nobody reads them


@dataclass(frozen=True, slots=True)
class PartedSampler:
    """`NeighborSampler` over the parts of all ranks. All ranks must sample equally often, in the same order."""

    shares: Shares
    wire: Wire
    fanouts: tuple[int, ...]  # first hop first; -1: all in-neighbours
    seed: int
    num_threads: int
    resample: bool
    undirected: bool
    with_edge_ids: bool = False
    _samplers: tuple[_native.NeighborSampler, ...] = field(init=False, repr=False)  # of this rank's parts
    _relabeller: _native.Relabeller = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_samplers", tuple(self._sampler_of(part) for part in self.shares.parts))
        object.__setattr__(self, "_relabeller", _native.Relabeller(self.shares.book.num_nodes))

    def sample(self, seeds: AnySeeds) -> Sampled:
        """The neighbourhood of `seeds`, which must be distinct; other ranks' seeds are of the same epoch and step."""
        takes_all = all(fanout == -1 for fanout in self.fanouts)
        key = 0 if takes_all else seeds.key(self.seed, Purpose.NEIGHBOURS)
        batch = self._relabeller.begin(seeds.ids, resample=self.resample, with_edge_ids=self.with_edge_ids)
        num_rows = []
        for hop, fanout in enumerate(self.fanouts):
            frontier = NodeIds(batch.frontier)
            num_rows.append(len(frontier))
            found = self._ask(frontier, fanout, _native.subkey(key, hop))
            indptr = np.zeros(len(frontier) + 1, dtype=np.int64)
            np.cumsum(found.counts, out=indptr[1:])
            sources = found.sources.astype(np.int64, copy=False)
            batch.relabel(indptr, sources, found.edge_ids if self.with_edge_ids else None)
        hood = batch.finish()
        return Sampled(
            seeds=seeds,
            node_ids=NodeIds(hood.node_ids),
            blocks=blocks_of(hood, resample=self.resample),
            edge_ids=hood.edge_ids,
            num_nodes_per_hop=tuple(hood.num_nodes_per_hop),
            num_edges_per_hop=tuple(hood.num_edges_per_hop),
        )

    def _ask(self, nodes: NodeIds, fanout: int, key: int) -> _Rows:
        """What each of `nodes` draws, in their order: ids to owners, edges back."""
        order, ends = self.shares.by_server(self.shares.locate(nodes).servers)
        narrow = nodes[order].astype(index_dtype(self.shares.book.num_nodes))
        asked = self.wire.swap([narrow[begin:end] for begin, end in pairwise(ends)])
        picked = self._pick(NodeIds(np.concatenate(asked).astype(np.int64)), fanout, key)
        own_ends = np.concatenate([[0], np.cumsum([len(nodes) for nodes in asked])])
        edge_ends = np.concatenate([[0], np.cumsum(picked.counts, dtype=np.int64)])[own_ends]
        counts = np.concatenate(self.wire.swap(_cut(picked.counts, own_ends), np.diff(ends).tolist()))
        totals = [int(counts[begin:end].sum(dtype=np.int64)) for begin, end in pairwise(ends)]
        sources = np.concatenate(self.wire.swap(_cut(picked.sources, edge_ends), totals))
        edge_ids = picked.edge_ids
        if self.with_edge_ids:
            edge_ids = np.concatenate(self.wire.swap(_cut(picked.edge_ids, edge_ends), totals))
        return _put_back(_Rows(counts, sources, edge_ids), order)

    def _pick(self, nodes: NodeIds, fanout: int, key: int) -> _Rows:
        """What nodes of this rank's parts draw, in their order."""
        found = self.shares.locate(nodes)
        first = self.shares.parts[0].number
        if len(self.shares.parts) == 1:
            return self._pick_of(0, nodes, found.rows, fanout, key)
        of_part = found.parts - first
        order = np.argsort(of_part, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(of_part, minlength=len(self.shares.parts)))])
        pieces = [
            self._pick_of(number, NodeIds(nodes[order[begin:end]]), found.rows[order[begin:end]], fanout, key)
            for number, (begin, end) in enumerate(pairwise(ends))
        ]
        return _put_back(
            _Rows(*(np.concatenate([getattr(p, name) for p in pieces]) for name in ("counts", "sources", "edge_ids"))),
            order,
        )

    def _pick_of(self, number: int, nodes: NodeIds, rows: Ids, fanout: int, key: int) -> _Rows:
        part, sampler = self.shares.parts[number], self._samplers[number]
        narrow = index_dtype(self.shares.book.num_nodes)
        if not len(nodes):  # also of a part without nodes, which has no sampler
            return _Rows(np.empty(0, np.int32), np.empty(0, narrow), np.empty(0, np.int64))
        picked = sampler.pick(nodes, fanout, key, places=rows, num_threads=self.num_threads)
        counts = np.diff(picked.indptr)
        edge_ids = np.empty(0, dtype=np.int64)
        if self.with_edge_ids:
            begins = part.topology(undirected=self.undirected).indptr[rows]
            shift = part.first_entries(undirected=self.undirected)[rows] - begins
            edge_ids = picked.edge_ids + np.repeat(shift, counts)
        return _Rows(counts.astype(np.int32), picked.sources.astype(narrow), edge_ids)

    def _sampler_of(self, part: Part) -> _native.NeighborSampler:
        topology = part.topology(undirected=self.undirected)
        try:
            return _native.NeighborSampler(
                topology.indptr, topology.indices, self.num_threads, num_nodes=self.shares.book.num_nodes
            )
        except ValueError as error:
            raise UserError(
                f"part {part.number} of {self.shares.graph.path} is damaged: {error}", fix="partition the graph again"
            ) from None


def sampler_of(
    shares: Shares,
    wire: Wire,
    topology: Literal["replicated", "partitioned"],
    fanouts: tuple[int, ...],
    seed: int,
    *,
    num_threads: int,
    resample: bool,
    undirected: bool,
    with_edge_ids: bool,
) -> NeighbourSource:
    """Of the whole topology where every host has it, else of the parts of all ranks."""
    if topology == "replicated":
        whole = shares.graph.topology(undirected=undirected)
        return NeighborSampler(whole, fanouts, seed, num_threads, resample, with_edge_ids)
    return PartedSampler(shares, wire, fanouts, seed, num_threads, resample, undirected, with_edge_ids)


def _cut(values: NDArray[Any], ends: Sequence[int] | Ids) -> list[NDArray[Any]]:
    return [values[begin:end] for begin, end in pairwise(ends)]


def _put_back(rows: _Rows, order: Ids) -> _Rows:
    """Rows that were made in `order` [num_nodes], in the order of the nodes."""
    begins = np.concatenate([[0], np.cumsum(rows.counts[:-1], dtype=np.int64)]) if len(rows.counts) else order
    counts, begin_of = np.empty_like(rows.counts), np.empty(len(order), dtype=np.int64)
    counts[order], begin_of[order] = rows.counts, begins
    offsets = np.cumsum(counts, dtype=np.int64) - counts
    entries = np.repeat(begin_of - offsets, counts) + np.arange(len(rows.sources))
    return _Rows(counts, rows.sources[entries], rows.edge_ids[entries] if len(rows.edge_ids) else rows.edge_ids)
