"""How samplers and trainers find each other, through what they say in the store of the run.

A trainer knows a secret of the run, which is never in the store. Strangers may connect, and hold up no process.
"""

import json
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from graphmill.base.json_text import parse_json
from graphmill.runtime.network import family_of
from graphmill.sample.service.link import Link, LostPeerError
from graphmill.sample.service.memory import SharedMemory

_GREETING: Final = struct.Struct("<32sq")  # the sampler's secret, the trainer's rank
_GREETED_WITHIN_S: Final = 10.0
_STRANGERS: Final = 64  # connections that have not said who they are; with more, the oldest go
_LOOK_S: Final = 0.1
_CONNECTED_WITHIN_S: Final = 30.0
_BATCHES_IN_USE: Final = 3  # being made, being copied to a GPU, computed on


def num_memories(prefetch: int) -> int:
    """Number of memories of each link: batches alive at once, as many as where a rank samples for itself."""
    return prefetch + _BATCHES_IN_USE


class Board(Protocol):
    """Place where the processes of a run tell each other where they are; words of others are not taken there."""

    def put(self, key: str, word: str) -> None:
        """Say it."""

    def derived(self, purpose: str) -> str:
        """A secret of the run, of 32 characters."""


def wait_for_trainers(
    board: Board,
    sampler: int,
    trainers: Sequence[int],
    names: Sequence[str],
    prefetch: int,
    address: str,
    go_on: Callable[[], bool],
) -> list[Link]:
    """A sampler's ends, of the trainers that it serves: of those that have come when `go_on` no longer holds.

    `names`: of all trainers; `address`: of this host.
    """
    near_name = f"graphmill-{secrets.token_hex(8)}"
    found: dict[int, Link] = {}
    with socket.socket(socket.AF_UNIX) as near, socket.create_server((address, 0), family=family_of(address)) as far:
        near.bind(f"\0{near_name}")
        near.listen()
        offer = {"place": _place(), "near": near_name, "address": address, "port": far.getsockname()[1]}
        board.put(f"sampler {sampler}", json.dumps(offer))
        with _Doors((near, far), board.derived(f"sampler {sampler}")) as doors:
            while len(found) < len(trainers) and go_on():
                for trainer, channel in doors.greeted():
                    if trainer not in trainers or trainer in found:
                        channel.close()
                        continue
                    is_near = channel.family == socket.AF_UNIX
                    found[trainer] = _own_end(channel, names[trainer], prefetch, is_near=is_near)
    return [found[trainer] for trainer in trainers if trainer in found]


def find_sampler(offered: str, secret: str, trainer: int, name: str, prefetch: int) -> Link:
    """A trainer's end, of the sampler called `name`, by what that has said on the board."""
    offer = parse_json(offered)
    is_near = offer["place"] == _place()
    if is_near:
        channel = socket.socket(socket.AF_UNIX)
        channel.connect(f"\0{offer['near']}")
    else:
        channel = _connected(name, offer["address"], offer["port"])
    channel.sendall(_GREETING.pack(secret.encode(), trainer))
    memories = [_handed_over(channel) if is_near else SharedMemory.make() for _ in range(num_memories(prefetch))]
    return Link(name, channel, memories, is_near=is_near, sends=False)


def _own_end(channel: socket.socket, peer: str, prefetch: int, *, is_near: bool) -> Link:
    memories = [SharedMemory.make() for _ in range(num_memories(prefetch))]
    if not is_near:
        return Link(peer, _direct(channel), memories, is_near=False, sends=True)
    for memory in memories:
        socket.send_fds(channel, [b"m"], [memory.fd])
    return Link(peer, channel, memories, is_near=True, sends=False)


def _handed_over(channel: socket.socket) -> SharedMemory:
    _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    if not descriptors:
        raise ConnectionResetError("the sampler that was found has ended")
    return SharedMemory(descriptors[0])


class _Doors:
    """Listening sockets, and the connections whose greeting is not complete: no one of them is waited for."""

    def __init__(self, doors: Sequence[socket.socket], secret: str) -> None:
        self._doors, self._secret = doors, secret.encode()
        self._selector = selectors.DefaultSelector()
        self._came: dict[socket.socket, float] = {}  # in the order in which they came
        self._said: dict[socket.socket, bytearray] = {}

    def __enter__(self) -> "_Doors":
        for door in self._doors:
            door.setblocking(False)
            self._selector.register(door, selectors.EVENT_READ)
        return self

    def __exit__(self, *error: object) -> None:
        for channel in list(self._came):
            self._dismiss(channel)
        self._selector.close()

    def greeted(self) -> list[tuple[int, socket.socket]]:
        """The trainers that have said who they are since the last call, or within a moment, with their connections."""
        found = []
        for key, _ in self._selector.select(_LOOK_S):
            channel = key.fileobj
            assert isinstance(channel, socket.socket), "only sockets are registered"
            if channel in self._doors:
                self._let_in(channel)
            elif (trainer := self._heard(channel)) is not None:
                found.append((trainer, channel))
        for channel, came in list(self._came.items()):
            if time.monotonic() - came > _GREETED_WITHIN_S or len(self._came) > _STRANGERS:
                self._dismiss(channel)
        return found

    def _let_in(self, door: socket.socket) -> None:
        try:
            channel, _ = door.accept()
        except OSError:  # it has gone again
            return
        channel.setblocking(False)
        self._came[channel], self._said[channel] = time.monotonic(), bytearray()
        self._selector.register(channel, selectors.EVENT_READ)

    def _heard(self, channel: socket.socket) -> int | None:
        """The rank of the trainer that has connected; None: it has not said all yet, or does not know the secret."""
        said = self._said[channel]
        try:
            more = channel.recv(_GREETING.size - len(said))
        except OSError:
            more = b""
        said += more
        if more and len(said) < _GREETING.size:
            return None
        known, rank = _GREETING.unpack(said) if more else (b"", 0)
        if not secrets.compare_digest(known, self._secret):
            self._dismiss(channel)
            return None
        del self._came[channel], self._said[channel]
        self._selector.unregister(channel)
        channel.setblocking(True)
        return int(rank)

    def _dismiss(self, channel: socket.socket) -> None:
        del self._came[channel], self._said[channel]
        self._selector.unregister(channel)
        channel.close()


def _connected(name: str, address: str, port: int) -> socket.socket:
    try:
        channel = socket.create_connection((address, port), timeout=_CONNECTED_WITHIN_S)
    except OSError as error:
        raise LostPeerError(f"{name} cannot be reached at {address}:{port}: {error.strerror or error}") from None
    channel.settimeout(None)
    return _direct(channel)


def _direct(channel: socket.socket) -> socket.socket:
    """Have a socket send small messages at once, without waiting for more."""
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return channel


def _place() -> str:
    """What tells hosts apart that share no memory: kernel, and network namespace, whose the near sockets are."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {Path('/proc/self/ns/net').readlink()}"
