"""Columns of metrics.csv by name: those of files that other versions and other programs wrote, too."""

from collections.abc import Iterable
from typing import Final

from graphmill.spec.columns import FORMER_NAMES, Column, Layout
from graphmill.spec.kinds import all_kinds
from graphmill.spec.kinds.kind import AnyKind

ANY_COLUMN: Final[dict[str, Column]] = {name: column for kind in all_kinds() for name, column in kind.columns.items()}
"""Every column of every built-in task; one name holds one type of value, whatever the task."""

LAYOUTS: Final[dict[str, tuple[AnyKind, Layout]]] = {
    layout.name: (kind, layout) for kind in all_kinds() for layout in kind.layouts
}
"""Every header of another program, by its name, and the task whose runs it shows."""

_RENAMED: Final[dict[str, str]] = {
    **{name: ours for _, layout in LAYOUTS.values() for name, ours in layout.columns.items()},
    **FORMER_NAMES,
    **{name: ours for kind in all_kinds() for name, ours in kind.former_names.items()},
}


def current_name(name: str) -> str:
    """The current name of a column that another version or another program called `name`.

    >>> current_name("seed_nodes_cum_global"), current_name("time"), current_name("loss")
    ('num_seeds_cum', 'train_s', 'loss')
    """
    return _RENAMED.get(name, name)


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
    """The built-in task that has all columns of this header, and no other measure; or None."""
    names = set(header)
    return next((kind for kind in all_kinds() if _measured(kind) <= names <= kind.columns.keys()), None)


def kinds_measured(header: Iterable[str]) -> list[AnyKind]:
    """The built-in tasks whose measures are all in a header, whatever else is."""
    names = set(header)
    return [kind for kind in all_kinds() if _measured(kind) <= names]


def _measured(kind: AnyKind) -> set[str]:
    return {f"val_{measure.name}" for measure in kind.measures if measure.name not in kind.measures_since_0_1}


def columns_markdown(kind: AnyKind) -> str:
    """The table of docs/reference/columns.md: name, unit, description, in the file's order."""
    lines = [
        "| column | unit | what it holds |",
        "|---|---|---|",
        *(f"| `{name}` | {column.unit} | {column.description} |" for name, column in kind.columns.items()),
    ]
    return "\n".join(lines) + "\n"
