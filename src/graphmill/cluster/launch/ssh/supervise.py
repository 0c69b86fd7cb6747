"""While ranks run on several hosts: show what they print, pass signals on, end all when one fails or a host is lost."""

import asyncio
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from graphmill.cluster.launch.judge import LostHost
from graphmill.cluster.launch.local import GRACE_S
from graphmill.cluster.launch.rank_process import RankExit
from graphmill.cluster.launch.ssh.session import Gone, Session
from graphmill.cluster.launch.ssh.shown import PrintingThread
from graphmill.cluster.launch.ssh.wire import Ended, Kill, Line, Message, Signal
from graphmill.record.endings import EndingName

_TICK_S: Final = 0.2
_HOLD_S: Final = 2.0
_GRACE_OF_LOST_S: Final = 1.0
_NEVER: Final = float("inf")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
    def asked(self) -> EndingName | None:
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
            self._take(index, await session.inbox.get())

    def _take(self, index: int, message: Message | Gone) -> None:
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
