"""Tables as wide as the terminal at most: cells wrap between words, and where that is not enough rows become blocks."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_UNLIMITED: Final = 10_000


def fitting(table: Table, console: Console) -> RenderableType:
    """`table`, or its rows as blocks of names and values if the console would cut a number or a word of it."""
    options = console.options.update(width=_UNLIMITED)
    columns = [[_text(cell) for cell in (column.header, *column.cells)] for column in table.columns]
    sizes = [[Measurement.get(console, options, cell) for cell in cells] for cells in columns]
    full = [max(size.maximum for size in each) for each in sizes]
    least = [
        size if column.no_wrap else max(cell.minimum for cell in each)
        for size, each, column in zip(full, sizes, table.columns, strict=True)
    ]
    room = console.width - (Measurement.get(console, options, table).maximum - sum(full))
    if sum(least) > room:
        parts = [_text(part) for part in (table.title, *_blocks(table), table.caption) if part]
        return Group(*(line for part in parts for line in (part, Text())))
    for column, width in zip(table.columns, _shares(full, least, room), strict=True):
        column.width = width
    return table


def _shares(full: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths of columns that fit: the widest give way first, none below what it needs. Rich's own may cut a word."""
    widths = list(full)
    for _ in range(sum(full) - room):
        widest = max(
            (column for column in range(len(widths)) if widths[column] > least[column]), key=widths.__getitem__
        )
        widths[widest] -= 1
    return widths


def _blocks(table: Table) -> Iterator[Text]:
    names = [" ".join(_text(column.header).plain.split()) for column in table.columns]
    width = max(len(name) for name in names)
    above: Sequence[Text] = [Text()] * len(names)
    for row in zip(*([_text(cell) for cell in column.cells] for column in table.columns), strict=True):
        # An empty cell of the first column, if that has a name, means what stands above it.
        cells = [above[0] if names[0] and not row[0].plain else row[0], *row[1:]]
        above = cells
        lines = [
            Text.assemble(f"{name.ljust(width)}  ", cell) for name, cell in zip(names, cells, strict=True) if cell.plain
        ]
        yield Text("\n").join(lines)


def _text(part: RenderableType) -> Text:
    return part if isinstance(part, Text) else Text.from_markup(str(part))
