"""Is it time to stop? What this rank knows of it: a signal, or the job's time left against what ending takes."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from graphmill.record.endings import EndingName
from graphmill.runtime.deadline import ASK_TIMEOUT_S, Deadline, Reserve
from graphmill.runtime.stop import StopRequest

_ASK_BEFORE_S: Final = (ASK_TIMEOUT_S, 5.0)
"""How long before it counts the end is asked for again. An answer that takes so long leaves the reserve whole."""
_MOST_OF_WHAT_IS_LEFT: Final = 0.25  # for the last answer, where rounds are so long that the reserve has begun
NO_DEADLINE = Deadline(None, "another rank watches the clock")


@dataclass(slots=True)
class TimeLeft:
    """Time left to one rank. Only rank 0 knows the deadline: the ranks vote, and one vote to stop is enough."""

    stop: StopRequest
    deadline: Deadline = NO_DEADLINE
    ask_again: Callable[[float], Deadline] | None = None  # for the deadline, which may have moved; within seconds
    reserve: Reserve = field(default_factory=Reserve)
    _round_began: float = 0.0
    _confirmed: float | None = None  # the end that was asked for again, shortly before it counts
    _num_queries: int = 0  # how often, of `_ASK_BEFORE_S`

    @property
    def has_end(self) -> bool:
        """Whether this rank knows when the job ends."""
        return self.deadline.end_time is not None

    def is_up(self) -> bool:
        """Whether this rank wants to stop now.

        After a warning it queries the job's end time again, which may have changed; if that is unknown, it means now.
        """
        if self.stop.warned and self.ask_again is not None:
            self.stop.warned = False
            self.deadline = self.ask_again(ASK_TIMEOUT_S)
            if not self.has_end:
                self.stop.requested = True
        self._confirm_deadline()
        return self.stop.requested or self.deadline.remaining_s() < self.reserve.needed_s

    def _confirm_deadline(self) -> None:
        """Ask again before it counts, early enough to wait for an answer, and as late as can be: it may be extended."""
        end, left_s = self.deadline.end_time, self.deadline.remaining_s()
        if end is None or self.ask_again is None or self.stop.requested:
            return
        if self._confirmed != end:
            self._confirmed, self._num_queries = end, 0
        due = sum(left_s < self.reserve.needed_s + before_s for before_s in _ASK_BEFORE_S)
        if due <= self._num_queries:
            return
        self._num_queries = due
        patience_s = _ASK_BEFORE_S[due - 1]
        is_last = due == len(_ASK_BEFORE_S)
        found = self.ask_again(min(patience_s, max(1.0, _MOST_OF_WHAT_IS_LEFT * left_s)) if is_last else patience_s)
        if found.end_time is not None and found.end_time > end + ASK_TIMEOUT_S:
            self.deadline = found

    def begin_round(self) -> None:
        """Begin a round: the time before it does not count."""
        self._round_began = time.perf_counter()

    def end_round(self) -> None:
        """End a round, and begin the next."""
        self.reserve.saw_round(time.perf_counter() - self._round_began)
        self.begin_round()

    def ending(self) -> EndingName:
        """The ending when the ranks decide to stop: out of time by this rank's clock, else stopped on request."""
        by_signal = self.stop.signal is not None
        by_clock = self.stop.requested or self.deadline.remaining_s() < self.reserve.needed_s
        return "out_of_time" if by_clock and not by_signal and not self.stop.why else "stopped"

    def why(self) -> str:
        """Why this rank stopped, or that another one did."""
        if self.stop.signal is not None:
            return f"stopped on {self.stop.signal.name}"
        if self.stop.why:
            return self.stop.why
        if self.stop.requested:
            return f"stopped on SIGUSR2, and the end of the job is unknown ({self.deadline.source})"
        if self.deadline.remaining_s() < self.reserve.needed_s:
            return (
                f"{max(0.0, self.deadline.remaining_s()):.0f} s were left of the job ({self.deadline.source});"
                f" a round took up to {self.reserve.longest_round_s:.1f} s here, a checkpoint"
                f" {self.reserve.longest_save_s:.1f}, the start of a process {self.reserve.start_s:.1f}"
            )
        return "stopped on a signal to another rank"
