"""Read a metrics.csv as a typed table, whatever wrote it: this package, or the original of seed 000."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import polars as pl

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.record.columns import ANY_COLUMN, COLUMNS_OF, task_of
from graphmill.record.metrics import COLUMNS, SEED_000_COLUMNS, Kind, Table, read_table
from graphmill.spec.experiment import DEFAULT_TASK

MERGED_METRICS = Path("results/metrics.csv")

SEED_000_FILLERS = {"sync_scheme": "deferred_allreduce"}
"""What a file with only the 26 columns of the original leaves unsaid: it could run one scheme. All else stays empty."""

Value = str | int | float | bool | None

_DTYPES: dict[Kind, pl.DataType] = {
    "text": pl.String(),
    "integer": pl.Int64(),
    "number": pl.Float64(),
    "claim": pl.Boolean(),
}
_MEANINGS: dict[Kind, str] = {
    "text": "text",
    "integer": "a whole number",
    "number": "a number",
    "claim": "true or false",
}


def load_metrics(path: Path = MERGED_METRICS, *, runs: str = "*") -> pl.DataFrame:
    """The typed rows of runs whose run_id matches the glob `runs`, with all columns of all tasks (null: unsaid).

    A fact that the run's own task shows under another name stands under that of node classification too: `time`.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist", fix=f"graphmill merge --input-root logs --output {path}")
    table = widen(read_table(path))
    frame = frame_of(table.header, typed_rows(table))
    shown = {column.shows or name: name for name, column in COLUMNS_OF[task_of(table.header) or DEFAULT_TASK].items()}
    absent = [
        _shown_or_null(frame, shown.get(column.shows or name), _DTYPES[column.kind]).alias(name)
        for name, column in ANY_COLUMN.items()
        if name not in frame
    ]
    frame = frame.with_columns(absent)
    if frame.is_empty():
        raise UserError(f"{path} has a header, but no row", fix="train for at least one epoch, then graphmill merge")
    chosen = [fnmatchcase(run or "", runs) for run in frame["run_id"]]
    if not any(chosen):
        known = sorted({run or "" for run in frame["run_id"]})
        raise UserError(
            f"no run of {path} matches {runs!r}; {did_you_mean(runs, known)}", fix="give --runs another pattern"
        )
    return frame.filter(pl.Series(chosen))


def _shown_or_null(frame: pl.DataFrame, name: str | None, dtype: pl.DataType) -> pl.Expr:
    return pl.lit(None, dtype=dtype) if name is None or name not in frame else pl.col(name)


@dataclass(frozen=True, slots=True)
class OfDataset:
    """The rows of one dataset. Datasets are never averaged together, nor drawn in one figure."""

    name: str | None  # None: the file does not say, as those of the original
    suffix: str  # for names of files; empty where the table holds one dataset only
    synthetic: bool
    frame: pl.DataFrame


def by_dataset(frame: pl.DataFrame) -> list[OfDataset]:
    """Split a table by dataset, in the order of their names."""
    names = sorted(frame["dataset"].unique().to_list(), key=lambda name: name or "")
    stems = [re.sub(r"[^A-Za-z0-9.-]+", "-", name or "unnamed").strip("-.") or "unnamed" for name in names]
    taken = Counter(stems)
    parts = []
    for place, (name, stem) in enumerate(zip(names, stems, strict=True), 1):
        suffix = f"_{stem}" if taken[stem] == 1 else f"_{stem}-{place}"
        rows = frame.filter(pl.col("dataset").eq_missing(pl.lit(name, dtype=pl.String)))
        synthetic = bool(rows["synthetic"].any())
        parts.append(OfDataset(name, suffix if len(names) > 1 else "", synthetic, rows))
    return parts


def check_number_columns(columns: Iterable[str]) -> None:
    """Refuse a column to compute with that does not exist or holds no numbers."""
    numbers = [name for name, column in ANY_COLUMN.items() if column.kind in ("integer", "number")]
    for name in columns:
        if name not in numbers:
            raise UserError(f"metrics.csv has no column of numbers named {name!r}", fix=did_you_mean(name, numbers))


def widen(table: Table) -> Table:
    """Give a table with exactly the columns of seed 000 our columns too; any other table is returned as it is."""
    if table.header != SEED_000_COLUMNS:
        return table
    filler = tuple(SEED_000_FILLERS.get(name, "") for name in COLUMNS if name not in SEED_000_COLUMNS)
    return replace(table, header=tuple(COLUMNS), rows=tuple(row + filler for row in table.rows))


def typed_rows(table: Table) -> list[tuple[Value, ...]]:
    """The values of all cells; a cell that is not what its column holds is refused with file and line."""
    return [
        tuple(_cell(table.path, line, name, text) for name, text in zip(table.header, row, strict=True))
        for line, row in zip(table.lines, table.rows, strict=True)
    ]


def frame_of(header: tuple[str, ...], rows: list[tuple[Value, ...]]) -> pl.DataFrame:
    """A polars table with the dtype that each column's kind asks for; empty cells are null."""
    return pl.DataFrame(rows, schema={name: _DTYPES[_kind(name)] for name in header}, orient="row")


def _kind(column: str) -> Kind:
    return ANY_COLUMN[column].kind if column in ANY_COLUMN else "text"  # a column that is not ours


def _cell(path: Path, line: int, column: str, text: str) -> Value:
    try:
        return _value(_kind(column), text.strip())
    except (ValueError, OverflowError):
        raise UserError(
            f"{path}, line {line}: column {column} holds {text[:40]!r}, which is not {_MEANINGS[_kind(column)]}",
            fix=f"copy {path} again from where it was made, or mend the line",
        ) from None


def _value(kind: Kind, text: str) -> Value:
    if not text:
        return None
    match kind:
        case "text":
            return text
        case "number":
            return float(text)
        case "integer":
            return _integer(text)
        case "claim":
            if text.lower() not in ("true", "false"):
                raise ValueError(text)
            return text.lower() == "true"


def _integer(text: str) -> int:
    """The integer a text stands for; `4.0`, as a spreadsheet writes it, is 4."""
    number = int(text) if "." not in text else int(float(text))
    if float(number) != float(text) or not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return number
