"""A process among the others of its run: they find each other, watch each other, and are linked by their roles."""

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from graphmill.monitor.sampler import start_monitor
from graphmill.runtime.network import address_of_interface, address_towards
from graphmill.sample.service.link import Link, LostPeerError
from graphmill.sample.service.meeting import find_sampler, wait_for_trainers
from graphmill.spec.plan import Plan
from graphmill.spec.roles import Seat, process_of
from graphmill.spec.world import World
from graphmill.train.assemble import RankContext
from graphmill.train.peers import choose_interface, exchange_peer_info, open_store
from graphmill.train.watchdog import STALL_S, Watchdog

_TOLD_WITHIN_S: Final = 3.0
_OF_A_CONNECTION: Final = re.compile(r"by peer|[Bb]roken pipe|gloo|[Ss]ocket|[Tt]imed out")


@dataclass(frozen=True, slots=True)
class Company:
    """What a process has of the others."""

    alive: Callable[[], None]  # to be called at each step
    links: list[Link]  # of a sampler to its trainers, of a trainer to its sampler; none where every rank samples


@contextmanager
def together(context: RankContext, on_lost: Callable[[str], None]) -> Iterator[Company]:
    """Rendezvous with the other processes; a watchdog runs within the block, and calls `on_lost` with the reason."""
    plan, process, seat, world = context.plan, context.process, context.seat, context.world
    if process.local_rank == 0:
        start_monitor(context.folder.path, subjects=_subjects(world))
    if process.world_size == 1:
        yield Company(lambda: None, [])
        return
    store = context.store if context.store is not None else open_store(process)
    run = f"{plan.run_id}, plan {context.folder.plan_hash()[:12]}"
    hostnames = exchange_peer_info(store, process, os.environ, run)
    names = [f"{world.seat(number).name} on {hostname}" for number, hostname in enumerate(hostnames)]
    interface = choose_interface(hostnames, process, os.environ)
    if interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
    own_connection = store.clone()  # type: ignore[attr-defined]  # torch's stubs lack it
    patience_s = STALL_S if seat.role == "trainer" else math.inf  # a sampler waits until it is asked for something
    with Watchdog(own_connection, process.rank, names, plan.hang_timeout_s, on_lost, patience_s) as watchdog:
        _join_group(plan, seat, store)
        try:
            yield Company(watchdog.progress, _links(context, store, names, hostnames))
        except (LostPeerError, RuntimeError) as error:
            if world.samplers and (first := _first_gone(store, error)):
                raise LostPeerError(f"{first}; here: {error}") from error
            raise


def _subjects(world: World) -> list[str]:
    """What the monitor's rows are of, by number of the process; none where each is the rank of its number."""
    return [world.seat(process).stem for process in range(world.processes)] if world.samplers else []


def _join_group(plan: Plan, seat: Seat, store: Store) -> None:
    """The process group of those of the same role."""
    if seat.num_ranks == 1:
        return
    backend, own = (plan.backend, store) if seat.role == "trainer" else ("gloo", PrefixStore("samplers", store))
    timeout = timedelta(seconds=STALL_S)  # explicit: torch's default for nccl is a third of gloo's
    dist.init_process_group(backend, store=own, rank=seat.rank, world_size=seat.num_ranks, timeout=timeout)


def _links(context: RankContext, store: Store, names: Sequence[str], hostnames: Sequence[str]) -> list[Link]:
    """The ways between this process and those of the other role; `names` and `hostnames` of all processes."""
    roles, seat, prefetch = context.world.roles, context.seat, context.plan.prefetch
    if roles is None:
        return []
    of_role = partial(process_of, roles=roles, hosts=context.world.hosts)
    if seat.role == "trainer":
        sampler = roles.sampler_of(seat.rank)
        return [find_sampler(store, sampler, seat.rank, names[of_role("sampler", sampler)], prefetch)]
    trainers = [names[of_role("trainer", rank)] for rank in range(roles.trainers)]
    address = _own_address(hostnames, context.process.rank)
    return wait_for_trainers(store, seat.rank, roles.trainers_of(seat.rank), trainers, prefetch, address)


def _own_address(hostnames: Sequence[str], process: int) -> str:
    """Of this host, as the others reach it."""
    others = [name for name in hostnames if name != hostnames[process]]
    if not others:
        return "127.0.0.1"
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    return address_of_interface(interface) if interface else address_towards(others[0])


def _first_gone(store: Store, error: LostPeerError | RuntimeError) -> str:
    """Which process ended first, if another process has said so or will in a moment; "": none did.

    A link names whom it has lost, a collective does not; and whoever fails for want of another is soon lost, too.
    """
    shared = PrefixStore("graphmill.gone", store)
    shared.set_timeout(timedelta(seconds=_TOLD_WITHIN_S))
    with suppress(RuntimeError):  # the store is gone with rank 0, or nobody says anything
        if isinstance(error, LostPeerError):
            first = shared.compare_set("first", "", str(error)).decode()
            return "" if first == str(error) else first
        if _OF_A_CONNECTION.search(str(error)):
            return shared.get("first").decode()
    return ""
