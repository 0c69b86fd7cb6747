"""This rank's view of a graph in parts: which rows it holds, and whom it asks for the others."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.sampled import NodeIds, StorageIds
from graphmill.partition.book import PartitionBook
from graphmill.partition.parts import Part, PartedGraph
from graphmill.partition.placement import Owners, Placement


@dataclass(frozen=True, slots=True)
class Located:
    """Where nodes [n] are stored."""

    parts: NDArray[np.int64]  # [n]
    rows: NDArray[np.int64]  # [n], in their parts
    servers: NDArray[np.int64]  # [n]: the rank that reads them for this one; itself if it holds the part


@dataclass(frozen=True, slots=True)
class Questions:
    """Nodes [n] by the rank that reads them for this one."""

    order: NDArray[np.int64]  # [n]: their positions, rank after rank
    counts: list[int]  # [world_size]: how many each rank is asked for
    ids: list[NDArray[Any]]  # [world_size]: which, as they travel

    def places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row of each node in a table where the rows of the nodes in `order` are `rows` [n]."""
        places = np.empty_like(self.order)
        places[self.order] = rows
        return places


@dataclass(frozen=True, slots=True)
class Shares:
    """The parts of one rank, and where all others are."""

    graph: PartedGraph
    placement: Placement
    rank: int
    book: PartitionBook = field(init=False)
    parts: tuple[Part, ...] = field(init=False)  # that this rank holds, consecutive
    owners: Owners = field(init=False)  # the rank that answers for a node: of those that share a part, one
    _servers: NDArray[np.int64] = field(init=False, repr=False)  # [num_parts]

    def __post_init__(self) -> None:
        object.__setattr__(self, "book", self.graph.book)
        parts = tuple(self.graph.part(number) for number in self.placement.parts_of(self.rank))
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "_servers", self.placement.servers_for(self.rank))
        object.__setattr__(self, "owners", Owners(self.book, self.placement))

    @property
    def owned(self) -> tuple[int, int]:
        """Storage ids that this rank alone answers for: first, one past the last."""
        return self.owners.ranges[self.rank]

    @property
    def own_parts(self) -> tuple[int, int]:
        """Storage ids of the parts that this rank reads itself, perhaps with others: first, one past the last."""
        return int(self.book.offsets[self.parts[0].number]), int(self.book.offsets[self.parts[-1].number + 1])

    @property
    def host_ranks(self) -> range:
        """The ranks that read the same parts through the same files, this one among them."""
        return self.placement.mates_of(self.rank)

    @property
    def num_owned(self) -> int:
        """Nodes that this rank alone answers for."""
        return self.owned[1] - self.owned[0]

    def owner_of(self, nodes: NodeIds) -> NDArray[np.int64]:
        """The rank that answers for each of `nodes` [n]."""
        return self.owners.owner_of(nodes)

    def owned_nodes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The nodes in `rows` [n] of those that this rank owns, counted from its first."""
        places = rows + self.owned[0]
        parts, nodes = self.book.part_of(StorageIds(places)), np.empty(len(rows), dtype=np.int64)
        for part in self.parts:
            here = np.flatnonzero(parts == part.number)
            nodes[here] = part.node_ids[places[here] - self.book.offsets[part.number]]
        return nodes

    def locate(self, nodes: NodeIds) -> Located:
        """Where `nodes` [n] are stored, and who reads them."""
        places = self.book.storage_of(nodes)
        parts = self.book.part_of(places)
        return Located(parts, places - self.book.offsets[parts], self._servers[parts])

    def questions(self, nodes: NodeIds) -> Questions:
        """Questions for `nodes` [n], by the rank to ask."""
        order, ends = self.by_rank(self.locate(nodes).servers)
        ids = nodes[order].astype(self.book.id_dtype)
        return Questions(order, np.diff(ends).tolist(), [ids[begin:end] for begin, end in pairwise(ends)])

    def by_rank(self, ranks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions [n] of entries by ascending rank, and where those of each rank begin [world_size + 1]."""
        order = np.argsort(ranks.astype(np.uint16), kind="stable")  # numpy sorts 16 bits by counting
        ends = np.zeros(self.placement.world_size + 1, dtype=np.int64)
        np.cumsum(np.bincount(ranks, minlength=self.placement.world_size), out=ends[1:])
        return order, ends
