"""A chart before it is drawn: panels, axes, series. matplotlib (draw.py) and PGFPlots (pgf.py) print the same chart."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

Form = Literal["line", "cloud", "stairs", "means", "rule", "dashes", "dots", "bars", "crosses"]
"""line: joined markers, with a band; cloud: faint dots; stairs: a frontier; means: markers with error bars, names;
rule, dashes, dots: lines without markers; bars: on top of `base`, `width` wide, names within; crosses: missing points,
names.
"""

Marker = Literal["circle", "square", "triangle", "diamond", "down", "pentagon"]

LEGEND_LETTERS = 72
"""Of an entry of a legend, in one line."""

LOG_SPAN = 20
"""A communication axis is logarithmic if the largest value is more than this many times the smallest."""


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one kind, all lists of one length; sorted by x if they are joined."""

    label: str
    form: Form
    colour: str  # "RRGGBB"
    marker: Marker
    x: tuple[float, ...]
    y: tuple[float, ...]
    x_sd: tuple[float, ...] = ()  # empty if there is nothing to average
    y_sd: tuple[float, ...] = ()
    names: tuple[str, ...] = ()  # written below the points, below their error bars; above crosses; in bars; "" for none
    base: tuple[float, ...] = ()  # of bars: where each begins; y is its height
    width: float = 0.0  # of bars


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis; the limits come from the data."""

    label: str
    lower: float
    upper: float
    ticks: tuple[float, ...]
    is_log: bool = False
    tick_texts: tuple[str, ...] = ()  # one per tick, if they are not numbers


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure: panels side by side that share their axes."""

    name: str  # stem of its files
    title: str
    note: str  # for the user: what the figure leaves out; "" if nothing
    is_synthetic: bool
    x: Axis
    y: Axis
    panels: tuple[Panel, ...]


def legend_entries(chart: Chart) -> list[Series]:
    """One series per label, in order of first appearance."""
    entries: dict[str, Series] = {}
    for panel in chart.panels:
        for series in panel.series:
            if series.label:
                entries.setdefault(series.label, series)
    return list(entries.values())


def legend_columns(chart: Chart) -> int:
    """How many entries of a legend above the panel fit side by side."""
    entries = legend_entries(chart)
    num_letters = sum(len(entry.label) + 6 for entry in entries)
    if num_letters <= 84:
        return len(entries)
    return 2 if max(len(entry.label) for entry in entries) <= 36 else 1


def legend_lines(label: str) -> list[str]:
    """The label of an entry, in lines as long as a panel is wide."""
    return textwrap.wrap(label, LEGEND_LETTERS, break_on_hyphens=False) or [label]


def has_long_x_texts(chart: Chart) -> bool:
    """Whether the names at the x axis would run into each other if they stood level."""
    longest, beside = (max(map(len, axis.tick_texts), default=0) for axis in (chart.x, chart.y))
    return len(chart.x.tick_texts) * (longest + 1) > 62 - beside


def edge_marks(series: Series, axis: Axis) -> list[tuple[float, float]]:
    """Where a line crosses the lower or upper edge of the axis `axis`: it goes on out of sight, and a mark says so."""
    points = list(zip(series.x, series.y, strict=True)) if series.form == "line" else []
    return [
        (x0 + (x1 - x0) * (edge - y0) / (y1 - y0), edge)
        for (x0, y0), (x1, y1) in pairwise(points)
        for edge in (axis.lower, axis.upper)
        if min(y0, y1) < edge < max(y0, y1)
    ]


def edge_note(panels: Sequence[Panel], axis: Axis) -> str:
    """How many lines go on beyond the axis, and how far; "" if none does."""
    lines = [series for panel in panels for series in panel.series if series.form == "line"]
    beyond = [series for series in lines if edge_marks(series, axis)]
    if not beyond:
        return ""
    lowest, highest = min(min(series.y) for series in beyond), max(max(series.y) for series in beyond)
    words = [f"down to {lowest:.4g}"] if lowest < axis.lower else []
    words += [f"up to {highest:.4g}"] if highest > axis.upper else []
    return f"{len(beyond)} of {len(lines)} lines go on beyond the axis ({', '.join(words)}), where a triangle is"


def panel_grid(chart: Chart) -> tuple[int, int]:
    """Rows and columns of panels."""
    count = len(chart.panels)
    columns = 2 if count == 4 else min(count, 3)
    return -(-count // columns), columns


def notes(*words: str) -> str:
    """Join the words that are not empty into one note."""
    return "; ".join(filter(None, words))


def linear_axis(label: str, lower: float, upper: float, *, from_zero: bool = False) -> Axis:
    """An axis with a little room at both ends."""
    from matplotlib.ticker import MaxNLocator

    span, size = upper - lower, max(abs(lower), abs(upper))
    # One point, or points that only rounding keeps apart: room around them. Of what is next to 0 no share can be taken.
    room = 1.0 if size < 1e-300 else 0.04 * span if span > 1e-9 * size else 0.05 * size
    lower, upper = (0.0 if from_zero else lower - room), upper + room
    ticks = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(lower, upper)
    return Axis(label, lower, upper, tuple(float(tick) for tick in ticks if lower <= tick <= upper))


def log_axis(label: str, lower: float, upper: float) -> Axis:
    """A logarithmic axis, with ticks at 1, 2, 5 times powers of ten, or at powers alone if those would crowd it."""
    lower, upper = lower / 1.25, upper * 1.25
    steps = (1, 2, 5) if upper / lower < 300 else (1,)
    decades = range(math.floor(math.log10(lower)), math.ceil(math.log10(upper)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return Axis(label, lower, upper, tuple(tick for tick in ticks if lower <= tick <= upper), is_log=True)


def tick_text(axis: Axis, tick: float) -> str:
    """The tick's label: thousands separated, as many decimals as the ticks of the axis need."""
    if axis.tick_texts:
        return axis.tick_texts[axis.ticks.index(tick)]
    step = min((b - a for a, b in zip(axis.ticks, axis.ticks[1:], strict=False)), default=abs(tick) or 1.0)
    smallest = abs(tick) if axis.is_log else step
    decimals = 0
    while decimals < 8 and abs(round(smallest, decimals) - smallest) > 1e-6 * smallest:
        decimals += 1
    if abs(tick) >= 1e6:
        return f"{tick:.3g}"
    return f"{tick:,.{decimals}f}"


def with_room(axis: Axis, share: float) -> Axis:
    """The axis with `share` of its length added at the upper end, for names next to the last points."""
    if axis.is_log:
        return replace(axis, upper=axis.upper * (axis.upper / axis.lower) ** share)
    return replace(axis, upper=axis.upper + share * (axis.upper - axis.lower))


def focus(curves: Sequence[Sequence[float]], *, falling: bool = False) -> tuple[float, float]:
    """Lower and upper limit for curves that climb (or fall) steeply and then level out.

    The first quarter of every curve may lie below (or above) the axis where it would take up more than half of it: what
    is worth comparing happens later.
    """
    if falling:
        lower, upper = focus([[-value for value in curve] for curve in curves])
        return -upper, -lower
    upper = max(max(curve) for curve in curves)
    lowest = min(min(curve) for curve in curves)
    lowest_later = min(min(curve[len(curve) // 4 :]) for curve in curves)
    lower = lowest_later if upper - lowest_later < 0.5 * (upper - lowest) else lowest
    return lower, upper
