"""The partition book: in which part, and in which row of it, a node is stored.

After relabelling the nodes of a part are consecutive, so a book is one offset per part, O(num_parts) of memory. What
relabels, the storage id of every node, stays on disk and is mapped: only the pages that are asked for are in memory.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.sampled import NodeIds, StorageIds
from graphmill.graph.topology import index_dtype


@dataclass(frozen=True, slots=True)
class PartitionBook:
    """Identity ↔ storage: the one place that converts (house rule 4).

    Part p has the storage ids offsets[p] to offsets[p + 1]; row r of it is the storage id offsets[p] + r.
    """

    offsets: NDArray[np.int64]  # [num_parts + 1]
    storage: NDArray[Any]  # int32 or int64 [num_nodes], mapped: the storage id of each node

    @property
    def num_parts(self) -> int:
        """Pieces of the graph."""
        return len(self.offsets) - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the whole graph."""
        return int(self.offsets[-1])

    @property
    def id_dtype(self) -> np.dtype[Any]:
        """Data type of a node's id on disk and on the wire."""
        return np.dtype(index_dtype(self.num_nodes))

    def storage_of(self, nodes: NodeIds) -> StorageIds:
        """Where nodes [n] are stored [n]."""
        return StorageIds(self.storage[nodes].astype(np.int64, copy=False))

    def part_of(self, places: StorageIds) -> NDArray[np.int64]:
        """The parts [n] that hold storage ids [n]."""
        return np.searchsorted(self.offsets, places, side="right") - 1

    def range_of(self, part: int) -> tuple[int, int]:
        """The storage ids of a part: first, and one past the last."""
        return int(self.offsets[part]), int(self.offsets[part + 1])
