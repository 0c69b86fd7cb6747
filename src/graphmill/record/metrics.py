"""metrics.csv: one row per epoch, written by rank 0. Its columns, their units, and how a cell is written.

MB in a column of seed 000 means MiB (1024² bytes), as it did there. An empty cell means: not measured in that epoch.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, SupportsFloat, SupportsIndex

from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.base.names import did_you_mean

Kind = Literal["text", "integer", "number", "claim"]
Cell = str | bool | SupportsIndex | SupportsFloat | None
"""What a cell may be given as; numpy scalars included. None is written as an empty cell."""


@dataclass(frozen=True, slots=True)
class Column:
    """What one column of metrics.csv holds."""

    unit: str  # "" where the values have none
    kind: Kind
    description: str


def _columns_of_seed_000() -> dict[str, Column]:
    """The 26 columns of the original, in its order and units."""
    columns = {
        "run_id": Column("", "text", "name of the run"),
        "sync_every": Column("steps", "integer", "k: steps of each rank between two synchronisations"),
        "epoch": Column("", "integer", "pass over the training set that just ended, counted from 1"),
        "loss": Column("nats", "number", "mean training loss of the epoch's seeds, over all ranks"),
        "microF1": Column("", "number", "micro-F1 (= accuracy) on the validation split, exact neighbourhoods"),
        "macroF1": Column("", "number", "macro-F1 on the validation split, exact neighbourhoods"),
        "best_microF1": Column("", "number", "best microF1 so far"),
        "best_macroF1": Column("", "number", "best macroF1 so far"),
        "local_steps": Column("steps", "integer", "steps of each rank so far"),
        "epoch_steps": Column("steps", "integer", "steps of each rank in this epoch"),
        "effective_global_steps": Column("steps", "integer", "steps of all ranks so far: local_steps times world_size"),
        "seed_nodes_epoch_global": Column("nodes", "integer", "training nodes seen in this epoch, over all ranks"),
        "seed_nodes_cum_global": Column("nodes", "integer", "training nodes seen so far, over all ranks"),
        "target_global_steps": Column("steps", "integer", "steps of all ranks that the plan asks for"),
        "world_size": Column("ranks", "integer", "number of ranks"),
        "time": Column("s", "number", "wall time of the training part of the epoch, evaluation excluded"),
        "syncs": Column("", "integer", "synchronisations in this epoch"),
    }
    for precision in ("fp16", "fp32", "fp64"):
        text = f"modelled: parameters of the model in {precision}, what one synchronisation agrees on"
        columns[f"commMB_per_step_{precision}"] = Column("MiB", "number", text)
    for precision in ("fp16", "fp32", "fp64"):
        size = f"parameters in {precision}"
        columns[f"commMB_epoch_{precision}"] = Column("MiB", "number", f"modelled: syncs in this epoch times {size}")
        columns[f"commMB_cum_{precision}"] = Column("MiB", "number", f"modelled: syncs so far times {size}")
    return columns


COLUMNS: dict[str, Column] = {
    **_columns_of_seed_000(),
    "sync_scheme": Column("", "text", "deferred_allreduce, local_sgd or diloco"),
    "seed": Column("", "integer", "random seed of the run"),
    "num_hosts": Column("hosts", "integer", "number of machines the ranks run on"),
    "dataset": Column("", "text", "name of the prepared graph"),
    "synthetic": Column("", "claim", "true: the graph was generated, and is no real data"),
    "payload": Column("", "text", "number format handed to the collective: fp32, fp16 or bf16"),
    "val_loss": Column("nats", "number", "mean loss on the validation split"),
    "seeds_per_s": Column(
        "nodes/s", "number", "training nodes per second, over all ranks: seed_nodes_epoch_global ÷ time"
    ),
    "sample_s": Column("s", "number", "spent sampling neighbourhoods in this epoch (rank 0; may overlap the step)"),
    "gather_s": Column("s", "number", "spent gathering features in this epoch (rank 0; may overlap the step)"),
    "wait_s": Column("s", "number", "the step stood waiting for its mini-batch in this epoch (rank 0)"),
    "compute_s": Column("s", "number", "spent in forward, backward and update in this epoch (rank 0)"),
    "sync_s": Column("s", "number", "spent synchronising in this epoch, waiting for other ranks included (rank 0)"),
    "eval_s": Column("s", "number", "spent evaluating after this epoch (rank 0)"),
    "syncs_cum": Column("", "integer", "synchronisations so far"),
    "measured_mib_epoch": Column("MiB", "number", "measured: payload that a rank handed to collectives in this epoch"),
    "measured_mib_cum": Column("MiB", "number", "measured: payload that a rank handed to collectives so far"),
    "interface_mib_epoch": Column(
        "MiB",
        "number",
        "measured: received on the host's interface in this epoch: all its ranks, headers, evaluation",
    ),
    "interface_mib_cum": Column(
        "MiB", "number", "measured: received on the host's interface so far: all its ranks, headers, evaluation"
    ),
    "replicas_agree": Column("", "claim", "true: all ranks had bit-equal parameters after every sync of this epoch"),
    "peak_rss_mib": Column("MiB", "number", "peak resident memory of rank 0's process so far"),
    "peak_gpu_mib": Column("MiB", "number", "peak GPU memory allocated by rank 0 so far"),
    "attempt": Column(
        "", "integer", "which start of the run wrote this row, counted from 1; a resume is a new attempt"
    ),
}

SEED_000_COLUMNS: tuple[str, ...] = tuple(_columns_of_seed_000())


def write_metrics(path: Path, rows: Iterable[Mapping[str, Cell]]) -> None:
    """Write `rows` with all of `COLUMNS`, whole or not at all; same rows, same bytes.

    A column that a row lacks, or holds None for, becomes an empty cell. Floats are written as the shortest text that
    reads back to the same float.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        for name in row.keys() - COLUMNS.keys():
            raise ValueError(f"metrics.csv has no column {name!r}; {did_you_mean(name, COLUMNS)}")
        writer.writerow([format_cell(row.get(name)) for name in COLUMNS])
    write_text(path, text.getvalue())


def format_cell(value: Cell) -> str:
    """The text of one cell.

    >>> [format_cell(value) for value in (None, True, 3, 0.1, 1e-05, "local_sgd")]
    ['', 'true', '3', '0.1', '1e-05', 'local_sgd']
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if type(value).__name__ in ("bool", "bool_"):  # numpy calls its own so, and this module does without numpy
        return "true" if value else "false"
    if isinstance(value, SupportsIndex):
        return str(value.__index__())
    number = float(value)
    return repr(number) if math.isfinite(number) else str(number)


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV as it stands on disk: cells are text, and each row knows its line."""

    path: Path
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]  # last line of each row, counted from 1


def read_metrics(path: Path) -> list[dict[str, str]]:
    """Read a metrics.csv, as strings; its header may hold any columns. A torn file is refused with its line."""
    table = read_table(path)
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


def read_table(path: Path) -> Table:
    """Read a CSV with a header, or raise a `UserError` that names the file and the line where it breaks off."""
    mend = f"copy {path} again from where it was made, or remove it"
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", fix="check the path") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {line}: not UTF-8 text", fix=mend) from None
    if not text.strip():
        raise UserError(f"{path} is empty: not even a header", fix=mend)
    if "\0" in text:  # what a power cut leaves of a file that was being written
        line = text[: text.index("\0")].count("\n") + 1
        raise UserError(f"{path}, line {line}: the file holds zero bytes where text should be", fix=mend)
    if not text.endswith("\n"):  # the last number may have lost digits, and still look like one
        line = text.count("\n") + 1
        raise UserError(f"{path}, line {line}: the file ends in the middle of a line", fix=mend)
    return _parse(text, path, mend)


def _parse(text: str, path: Path, mend: str) -> Table:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    try:
        header = next(reader)
        for row in reader:
            if not row:  # a blank line does no harm
                continue
            if len(row) != len(header):
                counts = f"{len(row)} cells, but the header names {len(header)} columns"
                raise UserError(f"{path}, line {reader.line_num}: {counts}", fix=mend)
            rows.append(tuple(row))
            lines.append(reader.line_num)
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}", fix=mend) from None
    doubled = sorted({name for name in header if header.count(name) > 1})
    if doubled:
        raise UserError(f"{path}, line 1: the header names {', '.join(doubled)} more than once", fix=mend)
    return Table(path, tuple(header), tuple(rows), tuple(lines))


def columns_markdown() -> str:
    """The table of docs/reference/columns.md: name, unit, description, in the file's order."""
    lines = [
        "| column | unit | what it holds |",
        "|---|---|---|",
        *(f"| `{name}` | {column.unit} | {column.description} |" for name, column in COLUMNS.items()),
    ]
    return "\n".join(lines) + "\n"
