"""What the ranks of all hosts print, on this terminal: a line each, with host and rank before it.

What begins like an error is held back for a moment: it may be the echo of another rank's, which is shown first.
"""

import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final

from graphmill.cluster.launch.rank_process import begins_error

_TAIL_LINES: Final = 30
_END_S: Final = 5.0  # for a terminal that the user has stopped


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
