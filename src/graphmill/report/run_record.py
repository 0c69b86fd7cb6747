"""What a report says of one run, read once from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from graphmill.base.amounts import shown_clock
from graphmill.record.documents import Attempt, Outcome
from graphmill.record.endings import ENDINGS
from graphmill.record.events import events_in
from graphmill.record.run_folder import RunFolder
from graphmill.report.page import Shown, Tone
from graphmill.report.table import ColumnsOf, metrics_of, rows_of
from graphmill.spec.plan import Plan


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run."""

    folder: RunFolder
    plan: Plan
    outcome: Outcome | None
    frame: pl.DataFrame  # metrics.csv, typed: a row per epoch
    attempts: tuple[Attempt, ...]
    wall_s: float | None  # of all attempts together; None: none was recorded

    @classmethod
    def read(cls, folder: RunFolder, columns: ColumnsOf | None = None) -> "RunRecord":
        """Read the run in `folder`, of metrics.csv only `columns`; `UserError` where one of its files is damaged."""
        plan, outcome = folder.read_plan(), folder.read_outcome()
        frame = rows_of(folder, plan, columns)
        attempts = tuple(folder.attempts())
        return cls(folder, plan, outcome, frame, attempts, _wall_s(folder, attempts, outcome))

    @property
    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """The rows of metrics.csv, each with all columns of the task."""
        tables = metrics_of([(self.plan, self.frame)])
        return tuple(tables[0].frame.to_dicts()) if tables else ()

    @property
    def status(self) -> str:
        """How it ended; unfinished: it runs, or was killed before it could say."""
        return "unfinished" if self.outcome is None else self.outcome.status

    @property
    def shown_status(self) -> Shown:
        """How the run ended, as it is shown to a person."""
        if self.outcome is None:
            return Shown(self.status, tone="unsure")
        tone: Tone = "good" if self.status == "done" else "unsure" if ENDINGS[self.status].resumable else "bad"
        return Shown(self.status.replace("_", " ") + (", early" if self.outcome.stopped_early else ""), tone=tone)

    @property
    def shown_epochs(self) -> str:
        """Epochs done and planned, such as 3 of 6."""
        return f"{self.frame.height} of {self.plan.calendar.num_epochs}"

    @property
    def ranks_of_attempts(self) -> tuple[int, ...]:
        """How many each of them had."""
        planned = self.plan.ranks
        return tuple(planned if each.world is None else each.world.ranks for each in self.attempts)

    @property
    def shown_wall(self) -> Shown | None:
        """Time of all attempts."""
        return None if self.wall_s is None else Shown(shown_clock(self.wall_s), self.wall_s)

    def best(self, measure: str) -> float | None:
        """Measure of the best epoch, on the validation split; outcome.json of older runs has the best of any epoch."""
        best = self.outcome.best if self.outcome is not None else None
        if best is None or measure == self.plan.kind.primary.name:
            return _number(best, measure)
        of_epoch = self.frame.filter(pl.col("epoch") == best["epoch"]).to_dicts()
        return _number(of_epoch[0] if of_epoch else None, f"val_{measure}")

    def test(self, measure: str) -> float | None:
        """Measure of the best epoch's checkpoint, on the test split."""
        return _number(self.outcome.test if self.outcome is not None else None, measure)

    def last(self, column: str) -> Any:  # noqa: ANN401  # whatever metrics.csv holds
        """The value in its last row; None if there is none."""
        return self.frame.row(-1, named=True).get(column) if self.frame.height else None


def _number(values: Mapping[str, Any] | None, measure: str) -> float | None:
    value = (values or {}).get(measure)
    return None if value is None else float(value)


def _wall_s(folder: RunFolder, attempts: tuple[Attempt, ...], outcome: Outcome | None) -> float | None:
    """The launcher's own clock has the last attempt; of an earlier one, or one under way, to its last event."""
    if not attempts:
        return None
    if len(attempts) == 1 and outcome is not None:
        return outcome.wall_s
    path = folder.events_path(0)
    times = [event.time for event in events_in(path)] if path.exists() else []
    ends = [*(attempt.time for attempt in attempts[1:]), float("inf")]
    spans = [
        max([time - attempt.time for time in times if attempt.time <= time < end], default=0.0)
        for attempt, end in zip(attempts, ends, strict=True)
    ]
    return sum(spans[:-1]) + (spans[-1] if outcome is None else outcome.wall_s)
