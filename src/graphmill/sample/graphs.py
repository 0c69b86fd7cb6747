"""Mini-batches of whole graphs, cut out of a set."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.graph.batch import Block, GraphBatch
from graphmill.graph.graph_set import Allocate, GraphSet
from graphmill.graph.sampled import AnySeeds
from graphmill.sample.collect import reused_buffers


@dataclass(frozen=True, slots=True)
class GraphCollector:
    """Batches of graphs with their classes. Their memory is reused `prefetch` + 3 batches later: use them in order."""

    graphs: GraphSet
    labels: NDArray[np.int64]  # [num_graphs]
    num_threads: int
    prefetch: int
    pinned: bool = False
    _allocate: Allocate = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_allocate", reused_buffers(self.prefetch, pinned=self.pinned))

    def collect(self, seeds: AnySeeds) -> GraphBatch:
        """The graphs `seeds.ids`, in that order, on the CPU."""
        cut = self.graphs.cut(seeds.ids, num_threads=self.num_threads, allocate=self._allocate)
        of = torch.from_numpy
        return GraphBatch(
            seeds=seeds,
            node_offsets=of(cut.node_offsets),
            block=Block(of(cut.indptr), of(cut.sources)),
            by_source=Block(of(cut.indptr_by_source), of(cut.edges_by_source)),
            x=of(cut.x),
            edge_attr=of(cut.edge_attr),
            labels=of(self.labels[seeds.ids]),
        )
