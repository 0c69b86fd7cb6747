"""While a run of a search lasts: the clock of the search, and whether its scores say that it is not worth more."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from graphmill.base.errors import UserError
from graphmill.record.evaluations import read_evaluations
from graphmill.record.judged import can_be_best
from graphmill.record.run_folder import RunFolder
from graphmill.record.trials import SearchFolder

_NOTE_S: Final = 5.0

Scores = tuple[tuple[int, float], ...]


@dataclass(slots=True)
class SearchClock:
    """How long the search has taken, over all attempts of all processes; this one notes its time every few seconds.

    Whatever it does between two trials is of the second one.
    """

    folder: SearchFolder
    limit_s: float
    others_s: float  # of all else than the trial under way, when it was last looked at
    trial: int | None = None
    before_s: float = 0.0  # of that trial, in earlier attempts
    started: float = field(default_factory=time.monotonic)
    noted: float = field(default_factory=time.monotonic)

    @property
    def spent_s(self) -> float:
        """Seconds of all processes together."""
        return self.others_s + self.before_s + time.monotonic() - self.started

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.spent_s >= self.limit_s

    def begin(self, trial: int) -> None:
        """Count for a trial, which this process has claimed."""
        self.trial, self.before_s = trial, self.folder.spent_s(trial)
        self.others_s = self.folder.spent_s() - self.before_s

    def tick(self, *, now: bool = False) -> None:
        """Note the time, if that was not done a moment ago, and look at that of the others."""
        if self.trial is None or not (now or time.monotonic() - self.noted > _NOTE_S):
            return
        self.noted = time.monotonic()
        own = self.before_s + self.noted - self.started
        self.folder.note_spent(self.trial, own)
        if self.limit_s < float("inf"):
            self.others_s = self.folder.spent_s() - own

    def end(self) -> None:
        """Count no longer for the trial."""
        self.tick(now=True)
        self.trial, self.before_s, self.started = None, 0.0, time.monotonic()
        self.others_s = self.folder.spent_s()


@dataclass(slots=True)
class Follower:
    """Watches a run: ends it once the time is over, or its scores say that it is not worth more."""

    run: RunFolder
    measure: str
    prunes_at: Callable[[Scores, int], int | None]
    clock: SearchClock
    is_stop_requested: bool = False  # by a signal
    is_over: bool = False
    pruned_at: int | None = None
    _seen: int = -1  # bytes of the file of scores
    _judged: int = 0  # of the scores, by which it was not pruned

    def __call__(self, is_stop_requested: bool) -> bool:
        """Look, as a `Watch`."""
        self.is_stop_requested, self.is_over = is_stop_requested, self.is_over or self.clock.is_over
        self.clock.tick()
        with suppress(UserError, OSError):  # a look that fails is no reason to end a run: it is judged at its end
            self.pruned_at = self.pruned_at or self._look()
        return self.is_over or self.pruned_at is not None

    def _look(self) -> int | None:
        size = self.run.evaluations_path.stat().st_size
        if size == self._seen:
            return None
        self._seen = size
        scores = scores_of(self.run, self.measure)
        found = self.prunes_at(scores, self._judged)
        self._judged = len(scores)
        return found


def scores_of(run: RunFolder, measure: str) -> Scores:
    """Score of each epoch on the validation split, as far as they were recorded."""
    rows = read_evaluations(run, is_growing=True)
    return tuple(
        (row.epoch, row.value) for row in rows if (row.set, row.measure) == ("val", measure) and can_be_best(row.epoch)
    )
