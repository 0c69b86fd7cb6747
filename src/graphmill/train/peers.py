"""Rendezvous of the ranks, and the checks before training: same code and versions, a network between the hosts."""

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

import torch
from torch.distributed import DistNetworkError
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.runtime.code import code_checksum
from graphmill.runtime.machine import host_name
from graphmill.runtime.network import interface_towards, refuse_unknown_interface
from graphmill.runtime.rank import Rank

_RESOLVED_WITHIN_S: Final = 20.0  # for a name service that is busy; a name that it does not know is refused at once
_INTERFACES: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


class PortBusyError(Exception):
    """Another process, or another run, listens on the port meant for the ranks."""


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """What a rank sends to the others about itself."""

    hostname: str
    code: str  # checksum of graphmill's own files
    torch: str
    python: str


def open_store(rank: Rank) -> Store:
    """The store at MASTER_ADDR:MASTER_PORT, hosted by rank 0 or by torchrun's agent."""
    _refuse_unknown_host(os.environ.get("MASTER_ADDR", "localhost"))
    try:
        store: Store = next(iter(rendezvous("env://", rank.rank, rank.world_size)))[0]
    except DistNetworkError as error:
        if rank.rank == 0 and ("EADDRINUSE" in str(error) or "in use" in str(error)):
            raise PortBusyError(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} is in use") from None
        raise
    return store


def _refuse_unknown_host(name: str) -> None:
    """Raise a `UserError` if `name` cannot be resolved here: torch would try until the job's time limit."""
    until = time.monotonic() + _RESOLVED_WITHIN_S
    while (problem := _why_unknown(name)) is not None:
        if problem.errno != socket.EAI_AGAIN or time.monotonic() >= until:
            here = socket.gethostname()
            raise UserError(
                f"{here} cannot resolve {name}, where rank 0 listens: {problem.strerror}",
                fix=f"ask the administrators, or leave this host out: --sbatch-arg --exclude={here}",
            )
        time.sleep(1)


def _why_unknown(name: str) -> socket.gaierror | None:
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror as error:
        return error
    return None


def exchange_peer_info(store: Store, rank: Rank, environ: Mapping[str, str], run: str) -> list[str]:
    """Exchange the info of all ranks of `run` → the host names by rank.

    Every rank raises `UserError` if versions differ. Raises `PortBusyError` if the store is that of another run, whose
    rank 0 was faster to take the port: what this rank says of itself there would make it a rank of that run.
    """
    shared = PrefixStore("graphmill.peers", store)
    if rank.rank == 0:
        shared.set("run", run)
    elif (found := shared.get("run").decode()) != run:
        raise PortBusyError(f"rank 0 of another run listens on the port of this one: {found}")
    python = ".".join(str(part) for part in sys.version_info[:3])
    mine = PeerInfo(hostname=host_name(environ), code=code_checksum(), torch=torch.__version__, python=python)
    shared.set(str(rank.rank), json.dumps(asdict(mine)))
    texts = shared.multi_get([str(number) for number in range(rank.world_size)])
    peers = [PeerInfo(**parse_json(text)) for text in texts]
    for field in ("code", "torch", "python"):
        _refuse_differences(field, peers)
    return [peer.hostname for peer in peers]


def _refuse_differences(field: str, peers: list[PeerInfo]) -> None:
    found: dict[str, set[str]] = {}
    for peer in peers:
        found.setdefault(getattr(peer, field), set()).add(peer.hostname)
    if len(found) == 1:
        return
    names = {"code": "graphmill's code", "torch": "torch", "python": "python"}
    # The fewest first: most often one host is behind.
    listed = [f"{what} on {', '.join(sorted(on))}" for what, on in sorted(found.items(), key=lambda pair: len(pair[1]))]
    raise UserError(
        f"the hosts do not run the same program: {names[field]} is {'; '.join(listed)}",
        fix="install the same version on every host, or let all use one environment on a shared file system",
    )


def choose_interface(hostnames: list[str], rank: Rank, environ: Mapping[str, str]) -> str | None:
    """The network interface towards another host of the run; None: on one host, or if the environment names one.

    Not by this host's own name: on many systems that is 127.0.1.1, where no other host can connect.
    """
    if environ.get("GLOO_SOCKET_IFNAME"):  # NCCL's variable may hold prefixes and exclusions
        refuse_unknown_interface(environ["GLOO_SOCKET_IFNAME"])
    others = [name for name in hostnames if name != hostnames[rank.rank]]
    if not others or any(environ.get(name) for name in _INTERFACES):
        return None
    return interface_towards(others[0])
