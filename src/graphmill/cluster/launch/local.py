"""The local launcher: the ranks, and samplers, of one run as processes of this machine; if one fails, all are ended."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, Queue
from types import FrameType
from typing import Final

from graphmill.base import exits
from graphmill.base.foreign import printable
from graphmill.base.python import as_module
from graphmill.cluster.launch.judge import TAIL_LINES, AttemptEvidence, Judgement, ProcessFailure, judge, note_outcome
from graphmill.cluster.launch.rank_process import RankExit, RankProcess
from graphmill.record.endings import EndingName
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.network import family_of, loopback
from graphmill.runtime.process import PYG
from graphmill.runtime.secret import TOKEN, new_token
from graphmill.spec.dotted import may_import
from graphmill.spec.plan import Plan
from graphmill.spec.world import World

Watch = Callable[[bool], bool]
"""Called every moment while ranks run, and once after, with whether a signal has asked for their end. Returns whether
they shall end now, as if by one: who watches a run may stop it."""
WORKER: Final = tuple(as_module("graphmill.train.worker"))
GRACE_S: Final = 5.0  # for the others, once a rank has failed
_TICK_S: Final = 0.1
_HOLD_S: Final = 2.0
_OF_OPENMP: Final = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_SPINS: Final = "3000"  # of GNU's runtime, some 30 microseconds; many more stall a machine that others use
_SHOW_CURSOR: Final = "\x1b[?25h"


def run_ranks(
    folder: RunFolder,
    plan: Plan,
    *,
    resume: bool,
    program: Sequence[str] = WORKER,
    environ: Mapping[str, str] | None = None,
    grace_s: float = GRACE_S,
    watch: Watch | None = None,
) -> int:
    """Start the ranks of the attempt that was begun, pass signals on to them, and wait for all.

    Returns the exit status of the run's ending. One failed rank ends the others within `grace_s`; its error is shown
    first. The caller has begun the attempt (`record/attempts.py`).
    """
    started, world = time.time(), folder.world()
    arguments = [*program, str(folder.path), *(["--resume"] if resume else [])]
    address = loopback() if world.processes > 1 else ""
    with reserved_port(address) as port, remembered_signals() as signals:
        given = os.environ if environ is None else environ
        shared = environment_of_ranks(given, plan, world, address=address, port=port, token=new_token())
        ranks = _start(folder, world, arguments, shared, imports_of(program, plan))
        try:
            ended, killed = _supervise(ranks, signals, grace_s, watch)
        finally:
            for rank in ranks:
                rank.kill()
            for rank in ranks:
                rank.close()
    if watch is not None:
        watch(bool(signals.received))
    if killed < float("inf") and sys.stdout.isatty():
        sys.stdout.write(_SHOW_CURSOR)  # a killed rank 0 cannot show the cursor again that its progress bars hid
    judgement = judge(folder, AttemptEvidence(started, ended, killed, requested=signals.requested))
    if judgement.first is not None and judgement.ending.name != "interrupted":
        _report(judgement, judgement.first, ranks, folder)
    elif ranks[0].shown is not None and signals.requested is None:
        ranks[0].shown.release()
    note_outcome(folder, judgement, started)
    return judgement.ending.exit_status


@dataclass(slots=True)
class StopNoted:
    """A `Watch` that ends no run, for who starts several: a stop after the last step of one ends those to come."""

    is_requested: bool = False

    def __call__(self, is_stop_requested: bool) -> bool:
        """Look, as a `Watch`."""
        self.is_requested = is_stop_requested
        return False


@dataclass(slots=True)
class StopSignals:
    """Signals the launcher received and has not passed on yet. Handlers append, and do nothing more."""

    received: list[signal.Signals]
    num_passed_on: int = 0
    is_ended_by_watch: bool = False

    @property
    def num_interrupts(self) -> int:
        """How often Ctrl-C was pressed."""
        return self.received.count(signal.SIGINT)

    @property
    def requested(self) -> EndingName | None:
        """The ending that was requested."""
        if not self.received:
            return "stopped" if self.is_ended_by_watch else None
        return "interrupted" if self.num_interrupts > 1 else "stopped"

    def remember(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: remember that it came."""
        del frame
        self.received.append(signal.Signals(number))

    def pass_on(self, ranks: Sequence[RankProcess]) -> None:
        """Send what came since the last call; a hang-up of the terminal asks for the same as SIGTERM."""
        for number in self.received[self.num_passed_on :]:
            self.num_passed_on += 1
            for rank in ranks:
                rank.send(signal.SIGTERM if number == signal.SIGHUP else number)

    def look(self, watch: Watch, ranks: Sequence[RankProcess]) -> None:
        """Ask who watches, and end the ranks, once, if that is the answer."""
        if watch(bool(self.received)) and not self.is_ended_by_watch:
            self.is_ended_by_watch = True
            for rank in ranks:
                rank.send(signal.SIGTERM)


@contextmanager
def remembered_signals() -> Iterator[StopSignals]:
    """Signals that ask for an end, in place of what they did before the block."""
    signals = StopSignals([])
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield signals
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    earlier = {number: signal.signal(number, signals.remember) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def reserved_port(address: str, port: int = 0) -> Iterator[int]:
    """A port that is free on `address`, and stays ours while rank 0 comes up; `port` if it is given.

    Raises `OSError` if that one is taken.

    The socket is bound but does not listen: rank 0, whose socket also reuses addresses, may bind the port and listen
    on it, while the kernel assigns it to no process that binds port 0.
    """
    with socket.socket(family_of(address), socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((address, port))
        yield int(held.getsockname()[1])


def environment_of_ranks(
    environ: Mapping[str, str],
    plan: Plan,
    world: World | None = None,
    *,
    address: str = "",
    port: int = 0,
    token: str = "",
) -> dict[str, str]:
    """What all ranks of a run on this machine share; `world`: of the attempt, None: as planned."""
    world = world or plan.world
    return shared_environment(
        environ,
        processes=world.processes,
        processes_here=world.processes,
        threads=world.threads,
        address=address,
        port=port,
        interface="lo",
        token=token,
        computes_with_torch=plan.task.computes_with_torch,
    )


def shared_environment(
    environ: Mapping[str, str],
    *,
    processes: int,
    processes_here: int,
    threads: int,
    address: str,
    port: int,
    interface: str,
    token: str,
    computes_with_torch: bool,
) -> dict[str, str]:
    """What all ranks of one host share; the names are torchrun's. Rank 0 listens at `address`:`port`.

    `token`: of the attempt, the same on all hosts (`Secret`). `computes_with_torch`: `TaskPlan.computes_with_torch`.
    """
    return {
        **_how_threads_wait(environ, shares_cores=processes_here * threads > _cores(), torch=computes_with_torch),
        **environ,
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes_here),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": str(threads),
        "GLOO_SOCKET_IFNAME": interface,
        TOKEN: token,
    }


def _how_threads_wait(environ: Mapping[str, str], *, shares_cores: bool, torch: bool) -> dict[str, str]:
    """Whether OpenMP's threads, which torch's operators have, spin for a while when they wait, or sleep at once.

    A thread that spins takes the core from the thread it waits for, if cores are shared: by ranks, or with the native
    core's own threads. Where torch's small operators follow each other, a thread that sleeps is woken for each of them,
    and an epoch takes twice as long (benchmarks/plain_epoch.py). What a user has set stays.
    """
    if any(name in environ for name in _OF_OPENMP):
        return {}
    passive = {"OMP_WAIT_POLICY": "PASSIVE"}
    return passive if shares_cores or not torch else passive | {"GOMP_SPINCOUNT": _SPINS}


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def imports_of(program: Sequence[str], plan: Plan) -> tuple[str, ...]:
    """Modules that ranks need, to be imported once: ours, and PyG for a model that uses it, which takes seconds.

    The user's own are imported by each rank.
    """
    if tuple(program[: len(WORKER)]) != WORKER:
        return ()
    task, _, _ = plan.kind.task.partition(":")
    of_user = [PYG] if any(may_import(target, PYG) for _, target in plan.own_code) else []
    return (WORKER[-1], *([task] if task.startswith("graphmill.") else []), *of_user)


def _start(
    folder: RunFolder, world: World, program: Sequence[str], environ: Mapping[str, str], imports: Sequence[str]
) -> list[RankProcess]:
    ranks: list[RankProcess] = []
    try:
        for number in range(world.processes):
            own = {**environ, "RANK": str(number), "LOCAL_RANK": str(number)}
            log = folder.log_path_of(world.role_rank(number))
            ranks.append(RankProcess(number, program, own, log, imports=imports))
    except BaseException:
        for rank in ranks:
            rank.kill()
        raise
    return ranks


def _supervise(
    ranks: Sequence[RankProcess], signals: StopSignals, grace_s: float, watch: Watch | None
) -> tuple[list[RankExit], float]:
    """Wait until all ranks have ended. Returns how they did, and when we killed the rest (infinity: never)."""
    # No SimpleQueue: in CPython 3.11 a signal near the end of its timed wait makes that wait endless.
    queue: Queue[RankExit] = Queue()
    for rank in ranks:
        rank.report_exit(queue)
    ended: list[RankExit] = []
    give_up, killed = float("inf"), float("inf")
    while len(ended) < len(ranks):
        with suppress(Empty):
            ended.append(queue.get(timeout=_TICK_S))
        signals.pass_on(ranks)
        if watch is not None:
            signals.look(watch, ranks)
        failed = any(rank.failed for rank in ended)
        if failed or signals.num_interrupts > 1:
            give_up = min(give_up, time.monotonic() + grace_s)
        elif ranks[0].shown is not None and signals.requested is None:  # else it may be how an import was interrupted
            ranks[0].shown.release(older_than_s=_HOLD_S)
        if time.monotonic() > give_up and killed == float("inf"):
            killed = time.time()
            for rank in ranks:
                rank.kill()
    return ended, killed


def _report(judgement: Judgement, first: ProcessFailure, ranks: Sequence[RankProcess], folder: RunFolder) -> None:
    """Show the first error before its echoes in other ranks; those stay in their logs."""
    assert first.process is not None, "hosts are lost over SSH only"
    rank = ranks[first.process]
    lines = rank.tail(TAIL_LINES)
    if rank.shown is not None:
        rank.shown.release()
    elif first.code == exits.BAD_REQUEST:  # the rank has printed what clashes and what to type
        sys.stderr.write(printable("\n".join([*lines, ""])))
    if first.code == exits.BAD_REQUEST:
        return
    sys.stderr.write(
        judgement.report(
            lines if rank.shown is None else [],
            log=str(rank.log) if rank.has_log() else None,
            resume=f"graphmill train --resume {folder.path}",
        )
    )
