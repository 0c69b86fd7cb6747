"""Which rank answers for a node: of those that can read its part, one. Said without opening any part."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.sampled import NodeIds
from graphmill.partition.book import PartitionBook
from graphmill.partition.placement import Placement


@dataclass(frozen=True, slots=True)
class Owners:
    """Rank that alone answers for each node of a graph in parts."""

    book: PartitionBook
    placement: Placement
    ranges: tuple[tuple[int, int], ...] = field(init=False)  # of each rank its storage ids: first, one past the last
    _firsts: NDArray[np.int64] = field(init=False, repr=False)  # [world_size]

    def __post_init__(self) -> None:
        ranks = range(self.placement.world_size)
        ranges = tuple(self.placement.own_range(rank, self.book.offsets) for rank in ranks)
        object.__setattr__(self, "ranges", ranges)
        object.__setattr__(self, "_firsts", np.array([first for first, _ in ranges], dtype=np.int64))

    def owner_of(self, nodes: NodeIds) -> NDArray[np.int64]:
        """The rank of each of `nodes` [n]."""
        return np.searchsorted(self._firsts, self.book.storage_of(nodes), side="right") - 1
