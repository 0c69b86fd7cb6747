"""TCP connections between hosts, measured: round trips, bandwidth, clocks. Every host is a server and a client.

Who knows the job's token may send bytes here, which are counted and forgotten; nothing else is done with them.
"""

import hmac
import socket
import socketserver
import statistics
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from graphmill.diagnose.hosts.facts import Link

TOKEN_BYTES: Final = 16
_TIMEOUT_S: Final = 10.0  # of one connection, and of one answer
_PING: Final = 64
_NUM_PINGS: Final = 50
_NUM_CLOCKS: Final = 20
_CHUNK: Final = 1 << 20
_MOST_BYTES: Final = 256 << 20
_SEND_FOR_S: Final = 1.0
_ALL_PAIRS_UP_TO: Final = 16

_SIZE = struct.Struct("!I")
_TOTAL = struct.Struct("!Q")
_CLOCK = struct.Struct("!d")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a host listens."""

    host: str
    address: str
    port: int


def shifts(num_hosts: int) -> list[int]:
    """In each round every host measures its way to the one that stands so many places after it.

    All pairs of up to 16 hosts; of more, those at distances that are powers of two, so that the rounds stay few.

    >>> shifts(4), shifts(20)
    ([1, 2, 3], [1, 2, 4, 8, 16])
    """
    if num_hosts <= _ALL_PAIRS_UP_TO:
        return list(range(1, num_hosts))
    return [1 << power for power in range((num_hosts - 1).bit_length())]


@contextmanager
def serving(address: str, token: bytes) -> Iterator[int]:
    """Answer others at `address` within the block. Yields the port."""
    server = _Server((address, 0), _Handler)
    server.token = token
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def measure(to: Endpoint, token: bytes) -> Link:
    """Connect to a host and measure the way there. An error is part of the answer."""
    try:
        with socket.create_connection((to.address, to.port), timeout=_TIMEOUT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(token)
            round_trip = statistics.median([_ping(connection) for _ in range(_NUM_PINGS)])
            ahead, error = min((_clock(connection) for _ in range(_NUM_CLOCKS)), key=lambda seen: seen[1])
            speed = _send(connection)
    except OSError as problem:
        return Link(to=to.host, error=f"{to.address}: {problem.strerror or problem}")
    return Link(to=to.host, round_trip_s=round_trip, bytes_per_s=speed, clock_ahead_s=ahead, clock_error_s=error)


def _ping(connection: socket.socket) -> float:
    begin = time.perf_counter()
    connection.sendall(b"P" + bytes(_PING))
    _receive(connection, _PING)
    return time.perf_counter() - begin


def _clock(connection: socket.socket) -> tuple[float, float]:
    """By how much the other's clock is ahead, and how wrong that may be.

    It read its clock between our sending and our receiving: the offset of NTP (RFC 5905, section 8), with one reading.
    """
    before = time.time()
    connection.sendall(b"T")
    (there,) = _CLOCK.unpack(_receive(connection, _CLOCK.size))
    after = time.time()
    return there - (before + after) / 2, max(0.0, after - before) / 2


def _send(connection: socket.socket) -> float:
    """Bytes per second that arrive: as many as go within a second."""
    chunk = bytes(_CHUNK)
    connection.sendall(b"D")
    sent, begin = 0, time.perf_counter()
    while sent < _MOST_BYTES and time.perf_counter() - begin < _SEND_FOR_S:
        connection.sendall(_SIZE.pack(_CHUNK))
        connection.sendall(chunk)
        sent += _CHUNK
    connection.sendall(_SIZE.pack(0))
    (arrived,) = _TOTAL.unpack(_receive(connection, _TOTAL.size))
    return float(arrived / (time.perf_counter() - begin))


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionResetError(0, "the other host closed the connection")
        parts += part
    return bytes(parts)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    token = b""

    def handle_error(self, request: object, client_address: object) -> None:
        """The client sees that the connection ended, and reports it."""


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        connection: socket.socket = self.request
        connection.settimeout(_TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert isinstance(self.server, _Server), "it serves no other"
        if not hmac.compare_digest(_receive(connection, TOKEN_BYTES), self.server.token):
            return
        while what := connection.recv(1):
            if what == b"P":
                connection.sendall(_receive(connection, _PING))
            elif what == b"T":
                connection.sendall(_CLOCK.pack(time.time()))
            elif what == b"D":
                connection.sendall(_TOTAL.pack(_arrived(connection)))
            else:
                return


def _arrived(connection: socket.socket) -> int:
    """Read all that is sent, and count it."""
    buffer, total = memoryview(bytearray(_CHUNK)), 0
    while size := _SIZE.unpack(_receive(connection, _SIZE.size))[0]:
        left = size
        while left:
            read = connection.recv_into(buffer, min(left, _CHUNK))
            if not read:
                raise ConnectionResetError(0, "the other host closed the connection")
            left -= read
        total += size
    return total
