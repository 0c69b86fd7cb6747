"""The report of a pipeline: its stages, what was predicted and measured of each, whose weights each began with."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphmill.base.amounts import shown_clock
from graphmill.base.names import counted
from graphmill.record.events import Initialised, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.report.page import Block, Headline, Page, PageCell, Remark, Section, Shown, Table, filled, rounded
from graphmill.report.page import table as table_of
from graphmill.report.run_record import RunRecord
from graphmill.report.sections import blocks_or_reason, curves_section, plan_section, provenance_section, verified
from graphmill.report.table import metrics_of
from graphmill.spec.packing import Interval


@dataclass(frozen=True, slots=True)
class PredictedStage:
    """What a trial of a stage said of it."""

    wall_s: Interval  # of the whole stage, in one attempt
    rank_mib: Interval  # peak memory of its largest rank


@dataclass(frozen=True, slots=True)
class StageOfReport:
    """One stage."""

    name: str
    folder: RunFolder | None  # None: it has not begun
    takes: tuple[tuple[str, str], ...]  # (as what, of which stage, run or file): weights that it begins with, or uses
    predicted: PredictedStage | None


@dataclass(frozen=True, slots=True)
class Crossed:
    """A measure of the best weights of one stage on the data of another: a row of the pipeline's evaluations.csv."""

    stage: str
    set: str
    measure: str
    value: float


def pipeline_page(name: str, stages: Sequence[StageOfReport], crossed: Sequence[Crossed], *, written: str) -> Page:
    """Page of a pipeline of which at least one stage has begun."""
    records = {stage.name: RunRecord.read(stage.folder) for stage in stages if stage.folder is not None}
    runs = [(record.plan, record.frame) for record in records.values()]
    sections = (
        Section("Stages", (_stages(stages, records),)),
        Section("Predicted and measured", tuple(_predictions(stages, records))),
        Section("Hand-over of weights", blocks_or_reason(lambda: _handed_over(stages))),
        Section("Evaluated on the data of every stage", tuple(_crossed(crossed, records.values()))),
        curves_section(lambda: metrics_of(runs), by_run=True),
        provenance_section([(record.folder, record.plan) for record in records.values()]),
        plan_section([record.plan for record in records.values()], "Plan: what all stages share"),
    )
    synthetic = any(record.plan.dataset.synthetic for record in records.values())
    kinds = dict.fromkeys(record.plan.task.kind.replace("_", " ") for record in records.values())
    about = f"{counted(len(stages), 'stage')}: {', '.join(stage.name for stage in stages)} ({', '.join(kinds)})"
    return Page("pipeline", name, about, synthetic, _headlines(stages, records), filled(sections), written)


def _headlines(stages: Sequence[StageOfReport], records: dict[str, RunRecord]) -> tuple[Headline, ...]:
    done = sum(record.status == "done" for record in records.values())
    found = [Headline("done", f"{done} of {len(stages)}", "stages", "good" if done == len(stages) else "unsure")]
    last = list(records.values())[-1]
    measure = last.plan.kind.primary
    for split, value in (("validation", last.best(measure.name)), ("test", last.test(measure.name))):
        if value is not None:
            about = ", ".join(filter(None, (measure.unit, f"stage {last.plan.run_id.rpartition('/')[2]}")))
            found.append(Headline(f"{split} {measure.words}", f"{value:.4f}", about))
    known = [record.wall_s for record in records.values() if record.wall_s is not None]
    return (*found, Headline("time", shown_clock(sum(known)), "h:mm:ss, all stages")) if known else tuple(found)


def _stages(stages: Sequence[StageOfReport], records: dict[str, RunRecord]) -> Table:
    words = {record.plan.kind.primary.words for record in records.values()}
    measure = words.pop() if len(words) == 1 else "score"
    columns = ("stage", "status", "begins with", "epochs", "attempts", f"val {measure}", f"test {measure}", "verified")
    return table_of("In order", columns, [_stage(stage, records.get(stage.name)) for stage in stages])


def _stage(stage: StageOfReport, record: RunRecord | None) -> tuple[PageCell, ...]:
    begins = next((source for role, source in stage.takes if role == "init_from"), "random weights")
    if record is None:
        return (stage.name, Shown("not begun", tone="unsure"), begins, None, None, None, None, None)
    name = record.plan.kind.primary.name
    return (
        *(stage.name, record.shown_status, begins, record.shown_epochs, len(record.attempts)),
        *(rounded(record.best(name)), rounded(record.test(name)), verified(record.folder)),
    )


def _predictions(stages: Sequence[StageOfReport], records: dict[str, RunRecord]) -> Iterable[Block]:
    rows = []
    for stage in stages:
        record, predicted = records.get(stage.name), stage.predicted
        if predicted is None and record is None:
            continue
        wall_s = record.wall_s if record is not None and record.status == "done" else None
        peak = record.last("peak_rss_mib") if record is not None else None
        rows.append(
            (
                stage.name,
                _interval(predicted.wall_s, 1) if predicted else None,
                _against(wall_s, predicted.wall_s if predicted else None, 1),
                _interval(predicted.rank_mib, 0) if predicted else None,
                _against(peak, predicted.rank_mib if predicted else None, 0),
            )
        )
    columns = ("stage", "predicted, s", "measured, s", "predicted, MiB", "measured, MiB")
    if rows:
        yield table_of("Wall time of the stage, and peak memory of its first rank", columns, rows)
    missing = [stage.name for stage in stages if stage.predicted is None]
    if missing:
        yield Remark(f"Nothing was predicted of {', '.join(missing)}: no trial of it was made on this host.")


def _interval(interval: Interval, decimals: int) -> Shown:
    return Shown(f"{interval.low:,.{decimals}f} to {interval.high:,.{decimals}f}", interval.high)


def _against(value: float | None, predicted: Interval | None, decimals: int) -> Shown | None:
    if value is None:
        return None
    text = f"{value:,.{decimals}f}"
    if predicted is None or predicted.low <= value <= predicted.high:
        return Shown(text, value)
    return Shown(f"{text}, {'less' if value < predicted.low else 'more'}", value, "unsure")


def _handed_over(stages: Sequence[StageOfReport]) -> list[Block]:
    rows: list[tuple[PageCell, ...]] = []
    for stage in stages:
        plan = None if stage.folder is None else stage.folder.read_plan()
        init = None if stage.folder is None else _initialised(stage.folder)
        for role, source in stage.takes:
            weights = None if plan is None else plan.init_from if role == "init_from" else plan.sources.get(role)
            counts = (
                (len(init.taken), len(init.not_taken), len(init.not_filled)) if init and role == "init_from" else ()
            )
            rows.append((stage.name, role, source, weights.checksum if weights else None, *(counts or (None,) * 3)))
    columns = ("stage", "as", "weights of", "checksum", "tensors taken", "left there", "random here")
    return [table_of("", columns, rows)] if rows else []


def _initialised(folder: RunFolder) -> Initialised | None:
    path = folder.events_path(0)
    found = (event for event in events_in(path) if isinstance(event, Initialised)) if path.exists() else iter(())
    return next(found, None)


def _crossed(rows: Sequence[Crossed], records: Iterable[RunRecord]) -> Iterable[Block]:
    """A table for each measure that a stage is judged by: weights down, data across."""
    primary = {record.plan.kind.primary.name: record.plan.kind.primary for record in records}
    for name, measure in primary.items():
        own = [row for row in rows if row.measure == name]
        sets = list(dict.fromkeys(row.set for row in own))
        values = {(row.stage, row.set): row.value for row in own}
        lines = [
            (f"{stage}", *(rounded(values.get((stage, each))) for each in sets))
            for stage in dict.fromkeys(row.stage for row in own)
        ]
        if lines:
            better = "higher" if measure.higher_is_better else "lower"
            caption = (
                f"Validation {measure.words} ({better} is better) of a stage's best weights, on the data of every stage"
            )
            yield table_of(caption, ("weights of", *sets), lines)
