"""Sampling where the topology is in parts: each hop's nodes go to their owners, who draw with the same keys.

What is drawn for a node depends on the key and the node's identity alone (`sample/neighbor.py`), so a batch is the one
that a graph stored whole gives, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.base.errors import UserError
from graphmill.graph.keys import Purpose
from graphmill.graph.sampled import AnySeeds, NodeIds, Sampled
from graphmill.partition.parts import Part
from graphmill.sample.collect import NeighbourSource
from graphmill.sample.distributed.messages import Exchange
from graphmill.sample.distributed.shares import Shares
from graphmill.sample.distributed.wire import Wire
from graphmill.sample.neighbor import WholeSampler, sampled_of

Ids = NDArray[np.int64]
_ID: Final = np.int32  # of a node on the wire: the native sampler takes graphs of at most 2^31 - 2 nodes


@dataclass(frozen=True, slots=True)
class _Rows:
    """In-edges of some nodes, node after node."""

    counts: NDArray[np.int32]  # [num_nodes]
    sources: NDArray[Any]  # [num_edges]: int32 on the wire, then int64
    edge_ids: Ids  # [num_edges]; [0] if nobody reads them


@dataclass(frozen=True, slots=True)
class PartedSampler:
    """`WholeSampler` over the parts of all ranks. All ranks must sample equally often, in the same order."""

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
    _exchanges: tuple[tuple[Exchange, Exchange], ...] = field(init=False, repr=False)  # of each hop: questions, answers

    def __post_init__(self) -> None:
        object.__setattr__(self, "_samplers", tuple(self._sampler_of(part) for part in self.shares.parts))
        object.__setattr__(self, "_relabeller", _native.Relabeller(self.shares.book.num_nodes, hashed=True))
        exchanges = tuple((Exchange(self.wire), Exchange(self.wire)) for _ in self.fanouts)
        object.__setattr__(self, "_exchanges", exchanges)

    def sample(self, seeds: AnySeeds) -> Sampled:
        """The neighbourhood of `seeds`, which must be distinct; other ranks' seeds are of the same epoch and step."""
        (sampled,) = self.sample_window([seeds])
        return sampled

    def sample_window(self, window: Sequence[AnySeeds]) -> list[Sampled]:
        """Neighbourhoods of several batches: a hop of all takes two collectives, as one of a single batch does."""
        takes_all = all(fanout == -1 for fanout in self.fanouts)
        keys = [0 if takes_all else seeds.key(self.seed, Purpose.NEIGHBOURS) for seeds in window]
        begin = partial(self._relabeller.begin, resample=self.resample, with_edge_ids=self.with_edge_ids)
        batches = [begin(seeds.ids) for seeds in window]
        for hop, fanout in enumerate(self.fanouts):
            frontiers = [NodeIds(batch.frontier) for batch in batches]
            found = self._ask(frontiers, fanout, [_native.subkey(key, hop) for key in keys], self._exchanges[hop])
            for batch, rows in zip(batches, found, strict=True):
                batch.relabel(_offsets(rows.counts), rows.sources, rows.edge_ids if self.with_edge_ids else None)
        return [
            sampled_of(seeds, batch.finish(), resample=self.resample)
            for seeds, batch in zip(window, batches, strict=True)
        ]

    def _ask(
        self, frontiers: Sequence[NodeIds], fanout: int, keys: Sequence[int], exchanges: tuple[Exchange, Exchange]
    ) -> list[_Rows]:
        """What the nodes of each batch draw, in their order: ids to owners, edges back."""
        questions = [self.shares.questions(nodes) for nodes in frontiers]
        of_ranks = list(zip(*(one.ids for one in questions), strict=True))  # by batch
        messages = exchanges[0].swap([_question(ids) for ids in of_ranks], len(frontiers))
        heard = [_pieces(message, len(frontiers)) for message in messages]  # by rank, by batch
        picked = [
            self._pick_for(pieces, fanout, key) for pieces, key in zip(zip(*heard, strict=True), keys, strict=True)
        ]
        replies = exchanges[1].swap([_reply(rows) for rows in zip(*picked, strict=True)], len(frontiers))
        found = [
            _rows_in(reply, [len(nodes) for nodes in ids], with_edge_ids=self.with_edge_ids)
            for reply, ids in zip(replies, of_ranks, strict=True)
        ]
        of_batches = zip(*found, strict=True)
        return [_put_back(_joined(rows), one.order) for rows, one in zip(of_batches, questions, strict=True)]

    def _pick_for(self, nodes_by_rank: Sequence[NDArray[Any]], fanout: int, key: int) -> list[_Rows]:
        """What nodes of this rank's parts draw in one batch, for each rank that asks."""
        rows = self._pick(NodeIds(np.concatenate(nodes_by_rank).astype(np.int64)), fanout, key)
        return _cut_rows(rows, [len(nodes) for nodes in nodes_by_rank])

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
        of_all = _put_back(_joined(pieces), order)
        return _Rows(of_all.counts, of_all.sources.astype(_ID), of_all.edge_ids)

    def _pick_of(self, number: int, nodes: NodeIds, rows: Ids, fanout: int, key: int) -> _Rows:
        part, sampler = self.shares.parts[number], self._samplers[number]
        if not len(nodes):  # also of a part without nodes, which has no sampler
            return _Rows(np.empty(0, np.int32), np.empty(0, _ID), np.empty(0, np.int64))
        picked = sampler.pick(nodes, fanout, key, places=rows, num_threads=self.num_threads)
        counts = np.diff(picked.indptr)
        edge_ids = np.empty(0, dtype=np.int64)
        if self.with_edge_ids:
            begins = part.topology(undirected=self.undirected).indptr[rows]
            shift = part.first_entries(undirected=self.undirected)[rows] - begins
            edge_ids = picked.edge_ids + np.repeat(shift, counts)
        return _Rows(counts.astype(np.int32), picked.sources.astype(_ID), edge_ids)

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
    """Sampler of the whole topology where every host has it, else of the parts of all ranks."""
    if topology == "replicated":
        whole = shares.graph.topology(undirected=undirected)
        return WholeSampler(whole, fanouts, seed, num_threads, resample, with_edge_ids)
    return PartedSampler(shares, wire, fanouts, seed, num_threads, resample, undirected, with_edge_ids)


def _offsets(counts: NDArray[Any]) -> Ids:
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _cut(values: NDArray[Any], ends: Sequence[int] | Ids) -> list[NDArray[Any]]:
    return [values[begin:end] for begin, end in pairwise(ends)]


def _question(batches: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Nodes of several batches in one message: how many each has, then all of them."""
    return np.concatenate([np.array([len(nodes) for nodes in batches], dtype=_ID), *batches])


def _pieces(message: NDArray[np.uint8], num_batches: int) -> list[NDArray[Any]]:
    """The nodes of each batch in a question."""
    words = message.view(_ID)
    return _cut(words[num_batches:], _offsets(words[:num_batches]))


def _reply(batches: Sequence[_Rows]) -> NDArray[np.uint8]:
    """What nodes of several batches drew, in one message: all counts, then all sources, then all edge ids."""
    parts = [getattr(rows, name) for name in ("counts", "sources", "edge_ids") for rows in batches]
    return np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts])


def _rows_in(reply: NDArray[np.uint8], nums_nodes: Sequence[int], *, with_edge_ids: bool) -> list[_Rows]:
    """What the nodes of each batch drew, of which there are `nums_nodes`."""
    counts_end = 4 * sum(nums_nodes)
    counts = reply[:counts_end].view(np.int32)
    sources_end = counts_end + 4 * int(counts.sum(dtype=np.int64))
    sources, edge_ids = reply[counts_end:sources_end].view(_ID), reply[sources_end:]
    ids = edge_ids.view(np.int64) if with_edge_ids else np.empty(0, dtype=np.int64)
    return _cut_rows(_Rows(counts, sources, ids), nums_nodes)


def _cut_rows(rows: _Rows, nums_nodes: Sequence[int]) -> list[_Rows]:
    """Cut rows into those of the first nums_nodes[0] nodes, of the next nums_nodes[1], …"""
    ends = _offsets(np.array(nums_nodes))
    edge_ends = _offsets(rows.counts)[ends]
    counts, sources = _cut(rows.counts, ends), _cut(rows.sources, edge_ends)
    ids = _cut(rows.edge_ids, edge_ends) if len(rows.edge_ids) else [rows.edge_ids] * len(nums_nodes)
    return [_Rows(*of) for of in zip(counts, sources, ids, strict=True)]


def _joined(several: Sequence[_Rows]) -> _Rows:
    return _Rows(
        *(np.concatenate([getattr(rows, name) for rows in several]) for name in ("counts", "sources", "edge_ids"))
    )


def _put_back(rows: _Rows, order: Ids) -> _Rows:
    """Rows that were made in `order` [num_nodes], in the order of the nodes; sources become int64."""
    counts, begins = np.empty_like(rows.counts), np.empty(len(order), dtype=np.int64)
    counts[order], begins[order] = rows.counts, _offsets(rows.counts)[:-1]
    offsets = _offsets(counts)
    sources = np.empty(len(rows.sources), dtype=np.int64)
    _native.copy_ranges_shifted(rows.sources, begins, offsets, np.zeros(len(order), dtype=np.int64), sources, 1)
    if not len(rows.edge_ids):
        return _Rows(counts, sources, rows.edge_ids)
    entries = np.repeat(begins - offsets[:-1], counts) + np.arange(len(rows.sources))
    return _Rows(counts, sources, rows.edge_ids[entries])
