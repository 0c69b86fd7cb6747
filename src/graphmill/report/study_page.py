"""The report of several runs: a study, or the runs in a folder."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from graphmill.base.amounts import shown_clock
from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.names import counted
from graphmill.diagnose.bottleneck_facts import measured_of
from graphmill.diagnose.rules import find_bottleneck
from graphmill.record.run_folder import RunFolder
from graphmill.report.compare import Comparison, Configuration, ReadRun, compare_read, span_text
from graphmill.report.configurations import short_names
from graphmill.report.learning import columns_of_curves
from graphmill.report.measured_cells import Spread
from graphmill.report.page import Block, Headline, Page, PageCell, Remark, Section, Shown, Table, filled, rounded
from graphmill.report.page import table as table_of
from graphmill.report.run_record import RunRecord
from graphmill.report.sections import (
    MOST_VALUES,
    blocks_or_reason,
    curves_section,
    listed,
    plain,
    plan_section,
    provenance_section,
    verified,
)
from graphmill.report.table import metrics_of
from graphmill.spec.columns import Measure
from graphmill.spec.differences import configuration, keys_that_vary
from graphmill.spec.kinds import find_kind
from graphmill.spec.measures import judged_kind

MOST_IN_DETAIL: Final = 100
"""Runs; of more, a page does not say of each what bound it and what was verified, which takes the most time."""
MOST_ROWS: Final = 1000
"""Of a table of runs, or of configurations."""
PAGE_OF_A_RUN: Final = "report.html"
"""In the run's folder, if somebody wrote it there."""
_DIAGNOSED: Final = ("bound by", "verified")
_MOST_TILES: Final = 3  # datasets whose best stands at the head of the page


def study_page(name: str, folders: Sequence[RunFolder], *, written: str, page_folder: Path = Path()) -> Page:
    """Page of runs whose plans can be read; they are named by the part of their path that differs.

    `page_folder`: the folder of the page. Of more than `MOST_IN_DETAIL` runs it has a link to each, and no diagnosis.
    """
    records = [RunRecord.read(folder, columns_of_curves) for folder in folders]
    comparisons = compare_read([ReadRun.of(each.folder, each.plan, each.outcome) for each in records])
    runs = [(record.plan, record.frame) for record in records]
    links = None if len(records) <= MOST_IN_DETAIL else page_folder
    sections = (
        Section("Comparison", tuple(block for each in comparisons for block in comparison_blocks(each))),
        curves_section(lambda: metrics_of(runs, columns_of_curves)),
        Section("How the runs ended", _endings(records) if links is not None else ()),
        Section("Every cell", blocks_or_reason(lambda: [cells(records, links)])),
        provenance_section([(record.folder, record.plan) for record in records]),
        plan_section([record.plan for record in records], "Plan: what all cells share"),
    )
    synthetic = any(record.plan.dataset.synthetic for record in records)
    about = _about(records)
    return Page("study", name, about, synthetic, _headlines(records, comparisons), filled(sections), written)


def _endings(records: Sequence[RunRecord]) -> tuple[Block, ...]:
    """How many runs ended how, and how to learn what a page of so many runs does not say."""
    apart: dict[str, list[RunRecord]] = {}
    for record in records:
        apart.setdefault(record.shown_status.text, []).append(record)
    rows = [
        (members[0].shown_status, len(members), _clock(sum(took)), _clock(max(took, default=0.0)))
        for members in apart.values()
        for took in [[each.wall_s for each in members if each.wall_s is not None]]
    ]
    table = Table("Runs by how they ended; h:mm:ss", ("status", "runs", "time of all", "longest"), tuple(rows))
    return table, Remark(
        f"Of more than {MOST_IN_DETAIL} runs a page says of none what bound it, nor what was verified: `graphmill"
        " bottleneck` and `graphmill verify` do. `graphmill report RUN --output RUN/report.html` writes the page of a"
        " run, to which its name leads from then on; until then, to its folder."
    )


def _clock(seconds: float) -> Shown:
    return Shown(shown_clock(seconds), seconds)


def comparison_blocks(comparison: Comparison) -> list[Block]:
    """The table of `graphmill compare`, and what it leaves out."""
    columns = (*short_names(comparison.varied), "runs", f"val {comparison.measure}", f"test {comparison.measure}")
    rows = [
        (*(plain(row.values[key]) for key in comparison.varied), len(row.runs), score(row.val), score(row.test))
        for row in comparison.rows[:MOST_ROWS]
    ]
    best = comparison.best
    synthetic = ", synthetic data" if comparison.synthetic else ""
    over = find_kind(comparison.task).repeated_over
    caption = f"{comparison.dataset} ({comparison.task}{synthetic}): mean ± s.d. over runs with different {over}"
    blocks: list[Block] = []
    if rows:
        marked = None if best is None else comparison.rows.index(best)
        blocks.append(
            Table(
                caption + ("" if marked is None else "; the best on the validation split is marked"),
                columns,
                tuple(rows),
                marked,
            )
        )
    if len(comparison.rows) > MOST_ROWS:
        blocks.append(
            Remark(f"The best {MOST_ROWS:,} of {len(comparison.rows):,}; `graphmill compare --json` has all.")
        )
    if rows and comparison.baselines:
        beside = [(each.words, _span(each.val), _span(each.test)) for each in comparison.baselines.values()]
        blocks.append(table_of("Baselines on the same data", ("method", *columns[-2:]), beside))
    losing = [row for row in comparison.rows if row.lost]
    for row in losing[:MOST_VALUES]:
        if row.lost:
            what = ", ".join(f"{key} {row.values[key]}" for key in comparison.varied) or row.runs[0]
            blocks.append(Remark(f"{len(row.lost)} of {len(row.runs)} runs of {what}, on test: {row.lost[0]}.", "bad"))
    if len(losing) > MOST_VALUES:
        blocks.append(Remark(f"So do runs of {len(losing) - MOST_VALUES:,} more.", "bad"))
    if same_seeds := comparison.same_seeds:
        text = f"Not independent, since they share configuration and rng seed: {listed(same_seeds)}."
        blocks.append(Remark(text, "unsure"))
    if comparison.unfinished:
        blocks.append(Remark(f"Left out, not done: {listed(comparison.unfinished)}.", "unsure"))
    return blocks


def _span(values: tuple[float, float] | None) -> Shown | None:
    words = span_text(values)
    return None if values is None or words is None else Shown(words, values[0])


def score(spread: Spread | None) -> Shown | None:
    """A mean with its spread."""
    if spread is None:
        return None
    return Shown(f"{spread.mean:.4f}" + ("" if spread.sd is None else f" ± {spread.sd:.4f}"), spread.mean)


def cells(records: Sequence[RunRecord], page_folder: Path | None = None) -> Table:
    """Every run: what is its own, how it ended, its measures and time, what bound it, and what `verify` says.

    `page_folder`: where the page lies; then there are links to the runs, at most `MOST_ROWS`, in place of the last two.
    """
    chosen = [configuration(record.plan) for record in records]
    varied = keys_that_vary(chosen)
    measures = {task: _measure_of(records, task) for task in dict.fromkeys(record.plan.task.kind for record in records)}
    words = next(iter(measures.values())).words if len(measures) == 1 else "score"
    columns = (
        *(*short_names(varied), "seed", "status", "epochs", f"val {words}", f"test {words}"),
        *("time", *(_DIAGNOSED if page_folder is None else ()), "run"),
    )
    shown = _most_telling(records, measures) if page_folder is not None else range(len(records))
    rows = [
        (
            *(plain(chosen[place].get(key)) for key in varied),
            *_row(records[place], measures[records[place].plan.task.kind].name, page_folder),
        )
        for place in shown
    ]
    of = "" if len(rows) == len(records) else f", of {len(records):,}: those not done, then the best on validation"
    return table_of(f"One row for each run{of}", columns, rows)


def _most_telling(records: Sequence[RunRecord], measures: Mapping[str, Measure]) -> list[int]:
    """Places of `MOST_ROWS` runs, in their order: those that are not done, then the best on the validation split."""

    def order(place: int) -> tuple[bool, float]:
        record, measure = records[place], measures[records[place].plan.task.kind]
        value = record.best(measure.name)
        worse = math.inf if value is None or not math.isfinite(value) else value
        return record.status == "done", -worse if measure.higher_is_better and worse != math.inf else worse

    return sorted(sorted(range(len(records)), key=order)[:MOST_ROWS])


def _measure_of(records: Sequence[RunRecord], task: str) -> Measure:
    """What all runs of a task are judged by; by its first measure where some are judged otherwise."""
    primary: Measure = judged_kind(task, [each.plan for each in records if each.plan.task.kind == task]).primary
    return primary


def _row(record: RunRecord, measure: str, page_folder: Path | None) -> tuple[PageCell, ...]:
    name = record.plan.run_id.rpartition("/")[2]
    return (
        Shown(str(record.plan.seed), record.plan.seed),  # no quantity: without separators
        record.shown_status,
        record.shown_epochs,
        rounded(record.best(measure)),
        rounded(record.test(measure)),
        record.shown_wall,
        *(_diagnosed(record.folder) if page_folder is None else ()),
        name if page_folder is None else Shown(name, link=_link(record.folder, page_folder)),
    )


def _diagnosed(folder: RunFolder) -> tuple[PageCell, PageCell]:
    return _known(lambda: find_bottleneck(measured_of(folder)).verdict.subject), verified(folder)


def _link(folder: RunFolder, page_folder: Path) -> str:
    """Path of the run's own page, if there is one, else of its folder; names in it may come from anybody."""
    own = folder.path / PAGE_OF_A_RUN
    path = own if own.is_file() else folder.path
    return quote(Path(os.path.relpath(path, page_folder)).as_posix())


def _known(find: Callable[[], str]) -> str | None:
    try:
        return find()
    except (UserError, UnreadableError):
        return None


def _about(records: Sequence[RunRecord]) -> str:
    data = list(dict.fromkeys(record.plan.dataset.name for record in records))
    tasks = list(dict.fromkeys(record.plan.task.kind.replace("_", " ") for record in records))
    return f"{counted(len(records), 'run')}: {', '.join(tasks)} on {', '.join(data)}"


def _headlines(records: Sequence[RunRecord], comparisons: Sequence[Comparison]) -> tuple[Headline, ...]:
    done = sum(record.status == "done" for record in records)
    found = [Headline("done", f"{done} of {len(records)}", "runs", "good" if done == len(records) else "unsure")]
    for each in comparisons if len(comparisons) <= _MOST_TILES else ():  # of many datasets the tables say it better
        best = each.best or (each.rows[0] if each.rows else None)
        if best is None or best.val is None:
            continue
        of = f", {each.dataset}" if len(comparisons) > 1 else ""
        found.append(Headline(f"best val {each.measure}{of}", f"{best.val.mean:.4f}", _what(each, best)))
        if best.test is not None:
            found.append(Headline(f"its test {each.measure}{of}", f"{best.test.mean:.4f}", _repeated(best.test)))
    return tuple(found)


def _what(comparison: Comparison, best: Configuration) -> str:
    """What distinguishes the best configuration."""
    names = short_names(comparison.varied)
    values: list[Any] = [best.values[key] for key in comparison.varied]
    told_values = ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
    return "; ".join(filter(None, (told_values, _repeated(best.val))))


def _repeated(spread: Spread | None) -> str:
    return f"± {spread.sd:.4f}, {spread.n} seeds" if spread is not None and spread.sd is not None else ""
