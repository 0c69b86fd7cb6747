"""A cell of a table as text: the same on a terminal, in a log and on a page."""

from collections.abc import Sequence

Cell = str | int | float | bool | None


def cell_text(cell: Cell) -> str:
    """Text of a cell as a person reads it.

    >>> [cell_text(cell) for cell in (None, True, 12000, 0.12345678, 123.456, "adam")]
    ['-', 'yes', '12,000', '0.1235', '123.5', 'adam']
    """
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 100 else f"{cell:,.1f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def is_numeric(cells: Sequence[Cell]) -> bool:
    """Whether a column holds numbers and nothing else, but for empty cells."""
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in known)
