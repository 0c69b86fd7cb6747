"""The report of one run."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from graphmill.base.amounts import gib, shown_clock
from graphmill.diagnose.epilog import Epilog
from graphmill.diagnose.epilog_text import resources
from graphmill.monitor.summary import HostSummary, read_monitors, summarise
from graphmill.record.documents import read_document
from graphmill.record.evaluations import read_evaluations
from graphmill.record.judged import lost_on_test
from graphmill.record.run_folder import RunFolder
from graphmill.report.class_charts import MOST_IN_MATRIX
from graphmill.report.figures import prediction_charts
from graphmill.report.page import Block, Facts, Figures, Headline, Page, PageCell, Remark, Section, Shown, Table, filled
from graphmill.report.page import table as table_of
from graphmill.report.predictions import open_predictions
from graphmill.report.run_record import RunRecord
from graphmill.report.sections import (
    blocks_or_reason,
    curves_section,
    plan_section,
    profile_section,
    provenance_section,
    time_section,
    verified_sections,
)
from graphmill.report.style import scheme_words
from graphmill.report.table import metrics_of
from graphmill.spec.columns import DATA_UNIT
from graphmill.spec.fetching import EPOCH_COLUMNS, FetchedByEpoch
from graphmill.spec.plan import Plan
from graphmill.spec.world import effect_of

MOST_EPOCHS = 1000
"""Rows of the table of epochs; of a longer run, every second, third, … one."""

_SPLITS = ("val", "test")


def run_page(folder: RunFolder, *, written: str) -> Page:
    """Everything that the folder of a run says. `UserError` if it has no plan that can be read."""
    record = RunRecord.read(folder)
    plan = record.plan
    sections = (
        curves_section(lambda: metrics_of([(plan, record.frame)])),
        Section("Measures", blocks_or_reason(lambda: _measures(record))),
        Section("Predictions", blocks_or_reason(lambda: _predictions(folder))),
        time_section(folder),
        Section("What was fetched of other parts", blocks_or_reason(lambda: _fetched(record))),
        profile_section(folder),
        Section("What it used", blocks_or_reason(lambda: _used(folder))),
        *verified_sections(folder),
        provenance_section([(folder, plan)]),
        Section("Attempts", _attempts(record), is_folded=True),
        Section("Epochs", _epochs(record), is_folded=True),
        plan_section([plan]),
    )
    return Page("run", plan.run_id, about(plan), plan.dataset.synthetic, headlines(record), filled(sections), written)


def about(plan: Plan) -> str:
    """What a run is, in a line."""
    words = f"{plan.task.kind.replace('_', ' ')} on {plan.dataset.name}, {plan.ranks} rank{'s' * (plan.ranks > 1)}"
    if plan.roles is not None:
        words += f" served by {plan.roles.samplers} sampler{'s' * (plan.roles.samplers > 1)}"
    words += f" on {plan.hosts} hosts" if plan.hosts > 1 else ""
    words += f", {plan.device}, {plan.precision}, {_batches(plan)}"
    return words + (f", {scheme_words(plan.sync.scheme)} every {plan.sync.every}" if plan.ranks > 1 else "")


def _batches(plan: Plan) -> str:
    if plan.budget is None:
        return f"batches of {plan.batch_size:,}"
    return f"batches of up to {plan.budget.max_nodes:,} nodes and {plan.budget.max_edges:,} edges"


def headlines(record: RunRecord) -> tuple[Headline, ...]:
    """What to know of a run first."""
    measure = record.plan.kind.primary
    unit = _unit(record, measure.unit)
    found = [Headline("status", record.shown_status.text, _why(record), record.shown_status.tone)]
    for split, value in (("validation", record.best(measure.name)), ("test", record.test(measure.name))):
        if value is not None:
            at = f"epoch {record.outcome.best['epoch']}" if record.outcome and record.outcome.best else ""
            of = f"best, {at}" if split == "validation" else f"checkpoint of {at}"
            found.append(Headline(f"{split} {measure.words}", _score(value), ", ".join(filter(None, (unit, of)))))
    if lost := lost_on_test(record.plan.kind, record.outcome):
        found.append(Headline("best baseline", _score(lost.best), f"{lost.baseline}: the run loses to it", "bad"))
    found.append(
        Headline("epochs", record.shown_epochs, f"{len(record.attempts)} attempts" * (len(record.attempts) > 1))
    )
    if record.wall_s is not None:
        found.append(Headline("time", shown_clock(record.wall_s), "h:mm:ss, all attempts"))
    found += _memory(record)
    rate = [row["seeds_per_s"] for row in record.rows[1:] or record.rows if row["seeds_per_s"]]
    if rate:
        found.append(Headline("throughput", f"{sum(rate) / len(rate):,.0f}", f"{record.plan.kind.seeds_are}/s"))
    return tuple(found)


def _memory(record: RunRecord) -> list[Headline]:
    """What a rank held at most, where its batches were to fill so much memory."""
    budget = record.folder.read_memory_budget()
    peak = record.last("peak_rss_mib")
    if budget is None or peak is None or budget.device != "cpu":
        return []
    beside = f"MiB of {budget.limit_mib:,.0f}; {budget.predicted_mib:,.0f} predicted ({budget.mode})"
    return [Headline("memory of a rank", f"{peak:,.0f}", beside)]


def _why(record: RunRecord) -> str:
    return record.outcome.message if record.outcome is not None else "it runs, or was killed"


def _score(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def _measures(record: RunRecord) -> list[Block]:
    """The measures of all sets: of val the best epoch, of others the last evaluation; then those of the baselines."""
    evaluated = read_evaluations(record.folder, is_growing=True)
    last = {(row.set, row.measure): row.value for row in evaluated}
    beside = {f"{split}/{each.name}" for split in _SPLITS for each in record.plan.kind.baselines.methods}
    others = [name for name in dict.fromkeys(row.set for row in evaluated) if name not in {*_SPLITS, *beside}]
    rows = [
        (
            measure.words,
            _unit(record, measure.unit),
            "higher" if measure.higher_is_better else "lower",
            _rounded(record.best(measure.name)),
            _rounded(record.test(measure.name)),
            *(_rounded(last.get((name, measure.name))) for name in others),
        )
        for measure in record.plan.kind.measures
    ]
    known = [row for row in rows if any(value is not None for value in row[3:])]
    if not known:
        return [Remark("The run has no measures yet.")]
    columns = ("measure", "unit", "better", "validation, best epoch", "test, same checkpoint", *others)
    tables: list[Block] = [table_of("", columns, known), *_baselines(record, last)]
    if lost := lost_on_test(record.plan.kind, record.outcome):
        tables.append(Remark(f"On the test split the run {lost}."))
    return tables


def _baselines(record: RunRecord, last: Mapping[tuple[str, str], float]) -> list[Block]:
    """A row for each baseline, and the run under them."""
    of = [(split, measure) for split in _SPLITS for measure in record.plan.kind.measures]
    rows = [
        (each.words, *(_rounded(last.get((f"{split}/{each.name}", measure.name))) for split, measure in of))
        for each in record.plan.kind.baselines.methods
    ]
    scored = [row for row in rows if any(value is not None for value in row[1:])]
    if not scored:
        return []
    own = [record.best(measure.name) if split == "val" else record.test(measure.name) for split, measure in of]
    columns = ("method", *(f"{measure.words}, {split}" for split, measure in of))
    return [table_of("The same measures of the baselines", columns, [*scored, ("this run", *map(_rounded, own))])]


def _rounded(value: float | None) -> Shown | None:
    return None if value is None else Shown(_score(value), value)


def _predictions(folder: RunFolder) -> list[Block]:
    """Figures of the files of predictions that were written into the run folder."""
    blocks: list[Block] = []
    for path in sorted(folder.path.glob("*.parquet")):
        charts, tables = prediction_charts(open_predictions(path, task=folder.read_plan().task.kind))
        words = tuple(f"{chart.y.label} against {chart.x.label}: {chart.title}" for chart in charts)
        blocks.append(Figures(tuple(charts), words))
        blocks += [_numbers(f"{words}: {path.name}", table) for words, table in _behind(tables)]
    return blocks


def _behind(tables: Mapping[str, pl.DataFrame]) -> Iterator[tuple[str, pl.DataFrame]]:
    """The numbers behind the figures of classes; of a matrix whose cells cannot show them, the largest."""
    for name, table in tables.items():
        if not name.startswith("confusion_matrix"):
            yield "Every class", table
        elif table["class"].n_unique() > MOST_IN_MATRIX:
            taken = table.filter(pl.col("class") != pl.col("predicted"))
            yield "Most often taken for another", taken.sort("items", descending=True, maintain_order=True).head(20)


def _numbers(title: str, table: pl.DataFrame) -> Table:
    return Table(title, tuple(table.columns), tuple(tuple(map(_exact, row)) for row in table.iter_rows()))


def _exact(value: PageCell) -> PageCell:
    return Shown(_score(value), value) if isinstance(value, float) else value


def _fetched(record: RunRecord) -> list[Block]:
    """Means per epoch; nothing of a graph that is stored whole."""
    found = FetchedByEpoch.of(record.rows)
    if found is None:
        return []
    return [Facts(f"Means of {found.num_epochs} epochs, over all ranks", tuple(found.described()))]


def _used(folder: RunFolder) -> list[Block]:
    """What the job asked for and used, where it was a job; else what the monitors measured."""
    if folder.epilog_path.is_file():
        return _of_job(folder)
    hosts = summarise(read_monitors(folder.monitor_dir)).hosts
    return [_hosts(hosts)] if hosts else []


def _of_job(folder: RunFolder) -> list[Block]:
    epilog = read_document(folder.epilog_path, Epilog, "write it again: python -m graphmill.diagnose.epilog RUN_FOLDER")
    job = f"job {epilog.job_id}" if epilog.job_id else "no job"
    blocks: list[Block] = [Remark(f"Attempt {epilog.attempt}, {job}{f', {epilog.state}' if epilog.state else ''}.")]
    head, *rows = resources(epilog) or [[]]
    if rows:
        blocks.append(Table("Asked, measured by the monitors, and accounted by Slurm", tuple(head), _texts(rows)))
    blocks += [Remark(f"Advice: {advice['text']}.") for advice in epilog.advice]
    staged = [
        (each.hostname, each.outcome.replace("_", " "), gib(each.bytes / 2**20), round(each.seconds, 1), each.verified)
        for each in epilog.staging
    ]
    if staged:
        blocks.append(
            Table("Data staged near the ranks", ("host", "outcome", "GiB", "s", "verified by"), tuple(staged))
        )
    jobs = [(job.job_id, job.how, job.dependency, "; ".join(job.changes)) for job in folder.jobs()]
    if jobs:
        blocks.append(table_of("Jobs of the run", ("job", "how", "waited for", "asked for otherwise"), jobs))
    return [*blocks, *(Remark(f"Note: {note}.", "unsure") for note in epilog.notes)]


def _texts(rows: Sequence[Sequence[str]]) -> tuple[tuple[PageCell, ...], ...]:
    return tuple(tuple(row) for row in rows)


def _hosts(hosts: Sequence[HostSummary]) -> Table:
    columns = ("host", "cores busy: ranks", "cores busy: all", "memory of the ranks, GiB", "read, MiB", "received, MiB")
    rows = [
        (
            host.hostname,
            _amount(host.ranks_cores_avg, 1),
            _amount(host.host.cores_avg, 1),
            _amount(host.ranks_peak_mib, 1024),
            _amount(host.host.read_bytes, 2**20),
            _amount(host.host.received_bytes, 2**20),
        )
        for host in hosts
    ]
    return table_of("Mean of cores, peak of memory, sums of the rest, as the monitors measured them", columns, rows)


def _amount(value: float | None, unit: int) -> float | None:
    return None if value is None else round(value / unit, 2)


def _attempts(record: RunRecord) -> tuple[Block, ...]:
    rows = [
        (number, Shown(utc(each.time), each.time), each.hostname, each.job_id, ranks, each.steps_saved)
        for number, (each, ranks) in enumerate(zip(record.attempts, record.ranks_of_attempts, strict=True), 1)
    ]
    if not rows:
        return ()
    columns = ("attempt", "began, UTC", "host", "job", "ranks", "from step")
    listed = table_of("Every start of the run", columns, rows)
    changed = record.outcome.elastic if record.outcome is not None else ""
    if not changed:
        return (listed,)
    said = f"{changed}; {record.plan.ranks} were planned: {effect_of(record.plan)}"
    return (Remark(said, "unsure"), listed)


def utc(time_s: float) -> str:
    """Unix time for display."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _epochs(record: RunRecord) -> tuple[Block, ...]:
    if not record.rows:
        return ()
    kind, step = record.plan.kind, -(-len(record.rows) // MOST_EPOCHS)
    columns = {
        "epoch": "epoch",
        "loss": _with_unit("loss", _unit(record, kind.loss_unit)),
        "val_loss": _with_unit("val loss", _unit(record, kind.loss_unit)),
        **{f"val_{each.name}": f"val {_with_unit(each.words, _unit(record, each.unit))}" for each in kind.measures},
        **{"train_s": "training, s", "eval_s": "evaluating, s", "seeds_per_s": f"{kind.seeds_are}/s"},
        **({"num_syncs": "syncs", "measured_mib_epoch": "sent, MiB"} if record.plan.ranks > 1 else {}),
        **(EPOCH_COLUMNS if FetchedByEpoch.of(record.rows) is not None else {}),
        **{"peak_rss_mib": "memory of rank 0, MiB", "attempt": "attempt"},
    }
    rows = [tuple(row.get(name) for name in columns) for row in record.rows[::-1][::step][::-1]]
    every = f"Every {step}th epoch" if step > 1 else "Every epoch"
    return (table_of(f"{every}, as in metrics.csv", tuple(columns.values()), rows),)


def _unit(record: RunRecord, unit: str) -> str:
    """What the values of a column are in; where that is the unit of the data, and they have one, its name."""
    return str(getattr(record.plan.dataset, "unit", "") or unit) if unit == DATA_UNIT else unit


def _with_unit(words: str, unit: str) -> str:
    return f"{words}, {unit}" if unit else words
