"""Neighbour sampling: seeds in, a relabelled neighbourhood out; by one fan-out, or one for each relation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.base.errors import UserError
from graphmill.graph.keys import Purpose
from graphmill.graph.sampled import AnySeeds, NodeIds, Sampled, SampledBlock
from graphmill.graph.topology import Topology


@dataclass(frozen=True, slots=True)
class WholeSampler:
    """Uniform sampling of in-neighbours without replacement (Hamilton et al. 2017, arXiv 1706.02216, algorithm 2).

    Draws are keyed by (seed, epoch, step, hop, node): the same for any number of threads and whichever rank asks. With
    `resample`, every node known so far samples again at each hop (DGL's blocks), so what a layer computes for a node
    depends on the node alone and not on what else is in the batch: ranks together see what one rank with the whole
    batch sees. Without it a node draws once, at the hop where it is first seen (PyG's way): the blocks are then parts
    of one subgraph.
    """

    topology: Topology
    fanouts: tuple[int, ...]  # first hop first; -1: all in-neighbours
    seed: int
    num_threads: int
    resample: bool
    with_edge_ids: bool = False  # for features of edges
    _native_sampler: _native.NeighborSampler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            native = _native.NeighborSampler(self.topology.indptr, self.topology.indices, self.num_threads)
        except ValueError as error:
            raise UserError(f"the graph is damaged: {error}", fix="prepare the dataset again") from None
        object.__setattr__(self, "_native_sampler", native)

    def sample(self, seeds: AnySeeds) -> Sampled:
        """The neighbourhood of `seeds`, which must be distinct."""
        takes_all = all(fanout == -1 for fanout in self.fanouts)
        key = 0 if takes_all else seeds.key(self.seed, Purpose.NEIGHBOURS)
        hood = self._native_sampler.sample(
            seeds.ids,
            self.fanouts,
            key,
            resample=self.resample,
            with_edge_ids=self.with_edge_ids,
            num_threads=self.num_threads,
        )
        return sampled_of(seeds, hood, resample=self.resample)


def sampled_of(seeds: AnySeeds, hood: _native.Neighbourhood, *, resample: bool) -> Sampled:
    """What was sampled around `seeds`, with a block per layer."""
    return Sampled(
        seeds=seeds,
        node_ids=NodeIds(hood.node_ids),
        blocks=cut_into_blocks(hood.indptr, hood.indices, hood.num_rows_per_hop, resample=resample),
        edge_ids=hood.edge_ids,
        num_nodes_per_hop=tuple(hood.num_nodes_per_hop),
        num_edges_per_hop=tuple(hood.num_edges_per_hop),
    )


def cut_into_blocks(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], num_rows_per_hop: Sequence[int], *, resample: bool
) -> tuple[SampledBlock, ...]:
    """A block per layer, cut out of the rows of all hops, which are stored consecutively."""
    ends = list(accumulate(num_rows_per_hop))
    begins = [0, *ends][:-1] if resample else [0] * len(ends)
    spans = zip(begins, ends, strict=True)
    return tuple(SampledBlock(indptr[begin : end + 1], indices) for begin, end in reversed(list(spans)))


@dataclass(frozen=True, slots=True)
class _OneRelation:
    """The in-edges by one relation, and which entries of the topology they are."""

    sampler: _native.NeighborSampler
    entries: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RelationSampler:
    """`WholeSampler` with fan-outs by relation, as PyG's loaders take them for heterogeneous graphs.

    Draws are keyed by (seed, epoch, step, hop, relation, node). It holds 16 bytes for each edge, and 8 for each node
    and relation (`spec.fanouts.held_bytes`).
    """

    topology: Topology
    edge_type: NDArray[np.integer]  # [num_entries]: the relation of each
    fanouts: tuple[tuple[int, ...], ...]  # of each relation, first hop first; -1: all in-neighbours, 0: none
    seed: int
    resample: bool
    with_edge_ids: bool = False
    _relations: tuple[_OneRelation, ...] = field(init=False, repr=False)
    _relabeller: _native.Relabeller = field(init=False, repr=False)

    def __post_init__(self) -> None:
        entries = (np.flatnonzero(self.edge_type == number) for number in range(len(self.fanouts)))
        object.__setattr__(self, "_relations", tuple(self._one(its) for its in entries))
        object.__setattr__(self, "_relabeller", _native.Relabeller(self.topology.num_nodes))

    def sample(self, seeds: AnySeeds) -> Sampled:
        """The neighbourhood of `seeds`, which must be distinct."""
        key = seeds.key(self.seed, Purpose.NEIGHBOURS)
        batch = self._relabeller.begin(seeds.ids, resample=self.resample, with_edge_ids=self.with_edge_ids)
        for hop in range(len(self.fanouts[0])):
            indptr, sources, edge_ids = self._hop(batch.frontier, hop, _native.subkey(key, hop))
            batch.relabel(indptr, sources, edge_ids if self.with_edge_ids else None)
        hood = batch.finish()
        return sampled_of(seeds, hood, resample=self.resample)

    def _one(self, entries: NDArray[np.int64]) -> _OneRelation:
        indptr = np.searchsorted(entries, self.topology.indptr)
        indices = np.ascontiguousarray(self.topology.indices[entries])
        return _OneRelation(_native.NeighborSampler(indptr, indices, 1, self.topology.num_nodes), entries)

    def _hop(
        self, nodes: NDArray[np.int64], hop: int, key: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """What `nodes` draw: where each one's edges begin, their sources and entries; by relation within a node."""
        picked = [
            one.sampler.pick(nodes, fanouts[hop], _native.subkey(key, number))
            for number, (one, fanouts) in enumerate(zip(self._relations, self.fanouts, strict=True))
        ]
        counts = np.stack([np.diff(each.indptr) for each in picked], axis=1)  # [num_nodes, num_relations]
        begins = np.zeros(counts.size + 1, np.int64)
        np.cumsum(counts.ravel(), out=begins[1:])
        sources, edge_ids = (np.empty(begins[-1], np.int64) for _ in range(2))
        for number, (one, each) in enumerate(zip(self._relations, picked, strict=True)):
            # An edge's place among those of its relation, and how far its node and relation have moved.
            moved = begins[number : -1 : len(picked)] - each.indptr[:-1]
            places = np.arange(len(each.sources)) + np.repeat(moved, counts[:, number])
            sources[places] = each.sources
            edge_ids[places] = one.entries[each.edge_ids]
        return np.ascontiguousarray(begins[:: len(picked)]), sources, edge_ids
