"""The closing table of a study: what each scheme and k reached, and what it moved and took."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import polars as pl
from rich import box
from rich.markup import escape
from rich.table import Table

from graphmill.base.errors import UserError
from graphmill.base.foreign import in_one_line
from graphmill.record.run_folder import RunFolder, checked_run_id
from graphmill.report.configurations import CONFIGURATION, PREFIX, short_names, varied_columns
from graphmill.report.curves import Variant, variant_order
from graphmill.report.pareto import RUN
from graphmill.report.style import SYNTHETIC, scheme_words, short_scheme
from graphmill.report.table import MERGED_METRICS, datasets_of, load_tables, named, sort_key
from graphmill.spec.kinds.kind import AnyKind

GROUP = ("dataset", CONFIGURATION, "sync_scheme", "payload", "world_size", "sync_every")


@dataclass(frozen=True, slots=True)
class SchemeRow:
    """One scheme and k: means over its runs. None: no run has it."""

    dataset: str | None
    varied: dict[str, Any]  # plan.<key>: value, of the keys in which the runs of this dataset differ besides
    synthetic: bool
    scheme: str | None
    payload: str | None
    world_size: int | None
    k: int | None
    num_runs: int
    measure: str  # what the task is judged by, such as micro-F1
    seeds_are: str
    val: float | None  # of the last epoch that was evaluated
    val_sd: float | None  # None for a single run
    test: float | None  # from outcome.json, by the best checkpoint
    test_sd: float | None
    syncs: float | None
    modelled_mib: float | None  # parameters × syncs, in the number format of the payload
    measured_mib: float | None
    interface_mib: float | None
    seeds_per_s: float | None
    wall_s: float  # training and evaluation of all epochs, start-up left out
    replicas_agree: bool | None  # after every sync of every run


def scheme_table(
    metrics: Path = MERGED_METRICS, *, runs_root: Path | None = Path("logs"), runs: str = "*", task: str | None = None
) -> list[SchemeRow]:
    """One row per dataset, configuration, scheme, payload, number of ranks and k.

    Test results are read from the runs' own outcome.json below `runs_root`. `task`: see `load_tables`.
    """
    tables = load_tables(metrics, runs=runs, task=task)
    parts = [part for _, part in datasets_of(tables)]
    if all(part.is_of_one_rank for part in parts):
        raise UserError(
            f"all runs of {named(tables)} are of one rank, which communicates nothing: there are no schemes to compare",
            fix="`graphmill compare` compares runs of one rank",
        )
    groups: dict[tuple[Any, ...], tuple[AnyKind, list[dict[str, Any]]]] = {}
    for part in parts:
        for run in part.frame.sort("epoch").partition_by(RUN):
            end = _end_of_run(run, part.kind, runs_root, varied_columns(part.frame))
            key = (part.kind.name, *(end[name] for name in GROUP))
            groups.setdefault(key, (part.kind, []))[1].append(end)
    return sorted((_row(kind, key[1:], members) for key, (kind, members) in groups.items()), key=_order)


def scheme_tables(rows: Sequence[SchemeRow]) -> list[Table]:
    """The rows as a table per dataset, for a terminal. Columns that no row fills are left out."""
    datasets = dict.fromkeys(row.dataset for row in rows)
    return [_table([row for row in rows if row.dataset == name], name) for name in datasets]


def _end_of_run(run: pl.DataFrame, kind: AnyKind, runs_root: Path | None, varied: Sequence[str]) -> dict[str, Any]:
    """What the last rows of one run say; `run` is sorted by epoch."""
    last = run.row(-1, named=True)
    tests, is_alone = _test_measures(last["run_id"], runs_root), last["world_size"] == 1
    train_s, eval_s = float(run["train_s"].sum() or 0), float(run["eval_s"].sum() or 0)
    seeds = last["num_seeds_cum"]
    size = "fp16" if last["payload"] in ("fp16", "bf16") else "fp32"
    return {
        **{name: last[name] for name in GROUP},
        **{name: None if is_alone else last[name] for name in ("measured_mib_cum", "interface_mib_cum")},
        "varied": {name: last[name] for name in varied},
        "synthetic": bool(run["synthetic"].any()),
        "val": _last(run[f"val_{kind.primary.name}"]),
        "test": tests.get(kind.primary.name),
        "syncs": None if is_alone else _syncs(last["num_syncs_cum"], run["num_syncs"].drop_nulls()),
        "modelled": None if is_alone else last[f"modelled_mib_cum_{size}"],
        "seeds_per_s": seeds / train_s if seeds and train_s else None,
        "wall_s": train_s + eval_s,
        "replicas_agree": run["replicas_agree"].all() if run["replicas_agree"].count() else None,
    }


def _syncs(in_all: int | None, of_epochs: pl.Series) -> int | None:
    return in_all if in_all is not None else int(of_epochs.sum()) if len(of_epochs) else None


def _last(values: pl.Series) -> float | None:
    known = values.drop_nulls()
    return float(known[-1]) if len(known) else None


def _test_measures(run_id: str | None, runs_root: Path | None) -> dict[str, Any]:
    if runs_root is None:
        return {}
    try:
        folder = RunFolder(runs_root / checked_run_id(run_id or ""))
    except UserError:  # a name that no run folder can have: the table was not made from these runs
        return {}
    outcome = folder.read_outcome()
    return outcome.test if outcome and outcome.test else {}


def _row(kind: AnyKind, key: tuple[Any, ...], members: Sequence[dict[str, Any]]) -> SchemeRow:
    dataset, _, scheme, payload, world_size, k = key

    def values(name: str) -> list[float]:
        return [member[name] for member in members if member[name] is not None]

    def average(name: str) -> float | None:
        return mean(values(name)) if values(name) else None

    def spread(name: str) -> float | None:
        found = values(name)
        return stdev(found) if len(found) > 1 and all(map(isfinite, found)) else None

    agree = [member["replicas_agree"] for member in members if member["replicas_agree"] is not None]
    return SchemeRow(
        dataset=dataset,
        varied=members[0]["varied"],
        synthetic=any(member["synthetic"] for member in members),
        scheme=scheme,
        payload=payload,
        world_size=world_size,
        k=k,
        num_runs=len(members),
        measure=kind.primary.words,
        seeds_are=kind.seeds_are,
        val=average("val"),
        val_sd=spread("val"),
        test=average("test"),
        test_sd=spread("test"),
        syncs=average("syncs"),
        modelled_mib=average("modelled"),
        measured_mib=average("measured_mib_cum"),
        interface_mib=average("interface_mib_cum"),
        seeds_per_s=average("seeds_per_s"),
        wall_s=mean(values("wall_s")),
        replicas_agree=all(agree) if agree else None,
    )


def _order(row: SchemeRow) -> tuple[Any, ...]:
    varied = [sort_key(value) for value in row.varied.values()]
    return row.dataset or "", varied, variant_order(Variant(row.scheme, row.payload, row.world_size, "")), row.k or 0


def _table(rows: Sequence[SchemeRow], dataset: str | None) -> Table:
    measure = rows[0].measure.removeprefix("micro-")  # a narrow column
    keys = list(rows[0].varied)
    names = short_names([key.removeprefix(PREFIX) for key in keys])
    numbers: list[tuple[str, list[str]]] = [
        *((f"\n{name}", [_chosen(row.varied[key]) for row in rows]) for key, name in zip(keys, names, strict=True)),
        ("payload", [_chosen(row.payload or "") for row in rows] if len({row.payload for row in rows}) > 1 else []),
        ("ranks", [_count(row.world_size) for row in rows] if len({row.world_size for row in rows}) > 1 else []),
        ("k", [_count(row.k) for row in rows]),
        ("runs", [_count(row.num_runs) for row in rows] if len({row.num_runs for row in rows}) > 1 else []),
        (f"val\n{measure}", [_score(row.val, row.val_sd) for row in rows]),
        (f"test\n{measure}", [_score(row.test, row.test_sd) for row in rows]),
        ("\nsyncs", [_count(row.syncs) for row in rows]),
        ("modelled\nMiB", [_size(row.modelled_mib) for row in rows]),
        ("measured\nMiB", [_size(row.measured_mib) for row in rows]),
        ("on wire\nMiB", [_size(row.interface_mib) for row in rows]),
        (f"\n{rows[0].seeds_are}/s", [_count(row.seeds_per_s) for row in rows]),
        ("wall\ns", [_size(row.wall_s) for row in rows]),
    ]
    table = Table(
        title=_title(rows, dataset),
        caption=_caption(rows),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    filled = [(name, cells) for name, cells in numbers if any(cells)]
    table.add_column("\nscheme", no_wrap=True)
    for name, _ in filled:
        table.add_column(
            name, justify="right", no_wrap=not name.endswith(measure)
        )  # a deviation may take a second line
    schemes = [row.scheme for row in rows]
    for place, cells in enumerate(zip(*(cells for _, cells in filled), strict=True)):
        is_first = place == 0 or schemes[place - 1] != schemes[place]
        table.add_row(_chosen(short_scheme(schemes[place])) if is_first else "", *cells)
    return table


def _title(rows: Sequence[SchemeRow], dataset: str | None) -> str:
    words = [escape(in_one_line(dataset or "dataset not recorded"))]
    if any(row.synthetic for row in rows):
        words.append(f"[red]{SYNTHETIC}[/red]")
    ranks, runs = {row.world_size for row in rows}, {row.num_runs for row in rows}
    if len(ranks) == 1 and (same := ranks.pop()):
        words.append(f"{same} ranks" if same > 1 else "1 rank")
    if runs == {1}:
        words.append("single runs")
    elif len(runs) == 1:
        words.append(f"means of {runs.pop()} runs")
    return ", ".join(words)


def _caption(rows: Sequence[SchemeRow]) -> str:
    differing = sorted({f"{scheme_words(row.scheme)} at k = {row.k}" for row in rows if row.replicas_agree is False})
    if differing:
        return f"[red]replicas differed after a sync of {escape(in_one_line(', '.join(differing)))}[/red]"
    compared = [row for row in rows if row.world_size != 1]
    if not compared:
        return "one rank each, which communicates nothing"
    if all(row.replicas_agree for row in compared):
        return "replicas were bit-equal after every sync"
    return "not all runs recorded whether their replicas agreed"


def _chosen(value: str | float | None) -> str:
    """What a plan says, as it was written."""
    return "-" if value is None else escape(in_one_line(str(value)))


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _size(value: float | None) -> str:
    """About three digits."""
    if value is None or value >= 100:
        return _count(value)
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _score(value: float | None, sd: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if sd is None else f"{value:.4f} ±{f'{sd:.4f}'.removeprefix('0')}"
