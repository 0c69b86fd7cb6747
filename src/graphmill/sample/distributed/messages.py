"""Messages whose length the receiver does not know, in one collective: no rank says first how much it will send.

Messages of one kind are about equally long from batch to batch, so both ends of a pair know by the ones before how much
room the next gets, of one batch or of several. Its length stands in front of it; what does not fit follows between
these two ranks alone. Rows of which both ends know how many there are may travel in front of a message, in the same
collective.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.sample.distributed.wire import Wire

Bytes = NDArray[np.uint8]
_HEADER: Final = 8
_ALIGNED: Final = 8
_SLACK: Final = 16  # a sixteenth more than was needed; and room shrinks by as much, at most, from one to the next
_NOTHING: Final = np.empty(0, dtype=np.uint8)
_SMALL: Final = 1 << 12  # bytes that cost no more than the message itself


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Rows that travel in front of messages. Nothing is copied: they are written and read where the network does."""

    row_bytes: int
    to: Sequence[int]  # [world_size]: how many go to each rank; none to the rank itself
    of: Sequence[int]  # [world_size]: and come from it
    write: Callable[[int, Bytes], None]  # those for a rank, [to[rank] × row_bytes], into this memory

    @classmethod
    def none(cls, world_size: int) -> "KnownRows":
        """Messages travel alone."""
        return cls(_ALIGNED, [0] * world_size, [0] * world_size, lambda rank, memory: None)


@dataclass(frozen=True, slots=True)
class Received:
    """What all ranks sent here."""

    sections: list[list[NDArray[Any]]]  # [num_sections][world_size]: as bytes; a rank's own are what they were
    table: Bytes  # [any, row_bytes]: the rows in front, and among them rows that mean nothing
    first_rows: NDArray[np.int64]  # [world_size]: of each rank's rows the first in the table


@dataclass(slots=True)
class Exchange:
    """Messages of one kind between all ranks, who must call it equally often, in the same order."""

    wire: Wire
    _room_to: list[int] = field(init=False)  # [world_size]: bytes for each batch that a message is of
    _room_of: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._room_to, self._room_of = [0] * self.wire.world_size, [0] * self.wire.world_size

    def swap(self, messages: Sequence[NDArray[Any]], num_batches: int = 1) -> list[Bytes]:
        """messages[r] goes to rank r → the bytes that each rank sent here; a rank's own stay where they are.

        `num_batches`: that the messages are of, equally many on all ranks.
        """
        data = [np.ascontiguousarray(message).reshape(-1).view(np.uint8) for message in messages]
        found, _, _ = self._swap(KnownRows.none(self.wire.world_size), data, num_batches)
        return found

    def swap_sections(
        self, rows: KnownRows, sections: Sequence[Sequence[NDArray[Any]]], num_batches: int = 1
    ) -> Received:
        """Swap messages of several arrays, sections[i][r] for rank r, with rows in front of them."""
        own, of_ranks = self.wire.rank, list(zip(*sections, strict=True))
        data = [packed(arrays) if rank != own else _NOTHING for rank, arrays in enumerate(of_ranks)]
        messages, table, first_rows = self._swap(rows, data, num_batches)
        found = [
            unpacked(message, len(sections)) if rank != own else of_ranks[own] for rank, message in enumerate(messages)
        ]
        return Received([list(of_section) for of_section in zip(*found, strict=True)], table, first_rows)

    def _swap(
        self, rows: KnownRows, data: Sequence[Bytes], num_batches: int
    ) -> tuple[list[Bytes], Bytes, NDArray[np.int64]]:
        """The messages that came, and the rows in front of them; rooms are of the messages alone."""
        if self.wire.process_group is None:
            return list(data), np.empty((0, rows.row_bytes), np.uint8), np.zeros(len(data), np.int64)
        room_to, room_of = ([num_batches * room for room in rooms] for rooms in (self._room_to, self._room_of))
        to, of = self._sizes(rows.row_bytes, rows.to, room_to), self._sizes(rows.row_bytes, rows.of, room_of)
        received = self.wire.swap_joined(self._written(rows, data, to, room_to), to, of)
        begins = np.cumsum([0, *of[:-1]])
        found = self._read(received, begins + np.multiply(rows.of, rows.row_bytes), data, room_to, room_of)
        self._room_to, self._room_of = (
            [_next_room(room, -(-len(one) // num_batches)) for room, one in zip(rooms, messages, strict=True)]
            for rooms, messages in ((self._room_to, data), (self._room_of, found))
        )
        return found, received.reshape(-1, rows.row_bytes), begins // rows.row_bytes

    def _sizes(self, row_bytes: int, counts: Sequence[int], rooms: Sequence[int]) -> list[int]:
        """Sizes of what goes to or comes from each rank: whole rows, so that what comes is a table."""
        sizes = [row_bytes * count + _HEADER + room for count, room in zip(counts, rooms, strict=True)]
        sizes[self.wire.rank] = 0
        return [-(-size // row_bytes) * row_bytes for size in sizes]

    def _written(self, rows: KnownRows, data: Sequence[Bytes], sizes: Sequence[int], rooms: Sequence[int]) -> Bytes:
        sent, begin = np.empty(sum(sizes), dtype=np.uint8), 0
        for rank, size in enumerate(sizes):
            if rank != self.wire.rank:
                memory, length = sent[begin : begin + size], rows.to[rank] * rows.row_bytes
                rows.write(rank, memory[:length])
                fits = data[rank][: rooms[rank]]
                memory[length : length + _HEADER] = np.array([len(data[rank])]).view(np.uint8)
                memory[length + _HEADER : length + _HEADER + len(fits)] = fits
                memory[length + _HEADER + len(fits) :] = 0
            begin += size
        return sent

    def _read(
        self,
        received: Bytes,
        begins: NDArray[np.int64],
        data: Sequence[Bytes],
        room_to: Sequence[int],
        room_of: Sequence[int],
    ) -> list[Bytes]:
        """The messages, which begin there; what did not fit is sent and waited for."""
        found, outgoing, incoming = list(data), dict[int, Bytes](), dict[int, Bytes]()
        for rank, begin in enumerate(begins.tolist()):
            if rank != self.wire.rank:
                length = int(received[begin : begin + _HEADER].view(np.int64)[0])
                first = begin + _HEADER
                found[rank] = received[first : first + min(length, room_of[rank])]
                if length > room_of[rank]:
                    incoming[rank] = np.empty(length - room_of[rank], dtype=np.uint8)
                if len(data[rank]) > room_to[rank]:
                    outgoing[rank] = data[rank][room_to[rank] :]
        if incoming or outgoing:
            self.wire.point_to_point(outgoing, incoming)
            for rank, rest in incoming.items():
                found[rank] = np.concatenate([found[rank], rest])
        return found


def packed(sections: Sequence[NDArray[Any]]) -> Bytes:
    """Several arrays in one message: their lengths (bytes), then each at a multiple of 8 bytes."""
    data = [np.ascontiguousarray(section).reshape(-1).view(np.uint8) for section in sections]
    lengths = np.array([len(section) for section in data])
    message, begin = np.zeros(int(8 * len(data) + _rounded(lengths).sum()), dtype=np.uint8), 8 * len(data)
    message[:begin] = lengths.view(np.uint8)
    for section, size in zip(data, _rounded(lengths).tolist(), strict=True):
        message[begin : begin + len(section)] = section
        begin += size
    return message


def unpacked(message: Bytes, num_sections: int) -> list[Bytes]:
    """The arrays of a message, as bytes."""
    begin, found = 8 * num_sections, []
    lengths = message[:begin].view(np.int64)
    for length, size in zip(lengths.tolist(), _rounded(lengths).tolist(), strict=True):
        found.append(message[begin : begin + length])
        begin += size
    return found


def _rounded(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return -(-lengths // _ALIGNED) * _ALIGNED


def _next_room(room: int, length: int) -> int:
    """Room for the next message, after one of `length` bytes came in `room`; a multiple of 8 keeps numbers aligned.

    Where not half of it was used, messages of another length follow: those of a cache that was filled, or of an
    evaluation. Room that shrank by sixteenths would send sixteen times the longest of them with nothing in it.
    """
    wanted = length + length // _SLACK
    if room <= _SMALL or length >= room // 2:
        wanted = max(wanted, room - room // _SLACK)
    return -(-wanted // 8) * 8
