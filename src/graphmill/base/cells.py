"""Cells of tables as text: shown, the same on a terminal, in a log and on a page; and in a CSV.

No cell of a CSV is a formula, which a spreadsheet would compute when the file is opened: a text that begins as one gets
an apostrophe in front, which `as_written` takes off again. Numbers stay.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

Cell = str | int | float | bool | None
FORMULA: Final = r"^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""Formulas, also after apostrophes: so one that was put there differs from one that was there. Wide signs, as Japanese
and Chinese have them, begin a formula as well."""
_BEGINS: Final = frozenset("'=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_END: Final = "\r\n"
_FORMULA: Final = re.compile(FORMULA)


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


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Lines of CSV, each with its newline."""
    lines = _Texts([])
    csv.writer(lines, lineterminator=_END).writerows(map(_safe, row) for row in rows)  # noqa: TID251  # the one place; else a \r is not quoted
    return "".join(lines.written)


def as_written(cell: str) -> str:
    """The text that a cell was made of.

    >>> as_written("'=1+1"), as_written("'twas"), as_written("-0.5")
    ('=1+1', "'twas", '-0.5')
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


@dataclass(frozen=True, slots=True)
class _Texts:
    """What csv's writer writes to, a line by each call."""

    written: list[str]

    def write(self, line: str) -> None:
        self.written.append(f"{line.removesuffix(_END)}\n")


def _safe(cell: object) -> object:
    if not isinstance(cell, str) or cell[:1] not in _BEGINS:  # a table has a million cells, and few are formulas
        return cell
    return f"'{cell}" if _FORMULA.match(cell) and not is_number(cell) else cell


def is_number(text: str) -> bool:
    """Whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
