"""Sampling with a fan-out for each relation: a node draws a number of its in-neighbours by each type of edge."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.graph.keys import Purpose
from graphmill.graph.sampled import AnySeeds, NodeIds, Sampled
from graphmill.graph.topology import Topology
from graphmill.sample.neighbor import blocks_of


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
        return Sampled(
            seeds=seeds,
            node_ids=NodeIds(hood.node_ids),
            blocks=blocks_of(hood, resample=self.resample),
            edge_ids=hood.edge_ids,
            num_nodes_per_hop=tuple(hood.num_nodes_per_hop),
            num_edges_per_hop=tuple(hood.num_edges_per_hop),
        )

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
