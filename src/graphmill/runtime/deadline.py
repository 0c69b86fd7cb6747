"""How long have I got? When the scheduler will end this job, and how much of that time must be kept back."""

import time
from dataclasses import dataclass
from typing import Final

ASK_TIMEOUT_S: Final = 20.0  # of whoever is asked for the end
_MARGIN: Final = 1.5  # a round or a save may take longer than the longest one so far
_FLOOR_S: Final = 2.0  # for what is not measured: the vote, the outcome, the requeue


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment at which the scheduler ends the job."""

    end_time: float | None  # Unix time, s; None: there is no limit
    source: str  # where it is from, in words

    def remaining_s(self) -> float:
        """Seconds left; infinity if there is no limit."""
        return float("inf") if self.end_time is None else self.end_time - time.time()


@dataclass(slots=True)
class Reserve:
    """What must be left of the time to end in good order, as it was measured here: one round, one save, and the end.

    After the save the ranks leave, and the job's script starts an interpreter that decides what follows: that takes
    about as long as starting this rank's interpreter took, on a busy machine as on an idle one.
    """

    start_s: float = 0.0

    longest_round_s: float = 0.0
    longest_save_s: float = 0.0

    def saw_round(self, seconds: float) -> None:
        """Record how long a round took, from one sync to the next, the evaluation between them included."""
        self.longest_round_s = max(self.longest_round_s, seconds)

    def saw_save(self, seconds: float) -> None:
        """Record how long a checkpoint took."""
        self.longest_save_s = max(self.longest_save_s, seconds)

    @property
    def needed_s(self) -> float:
        """Seconds to keep back."""
        return _FLOOR_S + _MARGIN * (self.longest_round_s + self.longest_save_s + self.start_s)
