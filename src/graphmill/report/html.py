"""A page as one HTML file: figures, style and script are inside, and it loads nothing.

What comes from a run folder is escaped, and the page's own policy (Content-Security-Policy) lets a browser run one
script, ours, by its digest, and load nothing at all.
"""

import hashlib
import io
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from graphmill.report.chart import Chart
from graphmill.report.draw import drawn
from graphmill.report.page import Block, Figures, Page, PageCell, Shown, Table, link_of, shown_text

_STYLE: Final[dict[str, Any]] = {
    "font.family": ["DejaVu Sans"],  # measured with it; shown in the page's own, which is not wider
    "svg.fonttype": "none",
    "font.size": 8.5,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
}
_TAG: Final = re.compile(r"<[^>]*>")  # matplotlib escapes < and > in texts
_COLOUR: Final = re.compile(r"(fill|stroke): #([0-9a-f]{6})")
_DECIMALS: Final = re.compile(r"(\.\d\d)\d+")
_NOT_OURS: Final = re.compile(r"<metadata>.*?</metadata>|<style [^>]*>.*?</style>", re.DOTALL)  # a style is the page's
_NO_METADATA: Final = dict.fromkeys(("Date", "Creator", "Format", "Type"))
PARTS: Final = ("0072B2", "56B4E9", "E69F00", "CC79A7", "009E73", "C8C8C8")
"""Colours of the shares of a whole, in their order; the last is for what is left."""


def svg(chart: Chart, words: str) -> str:
    """An `<svg>` element without title; `words`: what it shows. Same chart → same text.

    A colour `#rrggbb` is written `var(--c-rrggbb, #rrggbb)`, so that a page in the dark can choose another. Ids are
    made of the chart's name, and groups have none: several charts of different names stand in one page.
    """
    text = io.StringIO()
    with drawn(replace(chart, title="", is_synthetic=False), {**_STYLE, "svg.hashsalt": chart.name}) as figure:
        figure.savefig(text, format="svg", metadata=_NO_METADATA, transparent=True)
    element = text.getvalue()
    element = _NOT_OURS.sub("", element[element.index("<svg") :])
    element = _TAG.sub(lambda tag: _tidy(tag[0]), element)
    return element.replace("<svg ", f'<svg role="img" aria-label="{escape(words)}" ', 1)


def _tidy(tag: str) -> str:
    """A tag in one line, with coordinates to a hundredth of a point."""
    tag = re.sub(r'^<g id="[^"]*"', "<g", " ".join(tag.split()))
    return _DECIMALS.sub(r"\1", _COLOUR.sub(r"\1: var(--c-\2, #\2)", tag))


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
