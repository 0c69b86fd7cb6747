"""Whether a file is a series of readings, by its first lines or its keys."""

import logging
import re
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.graph.hdf5 import tree
from graphmill.tasks.recognise import Look, shaped, weak

_log = logging.getLogger(__name__)
TAB: Final = "\t"
TIMES: Final = ("time", "timestamp", "date", "datetime")
_LONG: Final = 2**16  # bytes of a line that are looked at
_MISSING: Final = ("", "nan", "na")


def look_of_hdf(path: Path) -> Look:
    """Look whether an HDF5 file has a DataFrame of pandas in it; the reason names a file that cannot be read."""
    try:
        is_frame = any(below is not None and "axis1" in below for below in tree(path).values())
    except (ValueError, UserError):
        return weak(f"it ends in {path.suffix}, but {path.name} cannot be read as HDF5")
    return shaped(f"{path.name} has a DataFrame of pandas") if is_frame else weak(f"{path.name} is called HDF5")


def look_of_table(path: Path) -> Look | None:
    """Look at the name of the first column, and whether the others are numbers in the first row."""
    header, row = first_lines(path)
    separator = separator_of(header)
    names, cells = ([cell.strip(' "') for cell in line.split(separator)] for line in (header, row))
    if are_numbers(names) and len(names) > 1:
        return weak("it is a table of numbers without a header, as readings without times are")
    if names[0].lower() not in TIMES:
        return None
    if are_numbers(cells[1:], separator) and len(cells) > 1:
        return shaped(f"its first column is called {names[0]}, and the others are numbers")
    return weak(f"its first column is called {names[0]}")


def first_lines(path: Path) -> tuple[str, str]:
    """The first two lines."""
    with path.open(encoding="utf-8", errors="replace") as file:
        header, row = (file.readline(_LONG).strip("\ufeff\n\r ") for _ in range(2))
    return header, row


def separator_of_table(path: Path) -> tuple[str, bool]:
    """What stands between the fields of a table, and whether a comma is its decimal mark, which is said."""
    header, row = first_lines(path)
    separator = separator_of(header)
    comma = separator != "," and "," in row
    if separator != ",":
        mark = ", and the decimal mark a comma" if comma else ""
        _log.info(f"{path.name}: the separator is {'a tab' if separator == TAB else separator}{mark}")
    return separator, comma


def separator_of(header: str) -> str:
    """What most likely stands between the fields of a first line."""
    return max(",;\t", key=header.count)


def are_numbers(cells: list[str], separator: str = ",") -> bool:
    """Whether all cells are numbers or empty; with another separator than a comma, 1,5 is one."""
    texts = [cell if separator == "," else cell.replace(",", ".") for cell in cells]
    return all(
        re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", each) or each.lower() in _MISSING for each in texts
    )
