"""The report of several runs: a study, or the runs in a folder."""

from collections.abc import Callable, Sequence
from typing import Any

from graphmill.base.errors import UnreadableError, UserError
from graphmill.diagnose.bottleneck_facts import measured_of
from graphmill.diagnose.rules import find_bottleneck
from graphmill.record.run_folder import RunFolder
from graphmill.report.compare import Comparison, Configuration, compare, span_in_words
from graphmill.report.configurations import short_names
from graphmill.report.measured_cells import Spread
from graphmill.report.page import Block, Headline, Page, PageCell, Remark, Section, Shown, Table, filled, rounded
from graphmill.report.page import table as table_of
from graphmill.report.run_record import RunRecord
from graphmill.report.sections import curves_section, plain, plan_section, provenance_section, told, verified
from graphmill.spec.columns import Measure
from graphmill.spec.differences import configuration, varied_keys
from graphmill.spec.kinds import find_kind
from graphmill.spec.measures import judged_kind

_MOST_TILES = 3  # datasets whose best stands at the head of the page


def study_page(name: str, folders: Sequence[RunFolder], *, written: str) -> Page:
    """Page of runs whose plans can be read; they are named by the part of their path that differs."""
    records = [RunRecord.read(folder) for folder in folders]
    comparisons = compare(folders)
    sections = (
        Section("Comparison", tuple(block for each in comparisons for block in comparison_blocks(each))),
        curves_section(folders),
        Section("Every cell", told(lambda: [cells(records)])),
        provenance_section(folders),
        plan_section([record.plan for record in records], "Plan: what all cells share"),
    )
    synthetic = any(record.plan.dataset.synthetic for record in records)
    about = _about(records)
    return Page("study", name, about, synthetic, _headlines(records, comparisons), filled(sections), written)


def comparison_blocks(found: Comparison) -> list[Block]:
    """The table of `graphmill compare`, and what it leaves out."""
    columns = (*short_names(found.varied), "runs", f"val {found.measure}", f"test {found.measure}")
    rows = [
        (*(plain(row.values[key]) for key in found.varied), len(row.runs), score(row.val), score(row.test))
        for row in found.rows
    ]
    best = found.best
    synthetic = ", synthetic data" if found.synthetic else ""
    over = find_kind(found.task).repeated_over
    caption = f"{found.dataset} ({found.task}{synthetic}): mean ± s.d. over runs with different {over}"
    blocks: list[Block] = []
    if rows:
        marked = None if best is None else found.rows.index(best)
        blocks.append(
            Table(
                caption + ("" if marked is None else "; the best on the validation split is marked"),
                columns,
                tuple(rows),
                marked,
            )
        )
    if rows and found.baselines:
        beside = [(each.words, _span(each.val), _span(each.test)) for each in found.baselines.values()]
        blocks.append(table_of("Baselines on the same data", ("method", *columns[-2:]), beside))
    for row in found.rows:
        if row.lost:
            what = ", ".join(f"{key} {row.values[key]}" for key in found.varied) or row.runs[0]
            blocks.append(Remark(f"{len(row.lost)} of {len(row.runs)} runs of {what}, on test: {row.lost[0]}.", "bad"))
    if found.same_seeds:
        text = f"Not independent, since they share configuration and rng seed: {', '.join(found.same_seeds)}."
        blocks.append(Remark(text, "unsure"))
    if found.unfinished:
        blocks.append(Remark(f"Left out, not done: {', '.join(found.unfinished)}.", "unsure"))
    return blocks


def _span(found: tuple[float, float] | None) -> Shown | None:
    words = span_in_words(found)
    return None if found is None or words is None else Shown(words, found[0])


def score(found: Spread | None) -> Shown | None:
    """A mean with its spread."""
    if found is None:
        return None
    return Shown(f"{found.mean:.4f}" + ("" if found.sd is None else f" ± {found.sd:.4f}"), found.mean)


def cells(records: Sequence[RunRecord]) -> Table:
    """Every run: what is its own, how it ended, its measures and time, what bound it, and what `verify` says."""
    varied = varied_keys([record.plan for record in records])
    measures = {record.plan.task.kind: _measure_of(records, record.plan.task.kind) for record in records}
    words = next(iter(measures.values())).words if len(measures) == 1 else "score"
    columns = (
        *(*short_names(varied), "seed", "status", "epochs", f"val {words}", f"test {words}"),
        *("time", "bound by", "verified", "run"),
    )
    return table_of(
        "One row for each run",
        columns,
        [_row(record, varied, measures[record.plan.task.kind].name) for record in records],
    )


def _measure_of(records: Sequence[RunRecord], task: str) -> Measure:
    """What all runs of a task are judged by; by its first measure where some are judged otherwise."""
    primary: Measure = judged_kind(task, [each.plan for each in records if each.plan.task.kind == task]).primary
    return primary


def _row(record: RunRecord, varied: Sequence[str], measure: str) -> tuple[PageCell, ...]:
    chosen = configuration(record.plan)
    return (
        *(plain(chosen.get(key)) for key in varied),
        Shown(str(record.plan.seed), record.plan.seed),  # no quantity: without separators
        record.shown_status,
        record.shown_epochs,
        rounded(record.best(measure)),
        rounded(record.test(measure)),
        record.shown_wall,
        _known(lambda: find_bottleneck(measured_of(record.folder)).verdict.subject),
        verified(record.folder),
        record.plan.run_id.rpartition("/")[2],
    )


def _known(find: Callable[[], str]) -> str | None:
    try:
        return find()
    except (UserError, UnreadableError):
        return None


def _about(records: Sequence[RunRecord]) -> str:
    data = list(dict.fromkeys(record.plan.dataset.name for record in records))
    tasks = list(dict.fromkeys(record.plan.task.kind.replace("_", " ") for record in records))
    return f"{len(records)} runs: {', '.join(tasks)} on {', '.join(data)}"


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


def _what(found: Comparison, best: Configuration) -> str:
    """What distinguishes the best configuration."""
    names = short_names(found.varied)
    values: list[Any] = [best.values[key] for key in found.varied]
    told_values = ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
    return "; ".join(filter(None, (told_values, _repeated(best.val))))


def _repeated(found: Spread | None) -> str:
    return f"± {found.sd:.4f}, {found.n} seeds" if found is not None and found.sd is not None else ""
