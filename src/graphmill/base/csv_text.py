"""CSV as we write it: no cell is a formula, which a spreadsheet would compute when the file is opened.

A text that begins as a formula does gets an apostrophe in front, which `as_written` takes off again. Numbers stay.
"""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FORMULA: Final = r"^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""Formulas, also after apostrophes: so one that was put there differs from one that was there. Wide signs, as Japanese
and Chinese have them, begin a formula as well."""
_BEGINS: Final = frozenset("'=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_END: Final = "\r\n"
_FORMULA: Final = re.compile(FORMULA)


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
    return f"'{cell}" if _FORMULA.match(cell) and not _is_number(cell) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
