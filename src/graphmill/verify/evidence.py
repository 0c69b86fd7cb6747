"""Everything a run folder holds, read once; what cannot be read is a text with the reason, not an error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base.errors import UnreadableError, UserError
from graphmill.record.documents import Attempt, Outcome
from graphmill.record.endings import ENDINGS
from graphmill.record.evaluations import Evaluated, read_evaluations
from graphmill.record.manifest import MANIFEST, Manifest, checkpoint_folders, error_text
from graphmill.record.metrics import format_cell, read_table
from graphmill.record.provenance import Provenance
from graphmill.record.run_folder import RunFolder
from graphmill.spec.columns import Column
from graphmill.spec.plan import Plan
from graphmill.spec.world import RankSpan, World, ranks_at, spans_of
from graphmill.verify.check import in_a_line
from graphmill.verify.events import EventLog, ranks_heard_from, read_event_log

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]
"""A row of metrics.csv, by the names that columns have now."""
NO_TABLE: Final = "metrics.csv is missing"
NO_ROW: Final = "metrics.csv holds no epoch"
_MAX_RANKS = 100_000  # a plan that was damaged may ask for any number


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint folder with a plain name."""

    path: Path
    manifest: Manifest | None
    problem: str  # why the manifest is missing, if it is


@dataclass(frozen=True, slots=True)
class Evidence:
    """What there is to judge a run by."""

    folder: RunFolder
    planned: Plan
    plan: Plan  # as far as the run went: ends at the step where it stopped early
    outcome: Outcome | str | None
    provenance: Provenance | str | None
    attempts: list[Attempt] | str
    rows: list[Row] | str  # of metrics.csv
    evaluations: list[Evaluated] | str  # rows of evaluations.csv
    logs: list[EventLog]  # of the ranks that some attempt had, and that were heard from
    heard_from: list[int]  # ranks that have a file
    saved: list[Saved]  # oldest first
    spans: tuple[RankSpan, ...]  # which number of ranks did which steps, by rank 0
    unlisted: str = ""  # why it is not known which checkpoints there are

    @property
    def is_open(self) -> bool:
        """Whether the run may still be continued: it runs, or was stopped, or killed, before its end."""
        outcome = self.outcome
        if outcome is None:  # it is written before any rank says that it is done
            return not any(log.finish for log in self.logs)
        return isinstance(outcome, Outcome) and ENDINGS[outcome.status].resumable

    @property
    def last_world(self) -> World:
        """The processes of the last attempt."""
        return self.world_of(len(self.attempts))

    @property
    def most_ranks(self) -> int:
        """Largest number of ranks of any attempt; the planned number if all had as many."""
        return max(self.world_of(number + 1).ranks for number in range(max(1, len(self.attempts))))

    @property
    def fewest_ranks(self) -> int:
        """Ranks that were there from the first step to the end."""
        counts = [self.last_world.ranks, *(each.ranks for each in self.spans)]
        if not isinstance(self.rows, str):
            counts += [self.world_of(row["attempt"]).ranks for row in self.rows]
        return min(counts)

    @property
    def throughout(self) -> list[EventLog]:
        """What those of them recorded; all, unless their number changed."""
        fewest = self.fewest_ranks
        return [log for log in self.logs if log.rank < fewest]

    @property
    def at_the_end(self) -> list[EventLog]:
        """What the ranks of the last attempt recorded."""
        last = self.last_world.ranks
        return [log for log in self.logs if log.rank < last]

    def world_of(self, attempt: Cell) -> World:
        """The processes of an attempt, by its number (from 1); those of the plan if it does not say."""
        known = self.attempts
        if isinstance(known, str) or not isinstance(attempt, int) or not 1 <= attempt <= len(known):
            return self.plan.world
        return known[attempt - 1].world or self.plan.world

    @property
    def last_saved(self) -> Manifest | None:
        """The checkpoint with the most steps."""
        manifests = [saved.manifest for saved in self.saved if saved.manifest is not None]
        return max(manifests, key=lambda manifest: manifest.steps_done, default=None)


def gather(folder: RunFolder, plan: Plan) -> Evidence:
    """Read all that the run folder holds."""
    heard_from, outcome, attempts = ranks_heard_from(folder), _outcome(folder), _attempts(folder)
    worlds = [] if isinstance(attempts, str) else [each.world for each in attempts if each.world is not None]
    most = min(max([plan.ranks, *(world.ranks for world in worlds)]), _MAX_RANKS)
    logs = [read_event_log(folder, rank) for rank in heard_from if rank < most]
    spans = spans_of(logs[0].worlds) if logs and logs[0].rank == 0 else ()
    for log in logs:
        _clear_steps_of_others(log, spans)
    saved, unlisted = _saved(folder)
    return Evidence(
        folder=folder,
        planned=plan,
        plan=_as_far_as_it_went(plan, outcome),
        outcome=outcome,
        provenance=_provenance(folder),
        attempts=attempts,
        rows=_rows(folder, plan.kind.columns),
        evaluations=_evaluations(folder),
        logs=logs,
        heard_from=heard_from,
        saved=saved,
        spans=spans,
        unlisted=unlisted,
    )


def _clear_steps_of_others(log: EventLog, spans: Sequence[RankSpan]) -> None:
    """Drop the syncs of steps that were done again by fewer ranks, without this one."""
    log.syncs = {steps: sync for steps, sync in log.syncs.items() if took_part(log.rank, spans, steps)}


def took_part(rank: int, spans: Sequence[RankSpan], steps_done: int) -> bool:
    """Whether a rank was there at a step; all were where it is not known."""
    return not 0 < ranks_at(spans, steps_done) <= rank


def _as_far_as_it_went(plan: Plan, outcome: Outcome | str | None) -> Plan:
    """The plan up to the step where the run stopped early; whether it should have is a check of the outcome."""
    if not isinstance(outcome, Outcome) or not outcome.stopped_early:
        return plan
    return plan.ending_at(min(max(1, outcome.steps_per_rank), plan.last_step))


def _outcome(folder: RunFolder) -> Outcome | str | None:
    try:
        return folder.read_outcome()
    except (UserError, UnreadableError) as error:
        return in_a_line(error)


def _provenance(folder: RunFolder) -> Provenance | str | None:
    try:
        return folder.read_provenance()
    except (UserError, UnreadableError) as error:
        return in_a_line(error)


def _attempts(folder: RunFolder) -> list[Attempt] | str:
    try:
        return folder.attempts()
    except (UserError, UnreadableError, OSError) as error:
        return in_a_line(error)


def _rows(folder: RunFolder, columns: Mapping[str, Column]) -> list[Row] | str:
    if not folder.metrics_path.exists():
        return NO_TABLE
    try:
        table = read_table(folder.metrics_path)
    except (UserError, UnreadableError, OSError) as error:
        return in_a_line(error)
    if not table.rows:
        return NO_ROW
    missing = [name for name in columns if name not in table.header]
    if missing:
        return f"metrics.csv has no column {', '.join(missing)}"
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    try:
        return [{name: _cell(name, column, row[name]) for name, column in columns.items()} for row in rows]
    except ValueError as error:
        return str(error)


def _evaluations(folder: RunFolder) -> list[Evaluated] | str:
    try:
        return read_evaluations(folder)
    except (UserError, UnreadableError, OSError) as error:
        return in_a_line(error)


def _cell(name: str, column: Column, text: str) -> Cell:
    """The value of a cell; ValueError if it is not one, or not in the writer's format."""
    kind = column.kind
    if kind == "text" or not text:
        return text if kind == "text" else None
    value: Cell
    try:
        value = {"true": True, "false": False}[text] if kind == "bool" else (int if kind == "integer" else float)(text)
    except (ValueError, KeyError):
        wanted = {"bool": "neither true nor false", "integer": "not a whole number", "number": "not a number"}[kind]
        raise ValueError(f"metrics.csv: {name} is {text!r}, which is {wanted}") from None
    if format_cell(value) != text:
        raise ValueError(f"metrics.csv: {name} is written {text!r}, but graphmill writes {format_cell(value)!r}")
    return value


def _saved(folder: RunFolder) -> tuple[list[Saved], str]:
    """The checkpoints; or why it is not known which there are."""
    found = []
    try:
        paths = checkpoint_folders(folder.checkpoints_dir)
    except UnreadableError as error:
        return [], f"{error}"
    for path in paths:
        try:
            manifest = Manifest.read(path)
            found.append(Saved(path, manifest if manifest.positions else None, f"{MANIFEST} names no rank"))
        except (OSError, ValueError) as error:
            missing = isinstance(error, FileNotFoundError)
            if missing and folder.pulled_path.exists():  # what a copy has of one that was pruned meanwhile
                continue
            found.append(Saved(path, None, f"{MANIFEST} is missing" if missing else error_text(error)))
        except UnreadableError as error:
            found.append(Saved(path, None, str(error)))
    return found, ""
