"""The sections that reports of runs, studies and pipelines share: curves, time, profile, checks, provenance, plan.

A part that a damaged file does not let us show is replaced by a sentence that says so: a report is written most of all
of runs that went wrong.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from graphmill.base.amounts import gib
from graphmill.base.errors import UnreadableError, UserError
from graphmill.diagnose.bottleneck_facts import measured_of
from graphmill.diagnose.measured import Clock, Measured
from graphmill.diagnose.profile import STEP, Row, advice, dominant, notes_of, rows_of
from graphmill.diagnose.rules import find_bottleneck
from graphmill.diagnose.thresholds import headline
from graphmill.record.phases import Profile, profile_paths, read_profile
from graphmill.record.provenance import GitState, Provenance
from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import data_read_text
from graphmill.report.chart import Chart
from graphmill.report.configurations import with_run_names
from graphmill.report.learning import learning_curves
from graphmill.report.page import Block, Breakdown, Facts, Figures, PageCell, Remark, Section, Shown, Table, Tone, facts
from graphmill.report.table import Metrics, by_dataset
from graphmill.spec.differences import flat
from graphmill.spec.plan import Plan
from graphmill.verify.check import Check
from graphmill.verify.run import verify_run

MOST_VALUES: Final = 100
"""Of a name that differs between runs, or of names in a sentence; a page says how many more there are."""
_NOTHING: Final = 0.0005  # a share that would be shown as 0.0 %
_TONES: Final[Mapping[str, Tone]] = {"ok": "good", "warn": "unsure", "unfinished": "unsure", "fail": "bad"}
_MOST_OPERATORS = 12


def blocks_or_reason(build: Callable[[], Sequence[Block]]) -> tuple[Block, ...]:
    """The blocks; or, where the files do not give them, why not."""
    try:
        return tuple(build())
    except UserError as error:
        return (Remark(f"Not shown: {error.message}", "unsure"),)
    except UnreadableError as error:
        return (Remark(f"Not shown: {error}", "unsure"),)


def curves_section(load: Callable[[], Sequence[Metrics]], *, by_run: bool = False) -> Section:
    """Learning curves of the runs that `load` reads, those of each dataset apart; a line for each configuration, or
    `by_run`, with the run's name.
    """
    return Section("Learning curves", blocks_or_reason(lambda: _curves(load(), by_run=by_run)))


def time_section(folder: RunFolder) -> Section:
    """Where the time of one run went, and what holds it back."""
    return Section("Where the time went", blocks_or_reason(lambda: _time(folder)))


def verified_sections(folder: RunFolder) -> tuple[Section, Section]:
    """What `graphmill verify` says: in a sentence, with what is not as it should be; and every check."""
    checks = verify_run(folder)
    counts = Counter(check.result for check in checks)
    summary = Remark(f"True to its plan: {counts['ok']} checks passed.", "good")
    if counts["unfinished"]:
        summary = Remark(f"Not finished. True to its plan so far: {counts['ok']} checks passed.", "unsure")
    if counts["fail"]:
        summary = Remark(f"{counts['fail']} of {len(checks)} checks failed.", "bad")
    rest = [check for check in checks if check.result != "ok"]
    blocks = (summary, _checks(rest)) if rest else (summary,)
    return Section("What was verified", blocks), Section("All checks", (_checks(checks),), is_folded=True)


def verified(folder: RunFolder) -> Shown:
    """What `graphmill verify` says, for a cell of a table."""
    counts = Counter(check.result for check in verify_run(folder))
    if counts["fail"]:
        return Shown(f"{counts['fail']} failed", tone="bad")
    if counts["unfinished"]:
        return Shown("not finished", tone="unsure")
    return Shown(f"{counts['ok']} ok" + (f", {counts['warn']} unknown" if counts["warn"] else ""), tone="good")


def _checks(checks: Sequence[Check]) -> Table:
    rows = ((each.name, each.group, Shown(each.result, tone=_TONES[each.result]), each.detail) for each in checks)
    return Table("As `graphmill verify` lists them", ("check", "of", "result", "detail"), tuple(rows))


def provenance_section(runs: Sequence[tuple[RunFolder, Plan]]) -> Section:
    """Code, data, machine and versions; what differs between the runs, with its values, at most `MOST_VALUES`."""
    return Section("Provenance", blocks_or_reason(lambda: _provenance(runs)))


def plan_section(plans: Sequence[Plan], title: str = "Plan") -> Section:
    """Every choice that all the plans share, by its dotted name."""
    shared = flat(plans[0])
    for choices in map(flat, plans[1:]):
        shared = {key: value for key, value in shared.items() if key in choices and choices[key] == value}
    rows = tuple((key, plain(value)) for key, value in shared.items())
    return Section(title, (Facts("", rows),), is_folded=True)


def listed(names: Sequence[str], separator: str = ", ") -> str:
    """Names in a line; of more than `MOST_VALUES` the first, and how many more there are."""
    more = len(names) - MOST_VALUES
    return separator.join(names[:MOST_VALUES]) + (f"{separator}and {more:,} more" if more > 0 else "")


def plain(value: Any) -> PageCell:  # noqa: ANN401  # whatever a plan holds
    """A value of a plan as it is written in a file."""
    if isinstance(value, str):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Shown(json.dumps(value), float(value) if is_number else None)  # 0.001 as it was written


def _curves(loaded: Sequence[Metrics], *, by_run: bool) -> list[Block]:
    blocks: list[Block] = []
    for part in (part for metrics in loaded for part in by_dataset(metrics)):
        charts = learning_curves(replace(part, frame=with_run_names(part.frame)) if by_run else part)
        blocks.append(Figures(tuple(charts), tuple(chart_text(chart) for chart in charts)))
    return blocks or [Remark("No epoch is over yet.")]


def chart_text(chart: Chart) -> str:
    """What a chart of lines shows, for readers who do not see it: where every line begins and ends."""
    lines = [
        f"{series.label + ': ' if series.label else ''}from {series.y[0]:.4g} to {series.y[-1]:.4g}"
        for panel in chart.panels
        for series in panel.series
    ]
    return f"{chart.y.label} against {chart.x.label}. {'; '.join(lines)}"


def _time(folder: RunFolder) -> list[Block]:
    measured = measured_of(folder)
    diagnosis = find_bottleneck(measured)
    verdict = diagnosis.verdict
    what = "the first epoch" if measured.warms_up else "the epochs after the first"
    blocks: list[Block] = [
        Remark(f"{headline(verdict.subject).capitalize()}: {verdict.text}."),
        *(Remark(f"{'Try' if not number else 'Then'}: {text}.") for number, text in enumerate(verdict.fixes)),
        Breakdown(f"Share of {measured.total_s:.1f} s, {what}, mean over ranks", tuple(_parts(measured))),
    ]
    if len(measured.clocks) > 1:
        blocks.append(_clocks(measured.clocks))
    return [*blocks, *(Remark(f"Note: {caveat}.", "unsure") for caveat in diagnosis.caveats)]


def _parts(measured: Measured) -> list[tuple[str, float]]:
    def mean(seconds: Callable[[Clock], float]) -> float:
        return sum(map(seconds, measured.clocks)) / len(measured.clocks) / measured.total_s

    parts = [
        ("forward, backward, update", mean(lambda clock: clock.compute_s)),
        ("waiting for batches", mean(lambda clock: clock.wait_s)),
        ("synchronising", mean(lambda clock: clock.sync_s)),
        ("evaluating", measured.eval_s / measured.total_s),
    ]
    if len(measured.clocks) == 1 and measured.clocks[0].sync_s < _NOTHING * measured.total_s:  # one rank ran
        del parts[2]
    return [*parts, ("the rest", max(0.0, 1 - sum(share for _, share in parts)))]


def _clocks(clocks: Sequence[Clock]) -> Table:
    columns = ("rank", "training", "computing", "waiting for batches", "synchronising", "sampling*", "gathering*")
    rows = [
        (
            each.rank,
            *(round(seconds, 2) for seconds in (each.train_s, each.compute_s, each.wait_s, each.sync_s)),
            *(round(seconds, 2) for seconds in (each.sample_s, each.gather_s)),
        )
        for each in clocks
    ]
    return Table("Seconds of each rank (*: may overlap the step)", columns, tuple(rows))


def _provenance(runs: Sequence[tuple[RunFolder, Plan]]) -> list[Block]:
    values: dict[str, dict[str, None]] = {}  # name → what is said, each once, in order
    missing = 0
    for folder, plan in runs:
        provenance = folder.read_provenance()
        missing += provenance is None
        for name, said in (*_origin(plan, provenance), ("data read from", data_read_text(folder))):
            found = values.setdefault(name, {})
            if said:
                found[said] = None
    started = values.get("started", {})
    if len(started) > 1:
        values["started"] = {f"{min(started)} to {max(started)}": None}
        values.pop("load average at the start")
    notes = [Remark(f"provenance.json is missing in {missing} of {len(runs)} runs.", "unsure")] if missing else []
    return [facts("", [(name, listed(list(found), "; ")) for name, found in values.items()]), *notes]


def _origin(plan: Plan, provenance: Provenance | None) -> list[tuple[str, str]]:
    data = plan.dataset
    rows = [("data", f"{data.name}{', synthetic' if data.synthetic else ''}"), ("data checksum", str(data.checksum))]
    if provenance is None:
        return rows
    machine = f"{provenance.cpu_model}, {provenance.num_cores} cores, {gib(provenance.memory_bytes / 2**20)} GiB"
    return [
        *rows,
        ("code", "installed, of no checkout" if provenance.code is None else _commit(provenance.code)),
        ("your own code", f"copy {provenance.own_code[:12]}" if provenance.own_code else ""),
        ("versions", ", ".join(f"{name} {version}" for name, version in provenance.versions.items())),
        ("host", provenance.hostname),
        ("machine", machine),
        ("GPUs", ", ".join(f"{gpu.name}, {gib(gpu.memory_mib)} GiB, {gpu.driver}" for gpu in provenance.gpus)),
        ("started", provenance.time_utc),
        ("load average at the start", ", ".join(f"{load:.2f}" for load in provenance.load_average)),
        ("command", " ".join(provenance.command)),
        ("in a checkout of", "" if provenance.workdir is None else _commit(provenance.workdir)),
    ]


def _commit(state: GitState) -> str:
    return state.commit + {True: ", with changes", False: "", None: ", perhaps with changes"}[state.dirty]


def profile_section(folder: RunFolder) -> Section:
    """Section about the profile of the run's steps; empty if the run was not profiled."""
    is_profiled = any(path.is_file() for path in profile_paths(folder.path))
    return Section(
        "Profile of its steps", blocks_or_reason(lambda: _blocks(read_profile(folder.path))) if is_profiled else ()
    )


def _blocks(profile: Profile) -> list[Block]:
    found, rows = advice(profile), rows_of(profile)
    first = profile.ranks[0]
    own = [(row.phase, row.share) for row in rows if not row.background and row.phase != STEP]
    what = f"{first.num_steps} steps that were timed, mean over ranks"
    blocks: list[Block] = [
        Remark(f"{found.text}."),
        *(Remark(f"Try: {text}.") for text in found.fixes),
        Breakdown(f"Share of a step, {what}", tuple(own)),
        Table(
            "Phases of a step; what is behind it costs it only what it waits",
            ("phase", "thread", "ms a step", "median", "lower quartile", "upper quartile"),
            tuple(_cells(row) for row in rows),
        ),
    ]
    operators = tuple(
        (each.name, each.phase, round(each.calls, 1), _ms(each.self_s), Shown(f"{100 * share:.1f}", share))
        for each, share in dominant(profile)[:_MOST_OPERATORS]
    )
    if operators:
        columns = ("operator", "phase", "calls", "ms a step", "share, %")
        blocks.append(Table(f"Operators of rank 0, {first.num_traced} traced steps", columns, operators))
    return [*blocks, *(Remark(f"Note: {note}.", "unsure") for note in notes_of(profile))]


def _cells(row: Row) -> tuple[str | Shown, ...]:
    numbers = (_ms(seconds) for seconds in (row.mean_s, row.median_s, row.low_s, row.high_s))
    return (row.phase, "behind it" if row.background else "step", *numbers)


def _ms(seconds: float) -> Shown:
    return Shown(f"{1e3 * seconds:.2f}", 1e3 * seconds)
