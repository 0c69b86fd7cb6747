"""Where parts lie: which ranks can read a part from their own disk, and whom the others ask for it.

Places are hosts, whose ranks share their parts through mapped files, or single ranks. Parts lie on places in contiguous
shares: place h of H has the parts from ⌊h·P/H⌋ to ⌊(h + 1)·P/H⌋, so shares differ by one part at most, whatever is left
after a host was lost. With fewer parts than places, several have the same one, and no place is without.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray


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


def placement_of(asked: Literal["per_host", "per_rank"], num_parts: int, *, ranks: int, hosts: int) -> Placement:
    """Where `num_parts` parts lie: on hosts, whose ranks share them, or on single ranks."""
    if asked == "per_rank":
        return Placement(num_parts, ranks, 1)
    return Placement(num_parts, hosts, ranks // hosts)
