"""evaluations.csv: every evaluation of a run in long form, a row per epoch, set and measure; written by rank 0.

So a run may have any number of named evaluation sets besides `val` and `test`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from graphmill.base.cells import csv_text
from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.base.retries import is_there, remove_file
from graphmill.record.documents import BaselineScores
from graphmill.record.lines import append_lines
from graphmill.record.metrics import format_cell, read_table
from graphmill.record.run_folder import RunFolder

COLUMNS: Final = ("epoch", "set", "measure", "value")
BASELINE_OF: Final = "{split}/{baseline}"
"""The set of a baseline: what it scores on a split. It belongs to no epoch, and is recorded as of epoch 0."""
AT_THE_END: Final = "test"
"""The set that is evaluated once, after the last step, with the weights of the best epoch."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One row of evaluations. `epoch`: the weights are those at its end, counted from 1; 0: the initial weights."""

    epoch: int
    set: str  # val, test, or the name of another set
    measure: str
    value: float


def append_evaluation(path: Path, epoch: int, name: str, measures: Mapping[str, float]) -> None:
    """Append the measures of the set called `name`, the header first if there is no file; durable on return."""
    if not is_there(path):
        write_text(path, _text([]))
    append_lines(path, [_line(Evaluated(epoch, name, measure, float(value))) for measure, value in measures.items()])


def cut_back(folder: RunFolder, num_epochs: int, *, from_the_start: bool) -> None:
    """Leave the evaluations of the first `num_epochs` epochs: later ones, and what comes after them, are done again.

    After the last epoch come that of the test split, and the baselines that are scored at the end.

    `from_the_start`: no step is kept, so the evaluation of initial weights (epoch 0) is done again, too.
    """
    path = folder.evaluations_path
    if from_the_start:
        remove_file(path)
        return
    known = read_evaluations(folder, is_growing=True)
    trained = next((place for place, row in enumerate(known) if row.epoch > 0), len(known))
    write_text(path, _text(row for place, row in enumerate(known) if _is_kept(row, num_epochs, place > trained)))


def read_evaluations(folder: RunFolder, *, is_growing: bool = False) -> list[Evaluated]:
    """All rows, in the order in which they were measured; none if there is no file. `UserError` if it is damaged.

    `is_growing`: a rank may be appending to it, so a torn last line counts as not there yet.
    """
    path = folder.evaluations_path
    if not is_there(path):
        return []
    table = read_table(path, is_growing=is_growing)
    if table.header != COLUMNS:
        raise UserError(
            f"{path} has the columns {', '.join(table.header)}, not {', '.join(COLUMNS)}",
            fix="restore the file from where it was copied",
        )
    return [_row(path, line, cells) for line, cells in zip(table.lines, table.rows, strict=True)]


def recorded_baselines(folder: RunFolder) -> BaselineScores:
    """What baselines scored when the run began."""
    found: BaselineScores = {}
    for row in read_evaluations(folder, is_growing=True):
        split, slash, baseline = row.set.partition("/")
        if slash and row.epoch == 0:
            found.setdefault(split, {}).setdefault(baseline, {})[row.measure] = row.value
    return found


def _row(path: Path, line: int, cells: tuple[str, ...]) -> Evaluated:
    epoch, name, measure, value = cells
    try:
        return Evaluated(int(epoch), name, measure, float(value))
    except ValueError:
        raise UserError(
            f"{path}, line {line}: epoch {epoch!r}, value {value!r}: a number was expected",
            fix="restore the file from where it was copied",
        ) from None


def _is_kept(row: Evaluated, num_epochs: int, has_trained: bool) -> bool:
    is_at_the_end = row.set == AT_THE_END or (has_trained and row.epoch == 0)
    return row.epoch <= num_epochs and not is_at_the_end


def _text(rows: Iterable[Evaluated]) -> str:
    return "".join(f"{line}\n" for line in (",".join(COLUMNS), *(_line(row) for row in rows)))


def _line(row: Evaluated) -> str:
    return csv_text([[format_cell(value) for value in astuple(row)]]).removesuffix("\n")
