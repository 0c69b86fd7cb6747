"""Messages whose length the receiver does not know, in one collective: no rank says first how much it will send.

Messages of one kind are about equally long from batch to batch, so both ends of a pair know by the ones before how much
room the next gets. Its length stands in front of it; what does not fit follows between these two ranks alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.sample.distributed.wire import Wire

Bytes = NDArray[np.uint8]
_HEADER: Final = 8
_SLACK: Final = 16  # a sixteenth more than was needed; and room shrinks by as much, at most, from one to the next
_SMALL: Final = 1 << 12  # bytes that cost no more than the message itself


@dataclass(slots=True)
class Letters:
    """Messages of one kind between all ranks, who must call `swap` equally often, in the same order."""

    wire: Wire
    _room_to: list[int] = field(init=False)
    _room_of: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._room_to, self._room_of = [0] * self.wire.world_size, [0] * self.wire.world_size

    def swap(self, messages: Sequence[NDArray[Any]]) -> list[Bytes]:
        """messages[r] goes to rank r → the bytes that each rank sent here; a rank's own stay where they are."""
        own, everyone = self.wire.rank, range(self.wire.world_size)
        data = [np.ascontiguousarray(message).reshape(-1).view(np.uint8) for message in messages]
        if self.wire.world_size == 1:
            return data
        to = [0 if rank == own else _HEADER + self._room_to[rank] for rank in everyone]
        of = [0 if rank == own else _HEADER + self._room_of[rank] for rank in everyone]
        sent = np.zeros(sum(to), dtype=np.uint8)
        begins_to, begins_of = np.cumsum([0, *to]), np.cumsum([0, *of])
        for rank in everyone:
            if rank != own:
                begin = begins_to[rank]
                fits = data[rank][: self._room_to[rank]]
                sent[begin : begin + _HEADER] = np.array([len(data[rank])]).view(np.uint8)
                sent[begin + _HEADER : begin + _HEADER + len(fits)] = fits
        received = self.wire.swap_joined(sent, to, of)
        found, outgoing, incoming = list(data), dict[int, Bytes](), dict[int, Bytes]()
        for rank in everyone:
            if rank != own:
                length = int(received[begins_of[rank] : begins_of[rank] + _HEADER].view(np.int64)[0])
                first = begins_of[rank] + _HEADER
                found[rank] = received[first : first + min(length, self._room_of[rank])]
                if length > self._room_of[rank]:
                    incoming[rank] = np.empty(length - self._room_of[rank], dtype=np.uint8)
                if len(data[rank]) > self._room_to[rank]:
                    outgoing[rank] = data[rank][self._room_to[rank] :]
                self._room_to[rank] = _next_room(self._room_to[rank], len(data[rank]))
                self._room_of[rank] = _next_room(self._room_of[rank], length)
        if incoming or outgoing:
            self.wire.point_to_point(outgoing, incoming)
            for rank, rest in incoming.items():
                found[rank] = np.concatenate([found[rank], rest])
        return found


def _next_room(room: int, length: int) -> int:
    """For the next message, after one of `length` bytes came in `room`; a multiple of 8: numbers stay aligned.

    Where not half of it was used, messages of another length follow: those of a cache that was filled, or of an
    evaluation. Room that shrank by sixteenths would send sixteen times the longest of them with nothing in it.
    """
    wanted = length + length // _SLACK
    if room <= _SMALL or length >= room // 2:
        wanted = max(wanted, room - room // _SLACK)
    return -(-wanted // 8) * 8
