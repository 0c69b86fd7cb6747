"""A process among the others of its run: they find each other, watch each other, and are linked by their roles."""

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import Final

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from graphmill.monitor.sampler import start_monitor
from graphmill.runtime.network import address_of_interface, address_towards, loopback
from graphmill.runtime.process import sched_batch_threads
from graphmill.runtime.rank import Rank
from graphmill.sample.service.link import Link, LostPeerError
from graphmill.sample.service.meeting import find_sampler, wait_for_trainers
from graphmill.spec.roles import process_of
from graphmill.train.assemble import RankContext
from graphmill.train.peers import choose_interface, exchange_peer_info, refuse_absent, refuse_few_files
from graphmill.train.store import open_words
from graphmill.train.watchdog import STALL_S, Watchdog
from graphmill.train.words import PeerTimeout, Words

_TOLD_WITHIN_S: Final = 3.0
_OF_A_CONNECTION: Final = re.compile(r"by peer|[Bb]roken pipe|gloo|[Ss]ocket|[Tt]imed out")


@dataclass(frozen=True, slots=True)
class PeerLinks:
    """What a process has of the others."""

    alive: Callable[[], None]  # to be called at each step
    links: list[Link]  # of a sampler to its trainers, of a trainer to its sampler; none where every rank samples


@contextmanager
def rendezvous(context: RankContext, on_lost: Callable[[str], None]) -> Iterator[PeerLinks]:
    """Meet the other processes; a watchdog runs within the block, and calls `on_lost` with the reason."""
    plan, process, role_rank, world = context.plan, context.process, context.role_rank, context.world
    if process.local_rank == 0:
        start_monitor(context.folder.path)
    if process.world_size == 1:
        yield PeerLinks(lambda: None, [])
        return
    setting = f"-O train.meet_timeout_s={2 * plan.meet_timeout_s:g}"
    patience = PeerTimeout(plan.meet_timeout_s, setting)
    refuse_few_files(process)
    words = context.words or open_words(process, os.environ, _named(context), patience)
    hostnames = exchange_peer_info(words, process, os.environ, patience)
    names = [f"{world.role_rank(number).name} on {hostname}" for number, hostname in enumerate(hostnames)]
    interface = choose_interface(hostnames, process, os.environ)
    if interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
    if process.num_hosts == 1:  # gloo would listen at the address that the host's name has
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    silence_s, patience_s = (
        plan.hang_timeout_s,
        STALL_S if role_rank.role == "trainer" else math.inf,
    )  # samplers are asked
    own_connection = words.by_own_connection()
    with Watchdog(own_connection, process.rank, names, silence_s, on_lost, patience_s) as watchdog:
        _join_group(context, words, patience.renewed())
        try:
            yield PeerLinks(watchdog.progress, _links(context, words, names, hostnames, patience.renewed()))
        except (LostPeerError, RuntimeError) as error:
            if world.samplers and (first := _first_gone(words, error)):
                raise LostPeerError(f"{first}; here: {error}") from error
            raise


def _named(context: RankContext) -> str:
    return f"{context.plan.run_id}, plan {context.folder.plan_hash()[:12]}"


def _join_group(context: RankContext, words: Words, patience: PeerTimeout) -> None:
    """The process group of those of the same role."""
    role_rank, process = context.role_rank, context.process
    if role_rank.num_ranks > 1:
        is_trainer = role_rank.role == "trainer"
        own = words.store if is_trainer else PrefixStore("samplers", words.store)
        backend = context.plan.backend if is_trainer else "gloo"
        join_group(backend, own, role_rank.rank, role_rank.num_ranks, words=words, process=process, patience=patience)
    words.about("joined").put(str(process.rank), "")


def join_group(
    backend: str, store: Store, rank: int, size: int, *, words: Words, process: Rank, patience: PeerTimeout
) -> None:
    """Make the process group. By a thread, for torch's own wait cannot be ended: `NotMetError` names who is absent."""
    failed: list[Exception] = []
    group = (backend, store, rank, size, failed)
    thread = Thread(target=_make_group, args=group, name="process group", daemon=True)
    thread.start()
    while thread.is_alive() and patience.go_on():
        pass
    if failed:
        raise failed[0]
    if thread.is_alive():
        joined = words.about("joined")
        present = [number for number in range(process.world_size) if joined.get(str(number)) is not None]
        refuse_absent("are connected with all others", present, process, os.environ, patience)


def _make_group(backend: str, store: Store, rank: int, size: int, failed: list[Exception]) -> None:
    timeout = timedelta(seconds=STALL_S)  # explicit: torch's default for nccl is a third of gloo's
    if backend == "nccl":
        backend = "cpu:gloo,cuda:nccl"  # votes and hashes go from host to host
    try:
        with sched_batch_threads():
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    except Exception as error:  # noqa: BLE001  # raised by the thread that waits
        failed.append(error)


def _links(
    context: RankContext, words: Words, names: Sequence[str], hostnames: Sequence[str], patience: PeerTimeout
) -> list[Link]:
    """The ways between this process and those of the other role; `names` and `hostnames` of all processes."""
    roles, role_rank, prefetch, process = context.world.roles, context.role_rank, context.plan.prefetch, context.process
    if roles is None:
        return []
    of_role = partial(process_of, roles=roles, hosts=context.world.hosts)
    board = words.about("service")
    if role_rank.role == "trainer":
        sampler = roles.sampler_of(role_rank.rank)
        number, key = of_role("sampler", sampler), f"sampler {sampler}"
        offered = board.awaited([key], patience)
        if not offered:
            refuse_absent("serve", sorted(set(range(process.world_size)) - {number}), process, os.environ, patience)
        return [find_sampler(offered[key], board.derived(key), role_rank.rank, names[number], prefetch)]
    trainers = [names[of_role("trainer", rank)] for rank in range(roles.trainers)]
    served, address = roles.trainers_of(role_rank.rank), _own_address(hostnames, process.rank)
    links = wait_for_trainers(board, role_rank.rank, served, trainers, prefetch, address, patience.go_on)
    came = {link.peer for link in links}
    absent = {of_role("trainer", rank) for rank in served if trainers[rank] not in came}
    present = sorted(set(range(process.world_size)) - absent)
    refuse_absent("came to their samplers", present, process, os.environ, patience)
    return links


def _own_address(hostnames: Sequence[str], process: int) -> str:
    """Address of this host, as the others reach it."""
    others = [name for name in hostnames if name != hostnames[process]]
    if not others:
        return loopback()
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    return address_of_interface(interface) if interface else address_towards(others[0])


def _first_gone(words: Words, error: LostPeerError | RuntimeError) -> str:
    """Which process ended first, if another process has said so or will in a moment; "": none did.

    A link names whom it has lost, a collective does not; and a process that fails for want of another is soon lost.
    """
    gone = words.about("gone")
    with suppress(RuntimeError):  # the store is gone with rank 0, or nobody says anything
        if isinstance(error, LostPeerError):
            first = gone.put_first("first", str(error))
            return "" if first == str(error) else first
        if _OF_A_CONNECTION.search(str(error)):
            return gone.awaited(["first"], PeerTimeout(_TOLD_WITHIN_S)).get("first", "")
    return ""
