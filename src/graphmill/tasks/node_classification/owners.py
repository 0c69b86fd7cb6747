"""Seeds that go to the rank that owns them, said without opening any part."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.sampled import NodeIds
from graphmill.partition.parts import PartedGraph
from graphmill.partition.placement import Placement
from graphmill.sample.schedule import shares_by_owner


@dataclass(frozen=True, slots=True)
class Owners:
    """Of each node of a graph in parts, which is not looked at, the rank that alone answers for it."""

    graph: PartedGraph
    placement: Placement

    def __call__(self, batch: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """The nodes of every rank, in their order in `batch`."""
        return shares_by_owner(batch, self.owner_of(batch), self.placement.world_size)

    def owner_of(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rank of each of `nodes` [n]."""
        book, ranks = self.graph.book, range(self.placement.world_size)
        first_owned = [self.placement.own_range(rank, book.offsets)[0] for rank in ranks]
        return np.searchsorted(np.array(first_owned), book.storage_of(NodeIds(nodes)), side="right") - 1
