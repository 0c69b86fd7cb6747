"""The local launcher: the ranks of one run as processes of this machine, which live and die together."""

import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Final

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.cluster.rank_process import RankExit, RankProcess
from graphmill.record.events import read_events
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import Outcome, RunFolder, Status
from graphmill.spec.plan import Plan

WORKER: Final = (sys.executable, "-m", "graphmill.train.worker")
GRACE_S: Final = 5.0  # for the others, once a rank has failed
NOT_READY: Final = "stopped before the ranks were ready"
STOPPED_AT_ONCE: Final = "stopped at once on a second interrupt"
_TICK_S: Final = 0.1
_HOLD_S: Final = 2.0
_TAIL_LINES: Final = 30
_SHOW_CURSOR: Final = "\x1b[?25h"
_LOST_A_PEER: Final = re.compile(
    r"by peer|[Bb]roken pipe|remote (process|worker|rank)|ncclRemoteError|[Ss]ocket closed"
)
_INTERRUPTED: Final = 128 + signal.SIGINT
_STOPPED_HARD: Final = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)


def run_ranks(
    folder: RunFolder,
    plan: Plan,
    *,
    resume: bool,
    command: Sequence[str] = WORKER,
    environ: Mapping[str, str] | None = None,
    grace_s: float = GRACE_S,
) -> int:
    """Start `plan.ranks` ranks, pass signals on to them, and wait for all.

    Returns 0 when all are done, 75 when they stopped after a checkpoint, 2 when the first error was the person's to
    mend, 130 after a second Ctrl-C, else 1. One failed rank ends the others within `grace_s`; its error is told first.
    The caller holds `folder.lock()` and has noted the attempt.
    """
    started = time.time()
    arguments = [*command, str(folder.path), *(["--resume"] if resume else [])]
    with _reserved_port() as port, _remembered_signals() as signals:
        ranks = _start(folder, plan, arguments, _environment(plan, port, os.environ if environ is None else environ))
        try:
            ended, killed = _supervise(ranks, signals, grace_s)
        finally:
            for rank in ranks:
                rank.kill()
            for rank in ranks:
                rank.close()
    if killed < float("inf") and sys.stdout.isatty():
        sys.stdout.write(_SHOW_CURSOR)  # a killed rank 0 cannot take back its progress bars' wish to hide it
    first = _first_failure(folder, ended, started, killed)
    result = _result(ended, signals, first)
    if result in (exits.ANSWER_IS_NO, exits.BAD_REQUEST) and first is not None:
        _tell(first, ranks, folder)
    elif ranks[0].shown is not None and not signals.received:
        ranks[0].shown.release()
    _note_outcome(folder, result, first, started)
    return result


@dataclass(slots=True)
class _Signals:
    """Signals the launcher received and has not passed on yet. Handlers append, and do nothing more."""

    received: list[signal.Signals]
    num_passed_on: int = 0

    @property
    def num_interrupts(self) -> int:
        """How often Ctrl-C was pressed."""
        return self.received.count(signal.SIGINT)

    def remember(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        del frame
        self.received.append(signal.Signals(number))

    def pass_on(self, ranks: Sequence[RankProcess]) -> None:
        """Send what came since the last call; a hang-up of the terminal asks for the same as SIGTERM."""
        for number in self.received[self.num_passed_on :]:
            self.num_passed_on += 1
            for rank in ranks:
                rank.send(signal.SIGTERM if number == signal.SIGHUP else number)


@contextmanager
def _remembered_signals() -> Iterator[_Signals]:
    signals = _Signals([])
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
def _reserved_port() -> Iterator[int]:
    """A port that is free, and stays ours while rank 0 comes up.

    The socket is bound but does not listen: rank 0, whose socket also reuses addresses, may bind the port and listen
    on it, while the system gives it to nobody who asks for just any port.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def _environment(plan: Plan, port: int, environ: Mapping[str, str]) -> dict[str, str]:
    """What all ranks share; the names are torchrun's."""
    return {
        **environ,
        "WORLD_SIZE": str(plan.ranks),
        "LOCAL_WORLD_SIZE": str(plan.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": str(plan.threads),
        # A thread that waits by spinning takes the core from the thread it waits for, where cores are shared.
        "OMP_WAIT_POLICY": environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _start(folder: RunFolder, plan: Plan, command: Sequence[str], environ: Mapping[str, str]) -> list[RankProcess]:
    ranks: list[RankProcess] = []
    try:
        for number in range(plan.ranks):
            own = {**environ, "RANK": str(number), "LOCAL_RANK": str(number)}
            ranks.append(RankProcess(number, command, own, folder.log_path(number)))
    except BaseException:
        for rank in ranks:
            rank.kill()
        raise
    return ranks


def _supervise(ranks: Sequence[RankProcess], signals: _Signals, grace_s: float) -> tuple[list[RankExit], float]:
    """Wait until all ranks have ended. Returns how they did, and when we killed the rest (infinity: never)."""
    queue: SimpleQueue[RankExit] = SimpleQueue()
    for rank in ranks:
        rank.report_exit(queue)
    ended: list[RankExit] = []
    give_up, killed = float("inf"), float("inf")
    while len(ended) < len(ranks):
        with suppress(Empty):
            ended.append(queue.get(timeout=_TICK_S))
        signals.pass_on(ranks)
        failed = any(rank.failed for rank in ended)
        if failed or signals.num_interrupts > 1:
            give_up = min(give_up, time.monotonic() + grace_s)
        elif ranks[0].shown is not None:
            ranks[0].shown.release(older_than_s=_HOLD_S)
        if time.monotonic() > give_up and killed == float("inf"):
            killed = time.time()
            for rank in ranks:
                rank.kill()
    return ended, killed


def _result(ended: Sequence[RankExit], signals: _Signals, first: RankExit | None) -> int:
    codes = {rank.code for rank in ended}
    if codes <= {exits.DONE, exits.OUT_OF_TIME}:
        return exits.OUT_OF_TIME if exits.OUT_OF_TIME in codes else exits.DONE
    stopped = signals.received and (first is None or first.code in _STOPPED_HARD)
    if stopped and signals.num_interrupts:
        return _INTERRUPTED
    if stopped:  # asked to stop before the ranks could listen: nothing is lost
        return exits.OUT_OF_TIME
    return exits.BAD_REQUEST if first is not None and first.code == exits.BAD_REQUEST else exits.ANSWER_IS_NO


def _first_failure(folder: RunFolder, ended: Sequence[RankExit], started: float, killed: float) -> RankExit | None:
    """The rank whose failure came first: by its own word where it left one, else by the time of its death.

    A rank that only says that it lost another one was not first, though it may say so before the other is quite dead.
    """
    failed = [rank for rank in ended if rank.failed and rank.time < killed]
    return min(failed, key=lambda rank: _order_of_failure(folder, rank, started), default=None)


def _order_of_failure(folder: RunFolder, rank: RankExit, started: float) -> tuple[bool, float]:
    path = folder.events_path(rank.rank)
    try:
        events = read_events(path) if path.exists() else []
    except UserError:  # a damaged file says nothing about the order
        events = []
    errors = [event for event in events if event["kind"] == "error" and event["time"] >= started]
    if not errors:
        return False, rank.time
    return _LOST_A_PEER.search(str(errors[0].get("message"))) is not None, min(rank.time, errors[0]["time"])


def _tell(first: RankExit, ranks: Sequence[RankProcess], folder: RunFolder) -> None:
    """Show the first error before its echoes in other ranks; those stay in their logs."""
    rank = ranks[first.rank]
    lines = rank.tail(_TAIL_LINES)
    if rank.shown is not None:
        rank.shown.release()
    elif first.code == exits.BAD_REQUEST:  # the rank has said what clashes and what to type
        sys.stderr.write("\n".join([*lines, ""]))
    if first.code == exits.BAD_REQUEST:
        return
    said = [f"  | {line}" for line in lines] if rank.shown is None else []
    read = f"read {rank.log}, mend it, then " if rank.log.exists() else ""
    advice = f"{read}continue with `graphmill train --resume {folder.path}`"
    what = f"error: rank {first.rank} of {len(ranks)} failed first: {first.in_words()}"
    report = [what, *said, f"  → {advice}", ""]
    sys.stderr.write("\n".join(report))


_STATUS: Final[Mapping[int, Status]] = {exits.OUT_OF_TIME: "out_of_time", _INTERRUPTED: "interrupted"}


def _note_outcome(folder: RunFolder, result: int, first: RankExit | None, started: float) -> None:
    """Say how the run ended where rank 0 could not, or did not know of the others' end."""
    known = folder.read_outcome()
    told_by_rank_0 = known is not None and known.exit_code == result and (first is None or first.rank == 0)
    if result == exits.DONE or told_by_rank_0:
        return
    epochs, steps = _progress(folder)
    folder.write_outcome(
        Outcome(
            status=_STATUS.get(result, "failed"),
            exit_code=result,
            epochs=epochs,
            steps_per_rank=steps,
            test=None if known is None else known.test,
            best=None if known is None else known.best,
            wall_s=time.time() - started,
            message=_reason(result, first),
        )
    )


def _reason(result: int, first: RankExit | None) -> str:
    if result == exits.OUT_OF_TIME:
        return NOT_READY
    if result == _INTERRUPTED or first is None:
        return STOPPED_AT_ONCE
    return f"rank {first.rank} failed first: {first.in_words()}"


def _progress(folder: RunFolder) -> tuple[int, int]:
    """Epochs and steps of each rank that the metrics tell of."""
    try:
        rows = read_metrics(folder.metrics_path) if folder.metrics_path.exists() else []
        return len(rows), int(rows[-1]["local_steps"]) if rows else 0
    except (UserError, KeyError, ValueError):  # a damaged table: `graphmill verify` says what is wrong with it
        return 0, 0
