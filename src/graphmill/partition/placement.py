"""Where parts lie: which ranks can read a part from their own disk, and whom the others ask for it.

Places are hosts, whose ranks share their parts through mapped files, or single ranks. Parts lie on places in contiguous
shares: place h of H has the parts from h·P/H to (h + 1)·P/H. With fewer parts than places, several have the same one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError


@dataclass(frozen=True, slots=True)
class Placement:
    """`num_parts` parts on `num_places` places of `ranks_per_place` ranks each."""

    num_parts: int
    num_places: int
    ranks_per_place: int

    def __post_init__(self) -> None:
        if self.num_parts % self.num_places and self.num_places % self.num_parts:
            parts, places = self.num_parts, self.num_places
            fitting = [str(number) for number in range(1, 2 * parts + 1) if parts % number == 0 or number % parts == 0]
            raise UserError(
                f"{parts} parts do not divide among {places} places, nor places among parts; places are hosts, or ranks"
                " with partition.placement=per_rank",
                fix=f"start {', '.join(fitting)}, … of them, or partition the graph with --num-parts {places}",
            )

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
        each = self.num_parts // self.num_places
        return range(place * each, (place + 1) * each)

    def parts_of(self, rank: int) -> range:
        """The parts that a rank reads from its own place."""
        return self.parts_on(rank // self.ranks_per_place)

    def mates_of(self, rank: int) -> range:
        """The ranks of the place of `rank`, itself among them: what one maps, the others can map."""
        first = rank // self.ranks_per_place * self.ranks_per_place
        return range(first, first + self.ranks_per_place)

    def ranks_with(self, part: int) -> range:
        """The ranks that can read a part; they are consecutive."""
        places_of_part = max(1, self.num_places // self.num_parts)
        first = part * self.num_places // self.num_parts * self.ranks_per_place
        return range(first, first + places_of_part * self.ranks_per_place)

    def servers_for(self, rank: int) -> NDArray[np.int64]:
        """Whom `rank` asks for each part [num_parts]: itself if it has it, else one of those that do, evenly spread."""
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
