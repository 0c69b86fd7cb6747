"""A page as one HTML file: figures, style and script are inside, and it loads nothing.

What comes from a run folder is escaped, and the page's own policy (Content-Security-Policy) lets a browser run one
script, ours, by its digest, and load nothing at all.
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from graphmill.report.page import Block, Figures, Page, PageCell, Shown, Table, link_of, shown_text
from graphmill.report.svg import svg

PARTS: Final = ("0072B2", "56B4E9", "E69F00", "CC79A7", "009E73", "C8C8C8")
"""Colours of the shares of a whole, in their order; the last is for what is left."""


def html(page: Page) -> str:
    """The whole file; same page, same bytes."""
    script, style = (_asset(name) for name in ("page.js", "page.css"))
    environment = Environment(
        loader=PackageLoader("graphmill.report"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["numeric"] = _is_numeric
    environment.filters |= {
        "shown": shown_text,
        "order": _order,
        "tone": _tone,
        "link": link_of,
        "slug": _slug,
        "figures": _figures,
    }
    return environment.get_template("page.html.jinja").render(
        page=page,
        style=Markup(style),  # a file of this package
        script=Markup(script),
        digest=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        colours=PARTS,
        kind=_kind,
    )


def _asset(name: str) -> str:
    return files("graphmill.report").joinpath("templates", name).read_text(encoding="utf-8").strip()


def _kind(block: Block) -> str:
    return type(block).__name__


def _is_numeric(column: int, table: Table) -> bool:
    return table.is_number(column)


def _figures(block: Figures) -> Sequence[tuple[Any, Markup]]:
    """Charts, and their SVG: matplotlib escapes every text that it draws."""
    drawn = (svg(chart, words) for chart, words in zip(block.charts, block.texts, strict=True))
    return [(chart, Markup(element)) for chart, element in zip(block.charts, drawn, strict=True)]


def _order(cell: PageCell) -> str:
    """What a cell is sorted by, where its text does not say it; else empty."""
    value = cell.order if isinstance(cell, Shown) else cell
    return repr(float(value)) if isinstance(value, int | float) else ""


def _tone(cell: PageCell) -> str:
    return cell.tone if isinstance(cell, Shown) else "plain"


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
