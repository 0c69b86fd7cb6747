"""While ranks run on several hosts: show what they print, pass signals on, end all when one fails or a host is lost.

What begins like an error is held back for a moment: it may be the echo of another rank's, which is shown first.
"""

import asyncio
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final

from graphmill.cluster.launch.judge import LostHost
from graphmill.cluster.launch.local import GRACE_S
from graphmill.cluster.launch.rank_process import RankExit, begins_error
from graphmill.cluster.launch.ssh.session import Gone, Session
from graphmill.cluster.launch.ssh.wire import Ended, Kill, Line, Message, Signal
from graphmill.record.endings import EndingName

_TAIL_LINES: Final = 30
_END_S: Final = 5.0  # for a terminal that the user has stopped
_TICK_S: Final = 0.2
_HOLD_S: Final = 2.0
_GRACE_OF_LOST_S: Final = 1.0
_NEVER: Final = float("inf")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class _OfRank:
    prefix: str
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))
    held: list[str] = field(default_factory=list)
    held_since: float = 0.0


class PrintingThread:
    """Prints from a thread of its own: a terminal that is stopped must not stop the heartbeats to the hosts."""

    def __init__(self, prefixes: dict[int, str]) -> None:
        self._ranks = {rank: _OfRank(prefix) for rank, prefix in prefixes.items()}
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._print, daemon=True)
        self._thread.start()

    def line(self, rank: int, text: str) -> None:
        """A rank printed a line."""
        known = self._ranks[rank]
        known.tail.append(text)
        if not known.held and not begins_error(text.encode()):
            self._queue.put(f"{known.prefix}{text}\n")
            return
        if not known.held:
            known.held_since = time.monotonic()
        known.held.append(text)

    def release(self, *, older_than_s: float = 0.0) -> None:
        """Show what was held back, if that was long enough ago."""
        for known in self._ranks.values():
            if known.held and time.monotonic() - known.held_since >= older_than_s:
                self._queue.put("".join(f"{known.prefix}{text}\n" for text in known.held))
                known.held.clear()

    def tail(self, rank: int) -> list[str]:
        """The last lines of a rank that are not empty."""
        return [text for text in self._ranks[rank].tail if text.strip()]

    def close(self) -> None:
        """Wait until everything is printed, but not for ever. What is still held back stays in the logs."""
        self._queue.put(None)
        self._thread.join(timeout=_END_S)

    def _print(self) -> None:
        while (text := self._queue.get()) is not None:
            with suppress(OSError, ValueError):  # our own output is gone; the logs have it
                sys.stdout.write(text)
                sys.stdout.flush()


@dataclass(slots=True)
class Supervision:
    """The ranks of one attempt, by session."""

    running: dict[int, set[int]]  # index of the session → ranks that have not ended
    sessions: Sequence[Session]
    shown: PrintingThread
    grace_s: float = GRACE_S
    ended: list[RankExit] = field(default_factory=list)
    lost: list[LostHost] = field(default_factory=list)
    received: list[signal.Signals] = field(default_factory=list)
    killed: float = _NEVER  # Unix time at which we ended the rest, s
    _give_up: float = _NEVER

    @property
    def requested(self) -> EndingName | None:
        """The ending that was requested."""
        if not self.received:
            return None
        return "interrupted" if self.num_interrupts > 1 else "stopped"

    @property
    def num_interrupts(self) -> int:
        """How often Ctrl-C was pressed."""
        return self.received.count(signal.SIGINT)

    async def run(self) -> None:
        """Wait until no rank runs any more on any host that we still reach."""
        with self._signals():
            listeners = [asyncio.create_task(self._listen(index)) for index in self.running]
            try:
                while any(self.running.values()):
                    await asyncio.wait(listeners, timeout=_TICK_S, return_when=asyncio.FIRST_EXCEPTION)
                    for listener in listeners:
                        if listener.done():
                            listener.result()  # a bug of ours must not look like a run that continues
                    self._decide()
            finally:
                for listener in listeners:
                    listener.cancel()

    def _decide(self) -> None:
        now = time.monotonic()
        if self.lost:  # the others can only wait for its ranks; nothing of theirs is worth waiting for
            self._give_up = min(self._give_up, now + _GRACE_OF_LOST_S)
        elif self.num_interrupts > 1 or any(rank.failed for rank in self.ended):
            self._give_up = min(self._give_up, now + self.grace_s)
        else:
            self.shown.release(older_than_s=_HOLD_S)
        if now > self._give_up and self.killed == _NEVER:
            self.killed = time.time()
            for session in self.sessions:
                session.send(Kill())

    async def _listen(self, index: int) -> None:
        session = self.sessions[index]
        while True:
            self._handle(index, await session.inbox.get())

    def _handle(self, index: int, message: Message | Gone) -> None:
        session = self.sessions[index]
        if isinstance(message, Line):
            self.shown.line(message.rank, message.text)
        elif isinstance(message, Ended):
            self.running[index].discard(message.rank)
            self.ended.append(RankExit(message.rank, message.code, message.time - session.ahead_s))
        elif isinstance(message, Gone) and self.running[index]:
            self.running[index].clear()
            words = tuple(session.last_words())
            self.lost.append(LostHost(session.host.name, message.reason, message.last_sign, words))

    def _receive(self, number: signal.Signals) -> None:
        """A hang-up of the terminal asks for the same as SIGTERM."""
        self.received.append(number)
        passed_on = signal.SIGTERM if number == signal.SIGHUP else number
        for session in self.sessions:
            session.send(Signal(number=passed_on))

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._receive, number)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
