"""Where parts lie: which ranks can read a part from their own disk, whom the others ask for it, and what a host needs.

Places are hosts, whose ranks share their parts through mapped files, or single ranks. Parts lie on places in contiguous
shares: place h of H has the parts from ⌊h·P/H⌋ to ⌊(h + 1)·P/H⌋, so shares differ by one part at most, whatever is left
after a host was lost. With fewer parts than places, several have the same one, and no place is without.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.sampled import NodeIds
from graphmill.partition.book import PartitionBook
from graphmill.record.staged import LABELS, Share
from graphmill.spec.partition import InParts
from graphmill.spec.plan import Plan
from graphmill.spec.roles import first_host_that_samples
from graphmill.spec.world import World


@dataclass(frozen=True, slots=True)
class Placement:
    """`num_parts` parts on `num_places` places of `ranks_per_place` ranks each."""

    num_parts: int
    num_places: int
    ranks_per_place: int

    @property
    def world_size(self) -> int:
        """Ranks on all places."""
        return self.num_places * self.ranks_per_place

    @property
    def is_local(self) -> bool:
        """Whether every place has all parts: no rank asks another for anything."""
        return len(self.parts_on(0)) == self.num_parts

    def parts_on(self, place: int) -> range:
        """The parts that lie on a place."""
        if self.num_parts < self.num_places:
            part = place * self.num_parts // self.num_places
            return range(part, part + 1)
        return range(place * self.num_parts // self.num_places, (place + 1) * self.num_parts // self.num_places)

    def parts_of(self, rank: int) -> range:
        """The parts that a rank reads from its own place."""
        return self.parts_on(rank // self.ranks_per_place)

    def mates_of(self, rank: int) -> range:
        """The ranks of the place of `rank`, itself among them: what one maps, the others can map."""
        first = rank // self.ranks_per_place * self.ranks_per_place
        return range(first, first + self.ranks_per_place)

    def ranks_with(self, part: int) -> range:
        """The ranks that can read a part; they are consecutive."""
        parts, places, each = self.num_parts, self.num_places, self.ranks_per_place
        if parts < places:  # those whose number, times P/H, is between this part and the next
            first, end = -(-part * places // parts), -(-(part + 1) * places // parts)
        else:
            first = ((part + 1) * places - 1) // parts
            end = first + 1
        return range(first * each, end * each)

    def servers_for(self, rank: int) -> NDArray[np.int64]:
        """Ranks that `rank` asks for each part [num_parts]: itself if it has it, else one that does, evenly spread."""
        servers = np.empty(self.num_parts, dtype=np.int64)
        for part in range(self.num_parts):
            those = self.ranks_with(part)
            servers[part] = rank if rank in those else those[rank % len(those)]
        return servers

    def own_range(self, rank: int, offsets: NDArray[np.int64]) -> tuple[int, int]:
        """The storage ids that a rank answers for alone: those of its place's parts, shared out among their ranks.

        The ranges of all ranks are consecutive and cover the graph; `offsets` [num_parts + 1] are the book's.
        """
        parts = self.parts_of(rank)
        first, last = int(offsets[parts.start]), int(offsets[parts.stop])
        those = self.ranks_with(parts.start)
        number, count = rank - those.start, len(those)
        return first + (last - first) * number // count, first + (last - first) * (number + 1) // count


def placement_of(placement: Literal["per_host", "per_rank"], num_parts: int, *, ranks: int, hosts: int) -> Placement:
    """Where `num_parts` parts lie: on hosts, whose ranks share them, or on single ranks."""
    if placement == "per_rank":
        return Placement(num_parts, ranks, 1)
    return Placement(num_parts, hosts, ranks // hosts)


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


def share_of_host(layout: InParts, host: int, *, hosts: int, ranks: int) -> Share:
    """Share of host `host` of `hosts`, which start `ranks` ranks in all.

    >>> share_of_host(InParts(4, "per_host", "partitioned"), 1, hosts=2, ranks=4)
    Share(parts=(2, 3), whole_topology=False)
    >>> share_of_host(InParts(2, "per_host", "replicated"), 1, hosts=4, ranks=4)
    Share(parts=(0,), whole_topology=True)
    >>> [share_of_host(InParts(4, "per_rank", "replicated"), h, hosts=3, ranks=3).parts for h in range(3)]
    [(0,), (1,), (2, 3)]
    """
    each = ranks // hosts
    placement = placement_of(layout.placement, layout.num_parts, ranks=ranks, hosts=hosts)
    parts = {part for rank in range(host * each, (host + 1) * each) for part in placement.parts_of(rank)}
    return Share(tuple(sorted(parts)), layout.topology == "replicated")


def share_of_plan(plan: Plan, host: int, world: World | None = None) -> Share | None:
    """What the processes of a host read; None: all of the data. `world`: of the attempt; None: as planned.

    With roles the samplers hold the graph, and a host that only trains needs its labels alone.
    """
    world, layout = world or plan.world, plan.task.in_parts
    roles = world.roles
    if roles is None:
        return None if layout is None else share_of_host(layout, host, hosts=world.hosts, ranks=world.ranks)
    first = first_host_that_samples(roles, world.hosts)
    if host < first:
        return LABELS
    if layout is None:
        return None
    return share_of_host(layout, host - first, hosts=world.hosts - first, ranks=roles.samplers)
