"""A report before it is written: a page of sections of blocks. HTML (html.py) and Markdown (markdown.py) show the same.

Texts on a page are plain: whoever writes it escapes them, since names in a run folder may come from anybody.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from graphmill.base.cells import Cell, cell_text, is_numeric
from graphmill.report.chart import Chart

Tone = Literal["plain", "good", "bad", "unsure"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell whose text is not its value: a mean with its spread, a state with its tone, a name with its page."""

    text: str
    order: float | None = None  # what it is sorted by; None: by its text
    tone: Tone = "plain"
    link: str = ""  # a path from the page, as in a URL


PageCell = Cell | Shown


def rounded(value: float | None) -> Shown | None:
    """A score, with four digits."""
    return None if value is None else Shown(f"{value:.4f}", value)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a header; by a click on it they are sorted."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[PageCell, ...], ...]
    marked: int | None = None  # the row to look at first

    def is_number(self, column: int) -> bool:
        """Whether a column is aligned, and sorted, as numbers."""
        return is_numeric([_plain(row[column]) for row in self.rows])


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values."""

    caption: str
    rows: tuple[tuple[str, PageCell], ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """Charts side by side, each with what it shows in words, for readers who do not see it."""

    charts: tuple[Chart, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Parts of a whole: names and shares, 0 to 1."""

    caption: str
    parts: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence on a page."""

    text: str
    tone: Tone = "plain"


Block = Table | Facts | Figures | Breakdown | Remark


@dataclass(frozen=True, slots=True)
class Section:
    """One subject of a page."""

    title: str
    blocks: tuple[Block, ...]
    is_folded: bool = False  # long, and seldom read: opened by a click


@dataclass(frozen=True, slots=True)
class Headline:
    """A number that a reader looks for first."""

    name: str
    value: str
    about: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report."""

    what: str  # run, study or pipeline
    title: str
    about: str  # what it is, in a line
    is_synthetic: bool
    headlines: tuple[Headline, ...]
    sections: tuple[Section, ...]
    written: str  # when, and by what


def shown_text(cell: PageCell) -> str:
    """What a person reads."""
    return cell.text if isinstance(cell, Shown) else cell_text(cell)


def link_of(cell: PageCell) -> str:
    """Where a click on the cell leads; "": nowhere."""
    return cell.link if isinstance(cell, Shown) else ""


def filled(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Sections that have something to show."""
    return tuple(section for section in sections if section.blocks)


def table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[PageCell]], *, marked: int | None = None
) -> Table:
    """A table without the columns that are empty in all rows."""
    found = [tuple(row) for row in rows]
    kept = [place for place in range(len(columns)) if any(row[place] not in (None, "") for row in found)]
    cells = tuple(tuple(row[place] for place in kept) for row in found)
    return Table(caption, tuple(columns[place] for place in kept), cells, marked)


def facts(caption: str, rows: Iterable[tuple[str, PageCell]]) -> Facts:
    """Rows whose value is known, under a caption."""
    return Facts(caption, tuple((name, value) for name, value in rows if value not in (None, "")))


def _plain(cell: PageCell) -> Cell:
    return (cell.order if cell.order is not None else cell.text) if isinstance(cell, Shown) else cell
