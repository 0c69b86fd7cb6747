"""Read a metrics.csv as a typed table, whatever wrote it: graphmill, or another program."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import polars as pl

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.record.columns import current_name, current_names, kind_of_header, kinds_measured, layouts
from graphmill.record.metrics import CsvTable, read_table
from graphmill.record.run_folder import RunFolder
from graphmill.report.configurations import PREFIX, what_varies, with_labels
from graphmill.report.directions import with_directions
from graphmill.report.order import Value
from graphmill.spec.columns import Column, ColumnType, Layout
from graphmill.spec.kinds import TASKS, find_kind
from graphmill.spec.kinds.kind import AnyKind
from graphmill.spec.measures import judged_kind
from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)

MERGED_METRICS = Path("results/metrics.csv")

ColumnsOf = Callable[[AnyKind], Collection[str]]
"""Which columns of a task's runs are read: ten thousand runs have tens of millions of cells."""

_DTYPES: dict[ColumnType, pl.DataType] = {
    "text": pl.String(),
    "integer": pl.Int64(),
    "number": pl.Float64(),
    "bool": pl.Boolean(),
}
_MEANINGS: dict[ColumnType, str] = {
    "text": "text",
    "integer": "a whole number",
    "number": "a number",
    "bool": "true or false",
}


@dataclass(frozen=True, slots=True)
class Metrics:
    """The typed rows of runs of one task, with all columns of that task; one that the file lacks is null."""

    kind: AnyKind
    frame: pl.DataFrame


def of_task(path: Path, task: str) -> Path:
    """The table of one task, where runs of several were merged: next to `path`."""
    return path.with_name(f"{path.stem}_{_as_stem(task)}{path.suffix}")


def load_tables(
    path: Path = MERGED_METRICS, *, runs: str = "*", task: str | None = None, columns: Sequence[str | None] = ()
) -> list[tuple[Path, Metrics]]:
    """What a merge wrote: the table at `path`, or that of each task, where runs of several were merged.

    Of several, those with a run that matches and with the `columns` that are asked for. `task`: its table alone.
    """
    beside = [table for name in ([task] if task else TASKS) if (table := of_task(path, name)).exists()]
    if path.exists() or len(beside) < 2:
        table = path if path.exists() or not beside else beside[0]
        return [(table, load_metrics(table, runs=runs, task=task))]
    asked = {current_name(name) for name in columns if name is not None}
    loaded = [(table, _read_all(table, task=None)) for table in beside]
    chosen = [
        (table, Metrics(metrics.kind, rows))
        for table, metrics in loaded
        if asked <= set(metrics.frame.columns) and (rows := _matching(metrics.frame, runs)).height
    ]
    for table in set(beside) - {table for table, _ in chosen}:
        _log.info("%s is passed over: it has no run or no column that was asked for", table)
    if not chosen:
        raise UserError(
            f"none of {', '.join(map(str, beside))} has a run that matches {runs!r}"
            + (f" and the columns {', '.join(sorted(asked))}" if asked else ""),
            fix="ask for one of the tables: --metrics FILE, and it says what it has",
        )
    return chosen


def named(tables: Sequence[tuple[Path, Metrics]]) -> str:
    """Paths of the tables, for a message."""
    return " and ".join(str(path) for path, _ in tables)


def load_metrics(path: Path = MERGED_METRICS, *, runs: str = "*", task: str | None = None) -> Metrics:
    """The rows of runs whose run_id matches the glob `runs`. `task`: their kind, if the header does not give it."""
    if not path.exists():
        raise UserError(f"{path} does not exist", fix=f"graphmill merge --input-root logs --output {path}")
    whole = _read_all(path, task)
    chosen = _matching(whole.frame, runs)
    if chosen.is_empty():
        known = sorted({run or "" for run in whole.frame["run_id"]})
        raise UserError(
            f"no run of {path} matches {runs!r}; {did_you_mean(runs, known)}", fix="give --runs another pattern"
        )
    return Metrics(whole.kind, chosen)


def _read_all(path: Path, task: str | None) -> Metrics:
    table = as_now(read_table(path))
    kind = _kind_of(table, task)
    frame = _with_all_columns(frame_of(table.header, typed_rows(table, kind.columns), kind.columns), kind)
    if frame.is_empty():
        raise UserError(f"{path} has a header, but no row", fix="train for at least one epoch, then graphmill merge")
    return Metrics(kind, frame)


def _matching(frame: pl.DataFrame, runs: str) -> pl.DataFrame:
    return frame.filter(pl.Series([fnmatchcase(run or "", runs) for run in frame["run_id"]], dtype=pl.Boolean))


def load_runs(folders: Sequence[RunFolder]) -> list[Metrics]:
    """The rows of runs as they are in their folders now, the runs of each task apart; a run without rows has none."""
    return metrics_of([(plan, rows_of(folder, plan)) for folder in folders for plan in [folder.read_plan()]])


def rows_of(folder: RunFolder, plan: Plan, columns: ColumnsOf | None = None) -> pl.DataFrame:
    """The typed rows of one run as they are in its folder now, perhaps none; `columns`: only these."""
    if not folder.metrics_path.is_file():
        return pl.DataFrame()
    table, kind = as_now(read_table(folder.metrics_path, is_growing=True)), plan.kind
    if columns is not None:
        names = columns(kind)
        table = _narrow(table, [place for place, name in enumerate(table.header) if name in names])
    return frame_of(table.header, typed_rows(table, kind.columns), kind.columns)


def _narrow(table: CsvTable, places: Sequence[int]) -> CsvTable:
    rows = tuple(tuple(row[place] for place in places) for row in table.rows)
    return replace(table, header=tuple(table.header[place] for place in places), rows=rows)


def metrics_of(runs: Sequence[tuple[Plan, pl.DataFrame]], columns: ColumnsOf | None = None) -> list[Metrics]:
    """A table for the runs of each task, with what varies between them and all its columns, or only `columns`."""
    apart: dict[str, list[tuple[Plan, pl.DataFrame]]] = {}
    for plan, frame in runs:
        if not frame.is_empty():
            apart.setdefault(plan.task.kind, []).append((plan, frame))
    return [_metrics_of(name, members, columns) for name, members in apart.items()]


def _metrics_of(task: str, runs: Sequence[tuple[Plan, pl.DataFrame]], columns: ColumnsOf | None) -> Metrics:
    kind, varied = judged_kind(task, [plan for plan, _ in runs]), what_varies(plan for plan, _ in runs)
    frame = pl.concat([frame for _, frame in runs], how="diagonal", rechunk=True)
    run_of = [place for place, (_, rows) in enumerate(runs) for _ in range(rows.height)]
    cells = zip(varied.columns.items(), zip(*varied.cells, strict=True), strict=False)
    frame = frame.with_columns(
        pl.Series(name, _values(texts, column.kind), dtype=_DTYPES[column.kind]).gather(run_of)
        for (name, column), texts in cells
    )
    return Metrics(kind, _with_all_columns(frame, kind, columns))


def _kind_of(table: CsvTable, task: str | None) -> AnyKind:
    """Kind of a table's runs: as asked for, else by a whole header, else by columns that only one task's runs have."""
    if task is not None:
        return find_kind(task)
    header = [name for name in table.header if not name.startswith(PREFIX)]
    whole, likely = kind_of_header(header), kinds_measured(header)
    if whole is None and len(likely) != 1:
        raise UserError(
            f"{table.path} has the columns of no built-in task ({', '.join(TASKS)})",
            fix="say whose they are: --task package.module:KIND",
        )
    return with_directions(whole, table) if whole else likely[0]


def _with_all_columns(frame: pl.DataFrame, kind: AnyKind, columns: ColumnsOf | None = None) -> pl.DataFrame:
    names = kind.columns if columns is None else columns(kind)
    absent = [name for name in names if name not in frame.columns]
    return frame.with_columns(pl.lit(None, dtype=_DTYPES[kind.columns[name].kind]).alias(name) for name in absent)


@dataclass(frozen=True, slots=True)
class OfDataset:
    """The rows of one dataset, with their configuration. Datasets are never averaged together, nor in one figure."""

    name: str | None  # None: the file does not say, as those of the original
    suffix: str  # for names of files, so that two datasets never share one; empty if no dataset is named
    kind: AnyKind
    synthetic: bool
    frame: pl.DataFrame

    @property
    def is_of_one_rank(self) -> bool:
        """Whether no run had another rank to communicate with."""
        return self.frame["world_size"].eq_missing(1).all()


def datasets_of(tables: Sequence[tuple[Path, Metrics]]) -> list[tuple[Path, OfDataset]]:
    """The datasets of all tables, each with the file it is in; names of files are apart for two tasks' data, too."""
    parts = [(path, part) for path, metrics in tables for part in by_dataset(metrics)]
    taken = Counter(part.suffix for _, part in parts)
    return [
        (path, part if taken[part.suffix] == 1 else replace(part, suffix=f"{part.suffix}_{_as_stem(part.kind.name)}"))
        for path, part in parts
    ]


def by_dataset(metrics: Metrics) -> list[OfDataset]:
    """Split a table by dataset, in the order of their names."""
    frame = metrics.frame
    names = sorted(frame["dataset"].unique().to_list(), key=lambda name: name or "")
    stems = [_as_stem(name or "unnamed") for name in names]
    taken = Counter(stems)
    parts = []
    for place, (name, stem) in enumerate(zip(names, stems, strict=True), 1):
        suffix = f"_{stem}" if taken[stem] == 1 else f"_{stem}-{place}"
        rows = with_labels(_with_one_world(frame.filter(pl.col("dataset").eq_missing(pl.lit(name, dtype=pl.String)))))
        synthetic = bool(rows["synthetic"].any())
        is_named = name is not None or len(names) > 1
        parts.append(OfDataset(name, suffix if is_named else "", metrics.kind, synthetic, rows))
    return parts


def _as_stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "unnamed"


def _with_one_world(frame: pl.DataFrame) -> pl.DataFrame:
    """Clear the number of ranks of a run that was resumed with another: neither number is that of the run.

    Such a run has each epoch once; the original's files have whole sweeps under one run_id.
    """
    run = ("run_id", "sync_scheme", "payload", "sync_every", "seed")
    varies = pl.col("world_size").n_unique().over(run) > 1
    is_one_run = (pl.col("epoch").n_unique() == pl.len()).over(run)
    return frame.with_columns(
        pl.when(varies & is_one_run).then(None).otherwise(pl.col("world_size")).alias("world_size")
    )


def check_number_columns(metrics: "Metrics | OfDataset", columns: Iterable[str | None]) -> None:
    """Refuse a column to compute with that does not exist or holds no numbers."""
    numbers = [name for name, dtype in metrics.frame.schema.items() if dtype.is_numeric()]
    for name in columns:
        if name is not None and name not in numbers:
            raise UserError(f"metrics.csv has no column of numbers named {name!r}", fix=did_you_mean(name, numbers))


def layout_of(table: CsvTable) -> Layout | None:
    """The layout of another program whose header this is, or None."""
    return next((layout for _, layout in layouts().values() if tuple(layout.columns) == table.header), None)


def as_now(table: CsvTable) -> CsvTable:
    """The table by the names, and with all columns, that its task has now; and with the values that its layout implies.

    A table that has the names of now is returned as it is.
    """
    header = current_names(table.header)
    if header == table.header:
        return table
    kind, layout = kind_of_header(header), layout_of(table)
    if kind is None:
        return replace(table, header=header)
    unsaid = layout.unsaid if layout else {}
    rows = (dict(zip(header, row, strict=True)) for row in table.rows)
    cells = (tuple(row.get(name, unsaid.get(name, "")) for name in kind.columns) for row in rows)
    return replace(table, header=tuple(kind.columns), rows=tuple(cells))


def typed_rows(table: CsvTable, columns: Mapping[str, Column]) -> list[tuple[Value, ...]]:
    """The values of all cells; a cell that is not what its column holds is refused with file and line."""
    types = [_type(columns, name) for name in table.header]
    by_column = list(zip(*table.rows, strict=True)) or [()] * len(types)
    try:
        return list(zip(*map(_values, by_column, types), strict=True))
    except (ValueError, OverflowError):
        return _cell_by_cell(table, types)


def _values(texts: Sequence[str], column_type: ColumnType) -> list[Value]:
    """The values of a column, [num_rows]: a hundred runs have a million cells, many alike, and each is read once."""
    convert = _CONVERT[column_type]
    known = {written: convert(text) if (text := written.strip()) else None for written in dict.fromkeys(texts)}
    return [known[written] for written in texts]


def _cell_by_cell(table: CsvTable, types: Sequence[ColumnType]) -> list[tuple[Value, ...]]:
    """Parse the table slowly, cell by cell, to name the first cell that does not fit the type of its column."""
    return [
        tuple(
            _cell(table.path, line, name, text, column_type)
            for name, text, column_type in zip(table.header, row, types, strict=True)
        )
        for line, row in zip(table.lines, table.rows, strict=True)
    ]


def frame_of(header: tuple[str, ...], rows: list[tuple[Value, ...]], columns: Mapping[str, Column]) -> pl.DataFrame:
    """A polars table with the dtype that each column asks for; empty cells are null."""
    return pl.DataFrame(rows, schema={name: _DTYPES[_type(columns, name)] for name in header}, orient="row")


def _type(columns: Mapping[str, Column], name: str) -> ColumnType:
    return columns[name].kind if name in columns else "text"  # a column that is not ours


def _cell(path: Path, line: int, column: str, text: str, column_type: ColumnType) -> Value:
    try:
        return _values([text], column_type)[0]
    except (ValueError, OverflowError):
        raise UserError(
            f"{path}, line {line}: column {column} holds {text[:40]!r}, which is not {_MEANINGS[column_type]}",
            fix=f"copy {path} again from where it was made, or correct the line",
        ) from None


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _integer(text: str) -> int:
    """The integer in a text; `4.0`, as a spreadsheet writes it, is 4."""
    number = int(text) if "." not in text else int(float(text))
    if float(number) != float(text) or not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return number


_CONVERT: Mapping[ColumnType, Callable[[str], Value]] = {
    "text": str,
    "number": float,
    "integer": _integer,
    "bool": _bool,
}
