"""How samplers and trainers find each other, through the store of the run."""

import json
import secrets
import select
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from torch.distributed.distributed_c10d import PrefixStore, Store

from graphmill.base.json_text import parse_json
from graphmill.sample.service.link import Link
from graphmill.sample.service.memory import SharedMemory

_GREETING: Final = struct.Struct("<32sq")  # the sampler's secret, the trainer's rank
_GREETED_WITHIN_S: Final = 10.0
_BATCHES_IN_USE: Final = 3  # being made, being copied to a GPU, computed on


def num_memories(prefetch: int) -> int:
    """Of each link: batches that can be alive at once, as many as where a rank samples for itself."""
    return prefetch + _BATCHES_IN_USE


def wait_for_trainers(
    store: Store, sampler: int, trainers: Sequence[int], names: Sequence[str], prefetch: int, address: str
) -> list[Link]:
    """A sampler's ends, of the trainers that it serves. `names`: of all trainers; `address`: of this host."""
    secret, near_name = secrets.token_hex(16), f"graphmill-{secrets.token_hex(8)}"
    found: dict[int, Link] = {}
    with socket.socket(socket.AF_UNIX) as near, socket.create_server((address, 0), family=_family(address)) as far:
        near.bind(f"\0{near_name}")
        near.listen()
        port = far.getsockname()[1]
        offer = {"secret": secret, "place": _place(), "near": near_name, "address": address, "port": port}
        _shared(store).set(f"sampler {sampler}", json.dumps(offer))
        while len(found) < len(trainers):
            for door in select.select([near, far], [], [])[0]:
                channel, _ = door.accept()
                trainer = _greeted(channel, secret)
                if (
                    trainer is None or trainer not in trainers or trainer in found
                ):  # whoever else connects to an open port
                    channel.close()
                    continue
                found[trainer] = _own_end(channel, names[trainer], prefetch, is_near=door is near)
    return [found[trainer] for trainer in trainers]


def find_sampler(store: Store, sampler: int, trainer: int, name: str, prefetch: int) -> Link:
    """A trainer's end, of the sampler called `name` that serves it."""
    offer = parse_json(_shared(store).get(f"sampler {sampler}"))
    is_near = offer["place"] == _place()
    if is_near:
        channel = socket.socket(socket.AF_UNIX)
        channel.connect(f"\0{offer['near']}")
    else:
        channel = _direct(socket.create_connection((offer["address"], offer["port"])))
    channel.sendall(_GREETING.pack(offer["secret"].encode(), trainer))
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


def _greeted(channel: socket.socket, secret: str) -> int | None:
    """The rank of the trainer that has connected; None: it does not know the secret."""
    channel.settimeout(_GREETED_WITHIN_S)
    try:
        said = channel.recv(_GREETING.size, socket.MSG_WAITALL)
    except OSError:
        return None
    channel.settimeout(None)
    if len(said) < _GREETING.size:
        return None
    known, rank = _GREETING.unpack(said)
    return int(rank) if secrets.compare_digest(known, secret.encode()) else None


def _direct(channel: socket.socket) -> socket.socket:
    """Without waiting whether a small message has company."""
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return channel


def _place() -> str:
    """What tells hosts apart that share no memory: kernel, and network namespace, whose the near sockets are."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {Path('/proc/self/ns/net').readlink()}"


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _shared(store: Store) -> Store:
    return PrefixStore("graphmill.service", store)
