"""What ranks tell each other once they have met, and what they check: same code, a network between them."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import torch

from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.runtime.code import code_checksum
from graphmill.runtime.machine import host_name
from graphmill.runtime.network import interface_towards, refuse_unknown_interface
from graphmill.runtime.process import UNLIMITED_FILES, allow_open_files
from graphmill.runtime.rank import Rank
from graphmill.train.store import how_to_meet, interface_text, named, names_here
from graphmill.train.words import NotMetError, PeerTimeout, Words

_OWN_FILES: Final = 64  # of a process without others: 33 were seen, and data may have more files
_INTERFACES: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """What a rank sends to the others about itself."""

    hostname: str
    code: str  # checksum of graphmill's own files
    torch: str
    python: str


def exchange_peer_info(words: Words, rank: Rank, environ: Mapping[str, str], patience: PeerTimeout) -> list[str]:
    """Exchange the info of all ranks → the host names by rank.

    Every rank raises `UserError` if versions differ, and `NotMetError` if some do not come in time.
    """
    peers = words.about("peers")
    python = ".".join(str(part) for part in sys.version_info[:3])
    mine = PeerInfo(hostname=host_name(environ), code=code_checksum(), torch=torch.__version__, python=python)
    peers.put(str(rank.rank), json.dumps(asdict(mine)))
    found = peers.awaited([str(number) for number in range(rank.world_size)], patience)
    refuse_absent("came to the meeting", [int(number) for number in found], rank, environ, patience)
    infos = [PeerInfo(**parse_json(found[str(number)])) for number in range(rank.world_size)]
    for field in ("code", "torch", "python"):
        _refuse_differences(field, infos)
    return [info.hostname for info in infos]


def refuse_few_files(rank: Rank) -> None:
    """Raise a `UserError` if this process may not open as many files as its connections to the others take.

    In parts 2 to each other rank, and at rank 0 the store's 2 as well, measured with 2 to 8 ranks; the rest is its own.
    """
    needed = rank.world_size * (4 if rank.rank == 0 else 2) + _OWN_FILES
    most = allow_open_files()
    if most == UNLIMITED_FILES or most >= needed:
        return
    raise UserError(
        f"rank {rank.rank} of {rank.world_size} needs about {needed} open files, and {host_name({})} allows {most}"
        " (`ulimit -Hn`)",
        fix=f"raise the hard limit to {needed} (/etc/security/limits.conf; LimitNOFILE of slurmd and sshd), or train"
        " with fewer ranks",
    )


def refuse_absent(
    what: str, present: Sequence[int], rank: Rank, environ: Mapping[str, str], patience: PeerTimeout
) -> None:
    """Raise a `NotMetError` if not all ranks are `present`; `what`: they did."""
    missing = sorted(set(range(rank.world_size)) - set(present))
    if not missing:
        return
    host = environ.get("MASTER_ADDR", "")
    ranks = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
    raise NotMetError(
        f"within {patience.seconds:g} s of {named(rank, environ)} being ready, {len(present)} ranks {what}, but not"
        f" {ranks}; they meet at {host}:{environ.get('MASTER_PORT', '')}, {names_here([host])};"
        f" {interface_text(host, environ)}",
        fix=how_to_meet(rank, patience),
    )


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
