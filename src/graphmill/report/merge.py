"""Merge the metrics.csv of many runs into a table per task: same inputs, same bytes, in whatever order files are found.

Of rows with one key the last attempt wins: the highest `attempt`; within one file, of equal attempts, the later line
(the original's sweep appended). Two files that hold different rows for one key and attempt are refused, because no
rule that leaves out the order of files could choose between them. What the runs were planned to do differently, beyond
what metrics.csv itself says, are columns of their own (`configurations`).

Every file is read twice: to learn which runs it holds and what would be wrong with the whole, and when its rows are
due. So the rows of one run are in memory at a time, unless other keys than the run's come first.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.record.columns import any_column, kind_of_header
from graphmill.record.metrics import CsvTable, read_table
from graphmill.record.run_folder import RunFolder
from graphmill.report.configurations import plan_of_table, what_varies
from graphmill.report.order import Value, sort_key
from graphmill.report.sheet import Row, Sheet
from graphmill.report.table import MERGED_METRICS, as_now, layout_of, of_task, typed_rows
from graphmill.spec.columns import Column, Layout
from graphmill.spec.kinds import find_kind
from graphmill.spec.kinds.kind import AnyKind
from graphmill.spec.measures import with_measures

_log = logging.getLogger(__name__)

_RUN: Final = "run_id"
KEY_COLUMNS = (_RUN, "sync_scheme", "sync_every", "world_size", "seed", "epoch")


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge wrote, and from what."""

    csv: Path
    parquet: Path
    task: str | None  # of its runs, where runs of several tasks were found: each has a table of its own
    num_files: int
    num_rows: int
    num_superseded: int  # rows left out, because a later attempt or an equal copy replaces them
    original_files: tuple[Path, ...]  # of scripts that a task comes from; the columns they lack were filled in


@dataclass(frozen=True, slots=True)
class _File:
    """A file to merge, of which no row is kept: it is read again when its rows are written."""

    table: CsvTable  # without rows; the header by the names of now
    texts: Mapping[str, Mapping[str, int]]  # column → each of its texts, and the first line that has it
    is_original: bool  # of a script that a task comes from
    varied: tuple[str, ...] = ()  # the cells of what its run was planned to do differently

    @classmethod
    def read(cls, path: Path, names: Iterable[str]) -> "_File":
        """Read the file, to learn what it holds in the columns `names`."""
        original = read_table(path)
        table = as_now(original)
        texts = {name: _texts(table, name) for name in names}
        return cls(replace(table, rows=(), lines=()), texts, layout_of(original) is not None)

    def read_again(self, header: tuple[str, ...]) -> CsvTable:
        """The whole table, with the columns `header`. `UserError`: it holds other runs now."""
        path = self.table.path
        table = as_now(read_table(path))
        if table.header != self.table.header or any(
            _texts(table, name).keys() - texts for name, texts in self.texts.items()
        ):
            raise UserError(f"{path} was changed while it was merged", fix="merge again")
        wide = _spread(table, header[: len(header) - len(self.varied)])
        return replace(wide, header=header, rows=tuple((*row, *self.varied) for row in wide.rows))


def _texts(table: CsvTable, name: str) -> dict[str, int]:
    """The texts of a column, each with its first line; of one that is not there the empty text, if there is a row."""
    if name not in table.header:
        return dict.fromkeys([""] * bool(table.rows), 0)
    place = table.header.index(name)
    found: dict[str, int] = {}
    for line, row in zip(table.lines, table.rows, strict=True):
        found.setdefault(row[place], line)
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    path: Path
    line: int
    attempt: int
    cells: tuple[str, ...]
    values: tuple[Value, ...]
    key: tuple[Value, ...]


def merge(
    input_root: Path,
    *,
    pattern: str = "**/metrics.csv",
    output: Path = MERGED_METRICS,
    key_columns: Sequence[str] = KEY_COLUMNS,
    layout: Layout | None = None,
) -> list[Merged]:
    """Merge all files under `input_root` that match the glob `pattern` into `output`, and Parquet next to it.

    Runs of several tasks have no columns in common to be one table: each task has a file of its own (`of_task`).
    `layout`: write the header of another program, as a view of our columns.
    """
    told = dict.fromkeys((key_columns[0], _RUN))
    files = [_File.read(path, told) for path in find_metrics(input_root, pattern, output)]
    by_task = _by_task(files)
    if len(by_task) == 1 or layout is not None:  # a view is of one task, and refused for another's runs
        return [_merged(files, output, None, key_columns, layout)]
    merged = [_merged(part, of_task(output, task), task, key_columns, None) for task, part in by_task.items()]
    for former in filter(Path.exists, (output, output.with_suffix(".parquet"))):
        former.unlink()  # it would be read in place of these
        _log.info(f"removed {former}: of an earlier merge, in place of which each task has a table now")
    return merged


def _by_task(files: Sequence[_File]) -> dict[str, list[_File]]:
    """The files of each task, in the order of the tasks' names; all under "" where that of some is not known."""
    apart: dict[str, list[_File]] = {}
    kinds = {file.table.header: kind_of_header(file.table.header) for file in files}
    for file in files:
        kind = kinds[file.table.header] or _planned_kind(file.table)
        apart.setdefault(kind.name if kind is not None else "", []).append(file)
    return {"": list(files)} if "" in apart else dict(sorted(apart.items()))


def _merged(
    files: Sequence[_File], output: Path, task: str | None, key_columns: Sequence[str], layout: Layout | None
) -> Merged:
    tables = _with_all_measures(_with_own_columns([file.table for file in files]))
    _check_same_header(tables)
    varied = what_varies(plan_of_table(table) for table in tables)
    header, columns = (*tables[0].header, *varied.columns), {**_columns(tables[0]), **varied.columns}
    for name in key_columns:
        if name not in header:
            raise UserError(
                f"no file has the key column {name!r}, and {tables[0].path} is the first: {did_you_mean(name, header)}",
                fix="give columns that are there as --key-columns, or keep other programs' files out of --input-root",
            )
    files = [replace(file, varied=cells) for file, cells in zip(files, varied.cells, strict=True)]
    merging = _Merging(header, columns, key_columns, _groups(files, header, columns, key_columns[0]))
    sheet = Sheet(header, columns, merging.rows)
    if layout is not None:
        sheet = _viewed(sheet, layout, num_runs=len({run for file in files for run in file.texts[_RUN]}))
    return Merged(
        csv=output,
        parquet=sheet.write(output),
        task=task,
        num_files=len(files),
        num_rows=merging.num_rows,
        num_superseded=merging.num_superseded,
        original_files=tuple(file.table.path for file in files if file.is_original),
    )


def _groups(
    files: Sequence[_File], header: tuple[str, ...], columns: Mapping[str, Column], name: str
) -> list[list[_File]]:
    """Files whose rows stand together in the merged table, as a rule those of one run; in the order of their rows.

    All that a group has in the first key column, `name`, comes before all that the next one has.
    """
    own = header[len(header) - len(files[0].varied) :]
    found = []
    for place, file in enumerate(files):
        told = {varied[name]: 0} if name in (varied := dict(zip(own, file.varied, strict=True))) else file.texts[name]
        one = CsvTable(file.table.path, (name,), tuple((text,) for text in told), tuple(told.values()))
        order = [sort_key(value) for (value,) in typed_rows(one, columns)]
        if order:  # else it has no row
            found.append((min(order), max(order), place))
    groups: list[list[int]] = []
    last = None
    for first, end, place in sorted(found):
        if last is None or first > last:
            groups.append([])
        groups[-1].append(place)
        last = end if last is None else max(last, end)
    return [[files[place] for place in sorted(group)] for group in groups]


@dataclass(slots=True)
class _Merging:
    """The rows of all groups of files, in order. One group is in memory at a time."""

    header: tuple[str, ...]
    columns: Mapping[str, Column]
    key_columns: Sequence[str]
    groups: Sequence[Sequence[_File]]
    num_rows: int = 0
    num_superseded: int = 0

    def rows(self) -> Iterator[Row]:
        """One row per key; they are counted meanwhile."""
        self.num_rows = self.num_superseded = 0
        for files in self.groups:
            tables = (file.read_again(self.header) for file in files)
            rows = [row for table in tables for row in _rows(table, self.key_columns, self.columns)]
            kept = _last_attempts(rows, self.key_columns)
            kept.sort(key=lambda row: [sort_key(value) for value in row.key])
            self.num_rows += len(kept)
            self.num_superseded += len(rows) - len(kept)
            yield from ((row.cells, row.values) for row in kept)


def _viewed(sheet: Sheet, layout: Layout, num_runs: int) -> Sheet:
    missing = [ours for ours in layout.columns.values() if ours not in sheet.header]
    if missing:
        raise UserError(
            f"layout {layout.name} shows {', '.join(missing)}, which these runs do not have: they are of another task",
            fix="--glob chooses among the runs; --layout wide shows any",
        )
    if _RUN not in layout.columns and num_runs > 1:
        raise UserError(
            f"layout {layout.name} has no column that identifies runs, and there are {num_runs}",
            fix="--glob 'RUN/metrics.csv', and an --output for each",
        )
    places = [sheet.header.index(ours) for ours in layout.columns.values()]

    def rows() -> Iterator[Row]:
        for cells, values in sheet.rows():
            yield tuple(cells[place] for place in places), tuple(values[place] for place in places)

    return Sheet(tuple(layout.columns), {there: sheet.columns[ours] for there, ours in layout.columns.items()}, rows)


def find_metrics(root: Path, pattern: str, output: Path) -> list[Path]:
    """Every file below `root` that matches the glob, sorted, except `output`; `UserError` if there is none."""
    if output.suffix != ".csv":
        raise UserError(
            f"{output} does not end in .csv, and the Parquet file next to it has the same stem",
            fix="end --output in .csv",
        )
    if not root.is_dir():
        raise UserError(
            f"{root} is not a folder", fix="graphmill merge --input-root FOLDER, where runs keep their logs"
        )
    try:
        found = sorted(path for path in root.glob(pattern) if path.is_file() and path.resolve() != output.resolve())
    except (ValueError, NotImplementedError) as error:
        raise UserError(
            f"{pattern!r} is not a pattern of files below {root}: {error}", fix="--glob '**/metrics.csv'"
        ) from None
    if not found:
        raise UserError(
            f"no file below {root} matches {pattern!r}",
            fix="train first (graphmill train debian-packages-sage), or give --input-root the folder of your runs",
        )
    return found


def _with_own_columns(tables: Sequence[CsvTable]) -> list[CsvTable]:
    """Runs from before their task had columns of its own get them, empty, beside runs that have them."""
    kinds = {table.header: kind_of_header(table.header) for table in tables}
    owns = {header: tuple(kind.own_columns) if kind is not None else () for header, kind in kinds.items()}
    if not any(own and set(own) <= set(header) for header, own in owns.items()):
        return list(tables)
    wide = {header: (*header, *(name for name in own if name not in header)) for header, own in owns.items()}
    return [_spread(table, wide[table.header]) for table in tables]


def _with_all_measures(tables: Sequence[CsvTable]) -> list[CsvTable]:
    """Runs of one task with the columns of all measures that users defined for some of them; empty in the others."""
    headers = {table.header for table in tables}
    kinds = [kind_of_header(header) for header in headers]
    known = [kind for kind in kinds if kind is not None]
    is_one_task = len(known) == len(kinds) and len({kind.name for kind in known}) == 1
    if len(headers) == 1 or not is_one_task or {tuple(kind.columns) for kind in known} != headers:
        return list(tables)
    task = find_kind(known[0].name)
    own = {measure.name: measure for kind in known for measure in kind.measures if measure not in task.measures}
    first = {kind.primary.name for kind in known}
    best_by = first.pop() if len(first) == 1 else None
    header = tuple(with_measures(task, [own[name] for name in sorted(own)], best_by).columns)
    return [_spread(table, header) for table in tables]


def _spread(table: CsvTable, header: tuple[str, ...]) -> CsvTable:
    if table.header == header:
        return table
    rows = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    return replace(table, header=header, rows=tuple(tuple(row.get(name, "") for name in header) for row in rows))


def _check_same_header(tables: Sequence[CsvTable]) -> None:
    first = tables[0]
    for table in tables[1:]:
        if table.header != first.header:
            raise UserError(
                f"{first.path} and {table.path} have different columns: {_difference(first, table)}",
                fix="merge them apart (--glob, --output), or leave one out",
            )


def _columns(table: CsvTable) -> Mapping[str, Column]:
    """What the columns hold: by the header; else by the plan next to the file, of a task outside this package."""
    kind = kind_of_header(table.header) or _planned_kind(table)
    return kind.columns if kind is not None else any_column()


def _planned_kind(table: CsvTable) -> AnyKind | None:
    folder = RunFolder(table.path.parent)
    return folder.read_plan().kind if folder.plan_path.is_file() else None


def _difference(one: CsvTable, other: CsvTable) -> str:
    only_one = [name for name in one.header if name not in other.header]
    only_other = [name for name in other.header if name not in one.header]
    if not only_one and not only_other:
        place, (a, b) = next(
            (place, pair)
            for place, pair in enumerate(zip(one.header, other.header, strict=True), 1)
            if pair[0] != pair[1]
        )
        return f"the same names in another order; column {place} is {a!r} in the first and {b!r} in the second"
    parts = [
        f"only the {which} has {', '.join(names)}"
        for which, names in (("first", only_one), ("second", only_other))
        if names
    ]
    return "; ".join(parts)


def _rows(table: CsvTable, key_columns: Sequence[str], columns: Mapping[str, Column]) -> Iterable[_Row]:
    places = [table.header.index(name) for name in key_columns]
    attempt_place = table.header.index("attempt") if "attempt" in table.header else None
    for line, cells, values in zip(table.lines, table.rows, typed_rows(table, columns), strict=True):
        attempt = 0 if attempt_place is None else values[attempt_place] or 0
        key = tuple(values[place] for place in places)
        yield _Row(table.path, line, int(attempt), cells, values, key)


def _last_attempts(rows: Iterable[_Row], key_columns: Sequence[str]) -> list[_Row]:
    """One row per key. Rows of one file come in the order of its lines."""
    rivals: dict[str, dict[Path, _Row]] = {}
    for row in rows:
        of_key = rivals.setdefault(repr(row.key), {})  # repr: a NaN equals itself
        if row.path not in of_key or row.attempt >= of_key[row.path].attempt:
            of_key[row.path] = row
    return [_winner(list(of_key.values()), key_columns) for of_key in rivals.values()]


def _winner(rows: Sequence[_Row], key_columns: Sequence[str]) -> _Row:
    """The row of the last attempt, out of one row per file."""
    last = max(row.attempt for row in rows)
    winner, *copies = sorted((row for row in rows if row.attempt == last), key=lambda row: row.path)
    for copy in copies:
        if copy.cells != winner.cells:
            key = ", ".join(f"{name}={value}" for name, value in zip(key_columns, winner.key, strict=True))
            raise UserError(
                f"{winner.path}, line {winner.line} and {copy.path}, line {copy.line} hold different rows"
                f" for {key}, and both are of attempt {last}",
                fix="remove the older of the two, or give its rows another run_id",
            )
    return winner
