"""This rank's view of a graph in parts: which rows it holds, and whom it asks for the others."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.batch import NodeIds
from graphmill.partition.book import PartitionBook
from graphmill.partition.parts import Part, PartedGraph
from graphmill.partition.placement import Placement


@dataclass(frozen=True, slots=True)
class Located:
    """Where nodes [n] are stored."""

    parts: NDArray[np.int64]  # [n]
    rows: NDArray[np.int64]  # [n], in their parts
    servers: NDArray[np.int64]  # [n]: the rank that reads them for this one; itself if it holds the part


@dataclass(frozen=True, slots=True)
class Shares:
    """The parts of one rank, and where all others are."""

    graph: PartedGraph
    placement: Placement
    rank: int
    book: PartitionBook = field(init=False)
    parts: tuple[Part, ...] = field(init=False)  # that this rank holds, consecutive
    _servers: NDArray[np.int64] = field(init=False, repr=False)  # [num_parts]

    def __post_init__(self) -> None:
        object.__setattr__(self, "book", self.graph.book)
        parts = tuple(self.graph.part(number) for number in self.placement.parts_of(self.rank))
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "_servers", self.placement.servers_for(self.rank))

    def locate(self, nodes: NodeIds) -> Located:
        """Where `nodes` [n] are stored, and who reads them."""
        places = self.book.storage_of(nodes)
        parts = self.book.part_of(places)
        return Located(parts, places - self.book.offsets[parts], self._servers[parts])

    def by_server(self, servers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions [n] of entries by ascending server, in their order → and the first of each rank [world_size + 1]."""
        order = np.argsort(servers, kind="stable")
        ends = np.zeros(self.placement.world_size + 1, dtype=np.int64)
        np.cumsum(np.bincount(servers, minlength=self.placement.world_size), out=ends[1:])
        return order, ends
