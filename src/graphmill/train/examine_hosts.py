"""What `graphmill doctor --hosts N` runs on each host: `python -m graphmill.train.examine_hosts FOLDER HOST,HOST…`.

Each host looks at itself, meets the others, measures the ways to them, and writes `host_<rank>.json`. What goes wrong
is part of what it writes: a host that cannot meet the others says so, and the others go on without it.
"""

import argparse
import json
import os
import secrets
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.base.json_text import parse_json
from graphmill.base.messages import show_messages
from graphmill.diagnose.hosts.facts import AllReduce, Gpu, HostFacts, Link
from graphmill.diagnose.hosts.folders import look_at
from graphmill.diagnose.hosts.links import TOKEN_BYTES, Endpoint, measure, serving, shifts
from graphmill.runtime.code import code_checksum
from graphmill.runtime.machine import host_name, machine_info
from graphmill.runtime.network import address_of_interface, address_towards
from graphmill.runtime.rank import Rank, current_rank
from graphmill.train.device import is_built_for
from graphmill.train.patience import Patience
from graphmill.train.peers import choose_interface
from graphmill.train.store import PortBusyError, open_words
from graphmill.train.words import Words

_MEET_WITHIN_S: Final = 90.0  # programs start late from a shared file system that is busy
_ROUND_WITHIN_S: Final = 60.0
_SEEN_WITHIN_S: Final = 65.0  # NFS looks again for a file that was not there after up to a minute
_SMALL: Final = 4 << 10  # bytes
_LARGE: Final = (64 << 20, 16 << 20, 4 << 20)
_LARGE_WITHIN_S: Final = 1.0  # one sum of the most bytes that take no longer


@dataclass(frozen=True, slots=True)
class Member:
    """What a host tells the others when it arrives."""

    rank: int
    endpoint: Endpoint
    sign: str  # the name of the file that it wrote in the shared folder
    cuda: bool


@dataclass(frozen=True, slots=True)
class _Here:
    hosts: Sequence[str]  # of the job
    host: str  # this one
    folder: Path
    sign: str


def main(words: Sequence[str] | None = None) -> int:
    """Look at this host, and write what was seen."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.examine_hosts", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("hosts", help="of the job, in its order")
    options = parser.parse_args(words)
    show_messages()
    rank, hosts = current_rank(os.environ), options.hosts.split(",")
    sign = _leave_a_sign(options.folder, rank)
    facts = facts_here(rank, hosts, options.folder)
    found: dict[str, Any] = {}
    met: Words | None = None
    try:
        met = open_words(rank, os.environ, f"doctor of {hosts[0]}", Patience(_MEET_WITHIN_S))
        _meet_and_measure(found, met, rank, _Here(hosts, facts.host, options.folder, sign))
    except (
        OSError,
        RuntimeError,
        UserError,
        PortBusyError,
    ) as error:  # torch's are RuntimeErrors
        found["error"] = _in_a_line(error)
    facts = facts.model_copy(
        update={key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}
    )
    _write(facts, options.folder)
    if met is not None:
        _hand_over(facts, met.store, rank, options.folder)
    return exits.DONE


def facts_here(rank: Rank, hosts: Sequence[str], folder: Path) -> HostFacts:
    """What this host knows of itself."""
    machine = machine_info(os.environ)
    return HostFacts(
        rank=rank.rank,
        host=host_name(os.environ),
        code=code_checksum(),
        torch=torch.__version__,
        python=".".join(str(part) for part in sys.version_info[:3]),
        num_cores=machine.num_cores,
        memory_bytes=machine.memory_bytes,
        gpus=tuple(_gpus()),
        architectures=tuple(torch.cuda.get_arch_list()),
        temporary=look_at(Path(tempfile.gettempdir())),
        shared=look_at(folder),
        unknown_names=tuple(name for name in hosts if not _is_known(name)),
    )


def _gpus() -> list[Gpu]:
    built = torch.cuda.get_arch_list()
    found = []
    for number in range(torch.cuda.device_count()):
        capability = torch.cuda.get_device_capability(number)
        name = torch.cuda.get_device_name(number)
        text = f"{capability[0]}.{capability[1]}"
        found.append(Gpu(name=name, capability=text, is_supported=is_built_for(capability, built)))
    return found


def _is_known(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror:
        return False
    return True


def _leave_a_sign(folder: Path, rank: Rank) -> str:
    """Write a file of a name that nobody can know; returns the name. "": the folder is not there."""
    name = f"seen_{rank.rank}_{secrets.token_hex(8)}"
    try:
        (folder / name).touch()
    except OSError:
        return ""
    return name


def _meet_and_measure(found: dict[str, Any], words: Words, rank: Rank, here: _Here) -> None:
    """Fill fields of `HostFacts`, as far as it gets."""
    store, token = words.store, bytes.fromhex(words.derived("links"))[:TOKEN_BYTES]
    found["address"] = address = _own_address(here)
    with serving(address, token) as port:
        me = Member(rank.rank, Endpoint(here.host, address, port), here.sign, torch.cuda.is_available())
        members = _met(store, rank, me)
        found["absent"] = tuple(sorted(set(here.hosts) - {member.endpoint.host for member in members}))
        place = next(number for number, member in enumerate(members) if member.rank == rank.rank)
        found["seen_after_s"] = _seen_after(here.folder, members[(place + 1) % len(members)].sign)
        links: list[Link] = []
        found["links"] = links
        links.extend(_links(store, members, place, token))
    store.set(f"broken/{rank.rank}", str(sum(bool(link.error) for link in links)))
    is_whole = len(members) == rank.world_size
    if is_whole and not any(int(store.get(f"broken/{member.rank}")) for member in members):
        found["all_reduces"] = _all_reduces(store, rank, members)  # else a sum would wait in vain


def _own_address(here: _Here) -> str:
    """Where the others reach this host: at the interface that the environment names, else at what they are shown.

    Not what its own name resolves to: on many systems that is 127.0.1.1.
    """
    named = os.environ.get("GLOO_SOCKET_IFNAME")
    if named:
        return address_of_interface(named)
    return address_towards(next((name for name in here.hosts if name != here.host), here.host))


def _met(store: Store, rank: Rank, me: Member) -> list[Member]:
    """Those that arrived in time, the same list on all hosts: rank 0 makes it."""
    store.set(f"arrived/{rank.rank}", json.dumps(asdict(me)))
    if rank.rank == 0:
        until = time.monotonic() + _MEET_WITHIN_S
        arrived = [number for number in range(rank.world_size) if _has(store, f"arrived/{number}", until)]
        store.set("members", json.dumps(arrived))
    store.wait(["members"], timedelta(seconds=2 * _MEET_WITHIN_S))
    texts = [parse_json(store.get(f"arrived/{number}")) for number in parse_json(store.get("members"))]
    return [Member(**{**text, "endpoint": Endpoint(**text["endpoint"])}) for text in texts]


def _has(store: Store, key: str, until: float) -> bool:
    try:
        store.wait([key], timedelta(seconds=max(0.1, until - time.monotonic())))
    except RuntimeError:  # torch's for a wait that took too long
        return False
    return True


def _seen_after(folder: Path, sign: str) -> float | None:
    """Seconds until this host sees the file that another one wrote; None: it does not, or there is none."""
    begin = time.monotonic()
    while sign and time.monotonic() - begin < _SEEN_WITHIN_S:
        if (folder / sign).exists():
            return time.monotonic() - begin
        time.sleep(0.2)
    return None


def _links(store: Store, members: Sequence[Member], place: int, token: bytes) -> Iterator[Link]:
    """From this host to others, in rounds that all hosts begin together."""
    for shift in shifts(len(members)):
        _together(store, f"round {shift}", len(members))
        yield measure(members[(place + shift) % len(members)].endpoint, token)
    _together(store, "last round", len(members))  # the others still measure their way here


def _together(store: Store, what: str, number: int) -> None:
    """Wait until so many hosts have come here."""
    if store.add(what, 1) == number:
        store.set(f"{what}: all", "")
    store.wait([f"{what}: all"], timedelta(seconds=_ROUND_WITHIN_S))


def _all_reduces(store: Store, rank: Rank, members: Sequence[Member]) -> list[AllReduce]:
    """The time of a sum over all hosts: of little, which is latency, and of much, which is bandwidth."""
    if len(members) == 1:
        return []
    interface = choose_interface([member.endpoint.host for member in members], rank, os.environ)
    if interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
    backend = "nccl" if all(member.cuda for member in members) else "gloo"
    device = torch.device("cuda", 0) if backend == "nccl" else torch.device("cpu")
    group = PrefixStore("sums", store)
    timeout = timedelta(seconds=_ROUND_WITHIN_S)
    dist.init_process_group(backend, store=group, rank=rank.rank, world_size=rank.world_size, timeout=timeout)
    try:
        small = _sum_time(_SMALL, device, 50)
        large = next((size for size in _LARGE[:-1] if _sum_time(size, device, 1) < _LARGE_WITHIN_S), _LARGE[-1])
        sizes = ((_SMALL, small), (large, _sum_time(large, device, 5)))
        return [AllReduce(backend=backend, num_bytes=size, seconds=seconds) for size, seconds in sizes]
    finally:
        dist.destroy_process_group()


def _sum_time(num_bytes: int, device: torch.device, times: int) -> float:
    """Median seconds of a sum, the slowest host's: all agree on it."""
    values = torch.ones(num_bytes // 4, device=device)
    seconds = []
    for _ in range(times + 1):  # the first one connects
        values.fill_(1.0)
        begin = time.perf_counter()
        dist.all_reduce(values)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begin)
    median = torch.tensor([statistics.median(seconds[1:])], device=device)
    dist.all_reduce(median, op=dist.ReduceOp.MAX)
    return float(median)


def _hand_over(facts: HostFacts, store: Store, rank: Rank, folder: Path) -> None:
    """To rank 0, which writes what hosts that do not see the folder found out; it leaves last, as the store's host."""
    try:
        store.set(f"facts/{rank.rank}", facts.model_dump_json())
        if rank.rank != 0:
            return
        until = time.monotonic() + _ROUND_WITHIN_S
        for number in parse_json(store.get("members")):
            if _has(store, f"facts/{number}", until) and not _path(folder, number).exists():
                _write(HostFacts.model_validate_json(store.get(f"facts/{number}")), folder)
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"what the others found out was not fetched: {_in_a_line(error)}\n")


def _write(facts: HostFacts, folder: Path) -> None:
    try:
        write_text(_path(folder, facts.rank), facts.model_dump_json(indent=2) + "\n")
    except OSError as error:
        sys.stderr.write(f"{facts.host} cannot write to {folder}: {error.strerror}\n{facts.model_dump_json()}\n")


def _path(folder: Path, rank: int) -> Path:
    return folder / f"host_{rank}.json"


def _in_a_line(error: BaseException) -> str:
    """The first line: torch adds its C++ stack."""
    return str(error).strip().split("\n")[0] or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
