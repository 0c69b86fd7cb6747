"""CSV as we write it: no cell is a formula, which a spreadsheet would compute when the file is opened.

A text that begins as a formula does gets an apostrophe in front, which `as_written` takes off again. Numbers stay.
"""

import csv
import io
import re
from collections.abc import Iterable
from typing import Final

FORMULA: Final = r"^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""Formulas, also after apostrophes: so one that was put there differs from one that was there. Wide signs, as Japanese
and Chinese have them, begin a formula as well."""
_END: Final = "\r\n"
_FORMULA: Final = re.compile(FORMULA)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Lines of CSV, each with its newline."""
    return "".join(map(_line, rows))


def as_written(cell: str) -> str:
    """The text that a cell was made of.

    >>> as_written("'=1+1"), as_written("'twas"), as_written("-0.5")
    ('=1+1', "'twas", '-0.5')
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _line(row: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator=_END).writerow(map(_safe, row))  # noqa: TID251  # the one place; else a \r is not quoted
    return f"{text.getvalue().removesuffix(_END)}\n"


def _safe(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) and not _is_number(cell) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
