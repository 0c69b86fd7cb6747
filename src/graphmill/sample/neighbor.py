"""Neighbour sampling: seeds in, a relabelled neighbourhood out."""

from dataclasses import dataclass, field

from graphmill import _native
from graphmill.graph.batch import GlobalIds, Sampled, Seeds
from graphmill.graph.topology import Topology
from graphmill.sample.keys import Purpose, key_of


@dataclass(frozen=True, slots=True)
class NeighborSampler:
    """Uniform sampling of in-neighbours without replacement (Hamilton et al. 2017, arXiv 1706.02216, algorithm 2).

    Each node draws min(degree, fan-out) distinct in-edges once, at the hop where it is first seen, as in PyG. Draws are keyed
    by (seed, epoch, step, hop, node): the same neighbourhood for any number of threads and whichever rank asks.
    """

    topology: Topology
    fanouts: tuple[int, ...]  # first hop first; -1: all in-neighbours
    seed: int
    num_threads: int
    _native_sampler: _native.NeighborSampler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        native = _native.NeighborSampler(self.topology.indptr, self.topology.indices)
        object.__setattr__(self, "_native_sampler", native)

    def sample(self, seeds: Seeds) -> Sampled:
        """The neighbourhood of `seeds`, which must be distinct."""
        key = key_of(self.seed, Purpose.NEIGHBOURS, seeds.epoch, seeds.step)
        hood = self._native_sampler.sample(seeds.ids, self.fanouts, key, num_threads=self.num_threads)
        return Sampled(
            seeds=seeds,
            node_ids=GlobalIds(hood.node_ids),
            indptr=hood.indptr,
            indices=hood.indices,
            num_nodes_per_hop=tuple(hood.num_nodes_per_hop),
            num_edges_per_hop=tuple(hood.num_edges_per_hop),
        )
