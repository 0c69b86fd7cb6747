"""How facts are printed: tables on a terminal, aligned plain lines elsewhere, JSON on request."""

import dataclasses
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphmill.base.cells import Cell, cell_text, is_numeric
from graphmill.base.foreign import in_one_line, without_advice

__all__ = ["Cell", "plain", "print_facts", "print_json", "print_line", "print_table"]


def print_json(value: Any) -> None:  # noqa: ANN401  # whatever `plain` can turn into JSON
    """One JSON document on standard output."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(_UNPRINTABLE.sub(lambda match: json.dumps(match[0])[1:-1], text) + "\n")


def plain(value: Any) -> Any:  # noqa: ANN401  # models, dataclasses, paths and what they hold
    """`value` as JSON can carry it: it has no NaN and no infinity, so those are null."""
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, title: str = "") -> None:
    """A table: drawn on a terminal, else columns of plain text that are never cut."""
    texts = [[in_one_line(cell_text(cell)) for cell in row] for row in rows]
    numeric = [is_numeric([row[column] for row in rows]) for column in range(len(columns))]
    if sys.stdout.isatty():
        _print_drawn(columns, texts, numeric, title)
        return
    widths = [max(len(line[column]) for line in [list(columns), *texts]) for column in range(len(columns))]
    for line in [list(columns), *texts]:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def print_facts(facts: Sequence[tuple[str, Cell]], *, title: str = "") -> None:
    """Names and values, one pair a line."""
    width = max(len(name) for name, _ in facts)
    if title:
        print_line(title)
    for name, value in facts:
        sys.stdout.write(f"  {name.ljust(width)}  {in_one_line(cell_text(value))}\n")


def print_line(text: str) -> None:
    """One line on standard output, at once: a log shows it when it happens."""
    sys.stdout.write(without_advice(text) + "\n")
    sys.stdout.flush()


def _print_drawn(columns: Sequence[str], texts: Sequence[Sequence[str]], numeric: Sequence[bool], title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from graphmill.cli.fitting import fitting

    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for number, (name, right) in enumerate(zip(columns, numeric, strict=True)):
        is_name = number == 0 and max((len(line[0]) for line in texts), default=0) <= _WHOLE_NAME
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=is_name or right)
    for line in texts:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in line))
    console = Console()
    console.print(fitting(table, console))


# what JSON lets through
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_WHOLE_NAME = 40  # characters of a name that is not broken, so that it can be copied; numbers never are
_STYLES = {"ok": "green", "done": "green", "warn": "yellow", "fail": "bold red", "failed": "bold red"}
