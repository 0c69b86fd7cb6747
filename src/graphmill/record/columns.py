"""Columns of metrics.csv by name: those of files that other programs wrote, too."""

import functools
from collections.abc import Iterable, Sequence

from graphmill.spec.columns import Column, Layout, Measure
from graphmill.spec.kinds import all_kinds
from graphmill.spec.kinds.kind import AnyKind
from graphmill.spec.measures import with_measures


@functools.cache
def any_column() -> dict[str, Column]:
    """Every column of every built-in task; one name holds one type of value, whatever the task."""
    return {name: column for kind in all_kinds() for name, column in kind.columns.items()}


@functools.cache
def layouts() -> dict[str, tuple[AnyKind, Layout]]:
    """Every header of another program, by its name, and the task whose runs it shows."""
    return {layout.name: (kind, layout) for kind in all_kinds() for layout in kind.layouts}


@functools.cache
def _renamed() -> dict[str, str]:
    return {name: ours for _, layout in layouts().values() for name, ours in layout.columns.items()}


def current_name(name: str) -> str:
    """The current name of a column that another program called `name`.

    >>> current_name("seed_nodes_cum_global"), current_name("time"), current_name("loss")
    ('num_seeds_cum', 'train_s', 'loss')
    """
    return _renamed().get(name, name)


def current_names(header: Iterable[str]) -> tuple[str, ...]:
    """`current_name` of a whole header; a name whose current one is in the header is another column, and stays."""
    names = tuple(header)
    return tuple(name if current_name(name) in names else current_name(name) for name in names)


def is_lower_better(kind: AnyKind, name: str) -> bool:
    """Whether lower is better for a column of a task: a loss, or a measure that is an error; best ones included."""
    errors = {f"val_{measure.name}" for measure in kind.measures if not measure.higher_is_better}
    plain = name.removeprefix("best_")
    return plain in errors or plain in ("loss", "val_loss")


def kind_of_header(header: Iterable[str]) -> AnyKind | None:
    """The built-in task that has all columns of this header; or None.

    Measures of the user's own are there with it, and in a header of today the measure first that chose the best. What
    is better of them a header does not say: see `report.directions`.
    """
    names = list(header)
    own = _own_measures(names)
    rest = set(names) - {column for name in own for column in _columns_of(name)}
    kind = next((kind for kind in all_kinds() if _is_measured(kind, rest) and rest <= kind.columns.keys()), None)
    if kind is None:
        return None
    measures = [Measure(name, name, higher_is_better=True) for name in own]
    first = next(name.removeprefix("val_") for name in names if name.startswith("val_") and name != "val_loss")
    as_written = with_measures(kind, measures, None if first == kind.primary.name else first)
    return as_written if list(as_written.columns) == names else with_measures(kind, measures, None)


def _own_measures(header: Sequence[str]) -> list[str]:
    """The names of measures that no built-in task has: each has a column of its own, and one of its best so far."""
    found = (name.removeprefix("val_") for name in header if name.startswith("val_") and name not in any_column())
    return [name for name in found if set(_columns_of(name)) <= set(header)]


def _columns_of(measure: str) -> tuple[str, str]:
    return f"val_{measure}", f"best_val_{measure}"


def kinds_measured(header: Iterable[str]) -> list[AnyKind]:
    """The built-in tasks whose measures are all in a header, whatever else is."""
    names = set(header)
    return [kind for kind in all_kinds() if _is_measured(kind, names)]


def _is_measured(kind: AnyKind, names: set[str]) -> bool:
    """Whether all measures of a task are there, or all columns of a program that it comes from, if that names runs."""
    measures = {f"val_{measure.name}" for measure in kind.measures}
    of_programs = [set(layout.columns.values()) for layout in kind.layouts if "run_id" in layout.columns]
    return measures <= names or any(columns <= names for columns in of_programs)


def columns_markdown(kind: AnyKind) -> str:
    """The table of docs/reference/columns.md: name, unit, description, in the file's order."""
    lines = [
        "| column | unit | what it holds |",
        "|---|---|---|",
        *(f"| `{name}` | {column.unit} | {column.description} |" for name, column in kind.columns.items()),
    ]
    return "\n".join(lines) + "\n"
