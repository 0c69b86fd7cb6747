"""Dropout of edges in training: a share of those drawn is left out (DropEdge, Rong et al. 2020, arXiv 1907.10903)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphmill.graph.keys import Purpose, keys_below
from graphmill.graph.sampled import AnySeeds, Sampled, Seeds
from graphmill.sample.collect import NeighbourSource, sample_window


@dataclass(frozen=True, slots=True)
class EdgeDropout:
    """A sampler that leaves each edge of a step out with probability `p`, keyed by (seed, epoch, step, target, source).

    So the layers of a step agree on an edge, as the paper has it, and so do ranks that read it; edges of several types
    between two nodes go together. Nothing is scaled up: a mean is taken over the edges that are left.
    """

    inner: NeighbourSource
    p: float
    rng_seed: int
    num_nodes: int  # of the graph
    resampled: bool  # whether a node draws its neighbours anew at each hop

    def sample(self, seeds: AnySeeds) -> Sampled:
        """The neighbourhood of `seeds` without the edges that are dropped; its nodes stay."""
        return self._kept(self.inner.sample(seeds))

    def sample_window(self, window: Sequence[AnySeeds]) -> list[Sampled]:
        """Neighbourhoods of the batches of a window, each without its edges that are dropped."""
        return [self._kept(sampled) for sampled in sample_window(self.inner, window)]

    def _kept(self, sampled: Sampled) -> Sampled:
        assert isinstance(sampled.seeds, Seeds), "edges are dropped in training alone"
        nodes = sampled.node_ids
        ends = nodes[sampled.targets(resampled=self.resampled)] * self.num_nodes + nodes[sampled.blocks[0].indices]
        keys = keys_below(sampled.seeds.key(self.rng_seed, Purpose.EDGE_DROPOUT), ends)
        return sampled.with_edges(keys >= np.uint64(round(self.p * 2**64)))
