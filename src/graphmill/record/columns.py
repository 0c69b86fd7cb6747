"""From what the loop knows of an epoch to a row of a task's metrics.csv, and back.

Whoever reads runs of any task asks by the loop's names (`facts_of`); the file itself has the task's columns, in its
order: see `spec.columns`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from graphmill.base.names import did_you_mean
from graphmill.spec.columns import LOOP_NAMES, Cell, Column
from graphmill.spec.kinds import KINDS
from graphmill.spec.kinds.kind import AnyKind

ANY_COLUMN: Final[dict[str, Column]] = {name: column for kind in KINDS for name, column in kind.columns.items()}
"""Every column of every built-in task; one name holds one type of value, whatever the task."""


def cells_of(kind: AnyKind, facts: Mapping[str, Cell]) -> dict[str, Cell]:
    """The row of a task's metrics.csv that shows `facts`; those that it has no column for are left out."""
    known = LOOP_NAMES | {f"{when}_{measure.name}" for measure in kind.measures for when in ("val", "best_val")}
    for name in facts.keys() - known:
        raise ValueError(f"the loop knows no {name!r} of an epoch; {did_you_mean(name, known)}")
    return {name: facts.get(column.shows or name) for name, column in kind.columns.items()}


def facts_of(kind: AnyKind, row: Mapping[str, str]) -> dict[str, str]:
    """What a row of a task's metrics.csv says, by the loop's names; columns that it lacks are left out."""
    return {column.shows or name: row[name] for name, column in kind.columns.items() if name in row}


def is_lower_better(kind: AnyKind, name: str) -> bool:
    """Whether less is better of a column of a task: a loss, or a measure that is an error; best ones included."""
    column = kind.columns.get(name)
    said = ((column.shows if column else "") or name).removeprefix("best_")
    errors = {f"val_{measure.name}" for measure in kind.measures if not measure.higher_is_better}
    return said in errors or said in ("loss", "val_loss")


def kind_of_header(header: Iterable[str]) -> AnyKind | None:
    """The built-in task whose metrics.csv has exactly this header, or None."""
    names = tuple(header)
    return next((kind for kind in KINDS if tuple(kind.columns) == names), None)


def columns_markdown(kind: AnyKind) -> str:
    """The table of docs/reference/columns.md: name, unit, description, in the file's order."""
    lines = [
        "| column | unit | what it holds |",
        "|---|---|---|",
        *(f"| `{name}` | {column.unit} | {column.description} |" for name, column in kind.columns.items()),
    ]
    return "\n".join(lines) + "\n"
