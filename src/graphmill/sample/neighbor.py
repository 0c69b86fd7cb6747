"""Neighbour sampling: seeds in, a relabelled neighbourhood out."""

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
        return Sampled(
            seeds=seeds,
            node_ids=NodeIds(hood.node_ids),
            blocks=blocks_of(hood, resample=self.resample),
            edge_ids=hood.edge_ids,
            num_nodes_per_hop=tuple(hood.num_nodes_per_hop),
            num_edges_per_hop=tuple(hood.num_edges_per_hop),
        )


def blocks_of(hood: _native.Neighbourhood, *, resample: bool) -> tuple[SampledBlock, ...]:
    """A block per layer of what was sampled."""
    return cut_into_blocks(hood.indptr, hood.indices, hood.num_rows_per_hop, resample=resample)


def cut_into_blocks(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], num_rows_per_hop: Sequence[int], *, resample: bool
) -> tuple[SampledBlock, ...]:
    """A block per layer, cut out of the rows of all hops, which are stored consecutively."""
    ends = list(accumulate(num_rows_per_hop))
    begins = [0, *ends][:-1] if resample else [0] * len(ends)
    spans = zip(begins, ends, strict=True)
    return tuple(SampledBlock(indptr[begin : end + 1], indices) for begin, end in reversed(list(spans)))
