"""A chart as SVG inside a page: drawn by matplotlib, with texts as text and with colours that the page may replace."""

import io
import re
from dataclasses import replace
from html import escape
from typing import Any, Final

from graphmill.report.chart import Chart
from graphmill.report.draw import drawn

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
