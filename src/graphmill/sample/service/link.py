"""The way between a sampler and a trainer: a socket, and memory that both share if they are on one host.

Sockets, not a process group: a message of a few words arrives without a receiver having asked for it, and in 10 µs
rather than in the milliseconds that gloo's handshake takes of two busy processes.
"""

import socket
import struct
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import torch

from graphmill.sample.service.frames import Frame
from graphmill.sample.service.memory import SharedMemory

_MESSAGE: Final = struct.Struct("<4q")  # a word, and three numbers


class MessageType(IntEnum):
    """What a message says. Trainers ask, samplers answer."""

    EPOCH = 1  # batches of an epoch, from a step on
    RELEASE = 2  # the memory of a batch may be written again
    STOP = 3  # no more batches: so many were used
    EVALUATE = 4  # logits of nodes; a frame follows
    GO = 5  # on with the evaluation
    ABORT = 6  # it is given up
    SCALE = 7  # mean and deviation of the features
    BYE = 8  # the trainer ends, with this exit status; the sampler, that it has written what it had to
    BATCH = 9  # in the memory of that number, of so many bytes, or behind this message
    FRAME = 10  # behind this message
    TICK = 11  # an evaluation gets on; the sampler waits for GO or ABORT
    END = 12  # of the epoch; what was made for it follows, as a frame


@dataclass(frozen=True, slots=True)
class Message:
    """A word and its numbers."""

    word: MessageType
    numbers: tuple[int, int, int]


class LostPeerError(Exception):
    """The process at the other end has ended, or is cut off."""


class Link:
    """End of a connection. `peer`: the process at the other one, as a message names it.

    A sampler's end has `sends`, which is whether it sends batches rather than leaves them in shared memory: while it
    does so, in a thread, the next one is made.
    """

    def __init__(
        self, peer: str, channel: socket.socket, memories: Sequence[SharedMemory], *, is_near: bool, sends: bool
    ) -> None:
        self.peer, self.channel, self.is_near = peer, channel, is_near
        self.memories = tuple(memories)  # of batches: shared if the other end is near, else of this process
        self._turn = threading.Lock()
        self._sender = ThreadPoolExecutor(1, "graphmill-hand-over") if sends else None
        self._sent: list[Future[None] | None] = [None] * len(self.memories)  # the latest batch from each

    def tell(self, word: MessageType, *numbers: int, frame: Frame | None = None) -> None:
        """Send a message, and a frame behind it, whose size is the first number then."""
        behind: Any = b""
        if frame is not None:
            content = torch.empty(frame.num_bytes, dtype=torch.uint8)
            frame.write(content)
            numbers, behind = (len(content), *numbers), content.numpy().data
        head = _MESSAGE.pack(word, *numbers, *[0] * (3 - len(numbers)))
        if self._sender is None:
            self._send(head, behind)
        else:  # behind what was handed to it before
            self._sender.submit(self._send, head, behind).result()

    def hand_over(self, frame: Frame, number: int, wish: int) -> None:
        """Send a batch in memory `number`, which the other end has released. `wish`: 1 if this process is to stop."""
        memory, size = self.memories[number], frame.num_bytes
        if (earlier := self._sent[number]) is not None:
            earlier.result()
        content = memory.room(size)
        frame.write(content)
        head = _MESSAGE.pack(MessageType.BATCH, size, number, wish)
        if self._sender is None:
            self._send(head, b"")
        else:
            self._sent[number] = self._sender.submit(self._send, head, content.numpy().data)

    def hear(self) -> Message:
        """The next message, whenever it comes."""
        word, *numbers = _MESSAGE.unpack(self._receive(bytearray(_MESSAGE.size)))
        return Message(MessageType(word), (numbers[0], numbers[1], numbers[2]))

    def received(self, message: Message) -> Frame:
        """The batch or the frame that a message announces."""
        size, number, _ = message.numbers
        if message.word is MessageType.BATCH and self.is_near:
            return Frame.read(self.memories[number].bytes(size))
        is_batch = message.word is MessageType.BATCH
        content = self.memories[number].room(size) if is_batch else torch.empty(size, dtype=torch.uint8)
        self._receive(content.numpy().data)
        return Frame.read(content)

    def close(self) -> None:
        """Close this end; what was sent arrives."""
        if self._sender is not None:
            self._sender.shutdown()
        self.channel.close()
        for memory in self.memories:
            memory.close()

    def _send(self, head: bytes, behind: Any) -> None:  # noqa: ANN401  # bytes of any kind
        try:
            with self._turn:
                self.channel.sendall(head)
                if len(behind):
                    self.channel.sendall(behind)
        except OSError as error:
            raise self._lost(error) from None

    def _receive(self, into: Any) -> Any:  # noqa: ANN401  # bytes that can be written
        view = memoryview(into)
        try:
            while view:
                count = self.channel.recv_into(view)
                if not count:
                    raise ConnectionResetError("connection closed by peer")
                view = view[count:]
        except OSError as error:
            raise self._lost(error) from None
        return into

    def _lost(self, error: OSError) -> LostPeerError:
        return LostPeerError(f"{self.peer} is gone: {error.strerror or error}")
