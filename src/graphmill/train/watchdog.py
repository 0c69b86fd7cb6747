"""Detect lost ranks. A rank that is stopped, or whose host is gone, would leave the others waiting forever.

Every rank has two threads. One sends heartbeats to the ranks' store. The other checks: on rank 0 that all ranks sent
one recently, on the others that the store (hosted by rank 0) answered recently, on all that the own loop made progress.
If not, it reports which rank on which host is missing, and ends its process: the main thread may be inside a collective
that never returns. Rank 0 says so in the store first, so that the others end with the same reason, and do not each wait
for a silence of rank 0. Words are signed (`words.py`): those of a stranger end no run.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Final, NoReturn

from graphmill.base import exits
from graphmill.train.words import Words

STALL_S: Final = 1800.0  # without a step of this rank, as long as a collective may take
_BEATS: Final = 10  # heartbeats per `silence_s`, at least
_LONGEST_BEAT_S: Final = 2.0
_ALONE_S: Final = 10.0  # that a rank goes on without a store: rank 0 may only be the first to have finished
_REASON: Final = "what is lost"  # key of the store


@dataclass(slots=True)
class Watchdog:
    """Watches from `start` until the block it is entered for ends."""

    words: Words  # by a connection of its own: a blocking call must not block other users
    rank: int  # among all processes
    names: list[str]  # of all of them, with their hosts
    silence_s: float  # a rank without a heartbeat for this long is lost
    on_lost: Callable[[str], None]  # called with the reason, before the process ends
    stall_s: float = STALL_S
    _progress_at: float = field(default_factory=time.monotonic)
    _answered_at: float = field(default_factory=time.monotonic)
    _alone_since: float | None = None  # when the store went away
    _heard: str = ""  # what rank 0 found lost
    _over: threading.Event = field(default_factory=threading.Event)
    _tells: threading.Lock = field(default_factory=threading.Lock)  # held while a loss is told

    def __enter__(self) -> "Watchdog":
        shared = self.words.about("watchdog")
        shared.store.set_timeout(timedelta(seconds=self.silence_s))
        for work in (self._beat, self._judge):
            threading.Thread(target=work, args=(shared,), name=work.__name__, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._tells:  # ranks that were told end, and break what the main thread is in: the loss is the reason
            self._over.set()

    def progress(self) -> None:
        """Note that the loop made progress: a step, a part of an evaluation."""
        self._progress_at = time.monotonic()

    @property
    def _beat_s(self) -> float:
        return min(_LONGEST_BEAT_S, self.silence_s / _BEATS)

    def _beat(self, shared: Words) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            try:
                shared.put(f"beat of {self.rank}", str(number))
                shared.get(f"beat of {self.rank}")  # a put may be taken by the socket alone; this waits for an answer
                self._answered_at = time.monotonic()
                self._heard = shared.get(_REASON) or ""
            except RuntimeError:  # the store is gone with rank 0, or did not answer in time: `_judge` detects it
                self._alone_since = time.monotonic()
                return
            self._over.wait(self._beat_s)

    def _judge(self, shared: Words) -> None:
        heard: dict[int, tuple[str, float]] = {}
        looked_at = time.monotonic()
        while not self._over.wait(self._beat_s):
            now = time.monotonic()
            if now - looked_at > self.silence_s / 2:  # this process itself was stopped: it received no heartbeat
                heard.clear()
                self._answered_at = self._progress_at = now
            looked_at = now
            why = self._what_is_lost(shared, heard, now)
            with self._tells:
                if why and not self._over.is_set():
                    self._tell(shared, why)

    def _tell(self, shared: Words, why: str) -> NoReturn:
        if self.rank == 0:
            shared.put(_REASON, why)
        self.on_lost(why)
        sys.stderr.flush()
        if self.rank == 0:
            time.sleep(1.5 * self._beat_s)  # the store goes with this process, and the others look once a beat
        os._exit(exits.LOST_A_RANK)

    def _what_is_lost(self, shared: Words, heard: dict[int, tuple[str, float]], now: float) -> str:
        if now - self._progress_at > self.stall_s:
            return f"no step was done for {now - self._progress_at:.0f} s, though all ranks give heartbeats"
        if self.rank:
            return self._heard or self._store_is_lost(now)
        for rank in range(1, len(self.names)):
            word = shared.get(f"beat of {rank}") or ""
            if rank not in heard or heard[rank][0] != word:
                heard[rank] = (word, now)
        lost = [rank for rank, (_, at) in heard.items() if now - at > self.silence_s]
        return self._named(lost, max(now - heard[rank][1] for rank in lost)) if lost else ""

    def _store_is_lost(self, now: float) -> str:
        silent_s = now - self._answered_at
        if silent_s > self.silence_s:
            return self._named([0], silent_s)
        if self._alone_since is not None and now - self._alone_since > _ALONE_S:
            return f"{self.names[0]} ended {now - self._alone_since:.0f} s ago, and left this process behind"
        return ""

    def _named(self, ranks: list[int], silent_s: float) -> str:
        names = ", ".join(self.names[rank] for rank in ranks)
        return (
            f"{names} sent no heartbeat for {silent_s:.0f} s: stopped, swapping, or its host or network is gone"
            " (train.hang_timeout_s)"
        )
