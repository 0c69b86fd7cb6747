"""Draw a chart with matplotlib: PNG (200 dpi) and PDF. No window, no global state, same chart → same bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings

from matplotlib import patheffects, rc_context, rcdefaults, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from matplotlib.transforms import blended_transform_factory

from graphmill.base.files import replacing
from graphmill.report.chart import (
    Axis,
    Chart,
    Marker,
    Series,
    edge_marks,
    has_long_x_texts,
    legend_columns,
    legend_entries,
    legend_lines,
    panel_grid,
    tick_text,
)
from graphmill.report.style import FAINT, INK, SYNTHETIC, WARNING, ink_on

_MARKERS: dict[Marker, str] = {
    "circle": "o",
    "square": "s",
    "triangle": "^",
    "diamond": "D",
    "down": "v",
    "pentagon": "p",
}

_MEAN_SIZES: dict[Marker, float] = {
    "circle": 8.5,  # drawn first, so visible behind a smaller one at the same place
    "square": 5.6,
    "triangle": 5.2,
    "diamond": 4.4,
    "down": 4.4,
    "pentagon": 4.4,
}

_STYLE: Any = {  # matplotlib's stubs know each key by name
    "font.family": ["STIXGeneral", "DejaVu Sans"],
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "mathtext.fontset": "stix",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "axes.edgecolor": f"#{INK}",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.direction": "out",
    "ytick.direction": "out",
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.title_fontsize": 9,
    "pdf.fonttype": 42,  # text stays searchable
    "path.simplify": True,
}

PANEL_INCHES = (2.9, 2.75)
SINGLE_INCHES = (5.2, 3.5)
DPI = 200


def draw_chart(chart: Chart, folder: Path) -> tuple[Path, Path]:
    """Write `<folder>/<name>.png` and `.pdf`, each whole or not at all."""
    png, pdf = folder / f"{chart.name}.png", folder / f"{chart.name}.pdf"
    with drawn(chart) as figure:
        with replacing(png) as temporary:
            figure.savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})
        with replacing(pdf) as temporary:
            figure.savefig(temporary, format="pdf", metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return png, pdf


@contextmanager
def drawn(chart: Chart, style: Any = None) -> Iterator[Figure]:  # noqa: ANN401  # as _STYLE
    """The figure, to be saved within the block, where matplotlib has our settings; `style` is laid over them."""
    with rc_context(), catch_warnings():
        filterwarnings("ignore", message="Glyph .* missing from font")  # a visible box replaces it
        rcdefaults()  # whatever the user's own matplotlibrc says
        rcParams.update(_STYLE | (style or {}))
        yield _figure(chart)


def _figure(chart: Chart) -> Figure:
    rows, columns = panel_grid(chart)
    count = len(chart.panels)
    width, height = (
        _single_size(chart) if count == 1 else (PANEL_INCHES[0] * columns + 0.6, PANEL_INCHES[1] * rows + 0.4)
    )
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for place, axes in enumerate(grid):
        if place >= count:
            axes.set_visible(False)
            continue
        axes.set_title(chart.panels[place].title, loc="left")
        for series in chart.panels[place].series:
            _draw_series(axes, series)
            for x, edge in edge_marks(series, chart.y):
                _draw_edge(axes, x, edge, f"#{series.colour}", "^" if edge == chart.y.upper else "v")
        _draw_axis(axes, chart.x, "x")
        _draw_axis(axes, chart.y, "y")
        axes.tick_params(labelbottom=place + columns >= count)
        if has_long_x_texts(chart):
            for text in axes.get_xticklabels():
                text.set(rotation=45, ha="right", va="top", rotation_mode="anchor")
    if count == 1:  # beside its panel, whatever room the legend above takes
        grid[0].set(xlabel=chart.x.label, ylabel=chart.y.label)
    else:
        figure.supxlabel(chart.x.label, fontsize=rcParams["axes.labelsize"])
        figure.supylabel(chart.y.label, fontsize=rcParams["axes.labelsize"])
    _draw_words(figure, chart, grid[0])
    return figure


def _single_size(chart: Chart) -> tuple[float, float]:
    """Width and height: as wide as a text column; higher for many names at an axis, or many rows of the legend."""
    width, height = SINGLE_INCHES
    entries = legend_entries(chart)
    legend = sum(len(legend_lines(entry.label)) for entry in entries) / legend_columns(chart) if entries else 0
    names = 1.4 + 0.2 * len(chart.y.tick_texts) + (0.6 if has_long_x_texts(chart) else 0)
    return width, max(height, names) + 0.19 * max(0, legend - 2)


def _draw_edge(axes: Axes, x: float, edge: float, colour: str, marker: str) -> None:
    axes.plot([x], [edge], linestyle="", marker=marker, markersize=6, color=colour, clip_on=False, zorder=5)


def _draw_axis(axes: Axes, axis: Axis, which: str) -> None:
    if which == "x":
        axes.set_xscale("log" if axis.is_log else "linear")
        axes.set_xlim(axis.lower, axis.upper)
    else:
        axes.set_ylim(axis.lower, axis.upper)
    drawn = axes.xaxis if which == "x" else axes.yaxis
    drawn.set_major_locator(FixedLocator(list(axis.ticks)))
    drawn.set_major_formatter(FixedFormatter([tick_text(axis, tick) for tick in axis.ticks]))
    drawn.set_minor_locator(NullLocator())


def _draw_words(figure: Figure, chart: Chart, first: Axes) -> None:
    title = figure.suptitle(chart.title, fontsize=9, color=f"#{FAINT}", ha="left", x=0.01)
    if chart.is_synthetic:
        figure.draw_without_rendering()  # the layout places the title
        height = title.get_position()[1]
        figure.text(0.99, height, SYNTHETIC, fontsize=9, color=f"#{WARNING}", ha="right", va="top", weight="bold")
    entries = {series.label for series in legend_entries(chart)}
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if label in entries:
                handles.setdefault(label, handle)
    for series in legend_entries(chart):
        if series.form == "bars":  # one that is not there has no colour of its own in matplotlib's legend
            handles[series.label] = Patch(facecolor=f"#{series.colour}")
    labels = ["\n".join(legend_lines(label)) for label in handles]
    if len(chart.panels) > 1:
        figure.legend(handles.values(), labels, loc="outside right center")
        return
    first.legend(
        handles.values(),
        labels,
        loc="lower left",
        # From the edge of the figure: a panel beside long names at the y axis is too narrow for it.
        bbox_to_anchor=(0.0, 1.0),
        bbox_transform=blended_transform_factory(figure.transFigure, first.transAxes),
        ncols=legend_columns(chart),
        columnspacing=1.0,
        handlelength=1.4,
        handletextpad=0.4,
    )


def _draw_series(axes: Axes, series: Series) -> None:
    colour, marker = f"#{series.colour}", _MARKERS[series.marker]
    match series.form:
        case "line":
            axes.plot(
                series.x,
                series.y,
                color=colour,
                linewidth=1.3,
                marker=marker,
                markersize=4,
                markevery=max(1, len(series.x) // 8),
                markeredgewidth=0,
                label=series.label,
            )
            if series.y_sd:
                low = [y - sd for y, sd in zip(series.y, series.y_sd, strict=True)]
                high = [y + sd for y, sd in zip(series.y, series.y_sd, strict=True)]
                axes.fill_between(series.x, low, high, color=colour, alpha=0.15, linewidth=0)
        case "cloud":
            label = series.label or None
            axes.plot(
                series.x,
                series.y,
                linestyle="",
                marker="o",
                markersize=2.4,
                markeredgewidth=0,
                color=colour,
                alpha=0.35,
                label=label,
            )
        case "stairs":
            axes.step(series.x, series.y, where="post", color=colour, linewidth=1.1, label=series.label)
        case "means":
            _draw_means(axes, series)
        case "rule" | "dashes" | "dots":
            style = {"rule": "-", "dashes": (0, (5, 3)), "dots": (0, (1, 2))}[series.form]
            axes.plot(series.x, series.y, linestyle=style, color=colour, linewidth=1.1, label=series.label)
        case "bars":
            axes.bar(
                series.x,
                series.y,
                width=series.width,
                bottom=series.base,
                color=colour,
                edgecolor="white",
                linewidth=0.5,
                label=series.label,
                zorder=2,
            )
            _draw_inside(axes, series)
        case "crosses":
            _draw_crosses(axes, series)


def _draw_inside(axes: Axes, series: Series) -> None:
    colour = f"#{ink_on(series.colour)}"
    for x, y, base, name in zip(series.x, series.y, series.base, series.names, strict=False):
        axes.text(x, base + y / 2, name, ha="center", va="center", fontsize=7.5, color=colour, zorder=3)


def _draw_crosses(axes: Axes, series: Series) -> None:
    axes.plot(
        series.x,
        series.y,
        linestyle="",
        marker="x",
        markersize=6,
        markeredgewidth=1.6,
        color=f"#{series.colour}",
        label=series.label,
        clip_on=False,
        zorder=4,
    )
    for x, y, name in zip(series.x, series.y, series.names, strict=True):
        axes.annotate(
            name, (x, y), xytext=(0, 6), textcoords="offset points", ha="center", va="bottom", fontsize=8.5, zorder=4
        )


def _draw_means(axes: Axes, series: Series) -> None:
    axes.errorbar(
        series.x,
        series.y,
        xerr=series.x_sd or None,
        yerr=series.y_sd,
        linestyle="",
        marker=_MARKERS[series.marker],
        markersize=_MEAN_SIZES[series.marker],
        markeredgecolor="white",
        markeredgewidth=0.6,
        color=f"#{series.colour}",
        elinewidth=1.1,
        capsize=2.2,
        label=series.label,
        zorder=3,
    )
    for x, y, sd, name in zip(series.x, series.y, series.y_sd, series.names, strict=True):
        if name:
            axes.annotate(
                name,
                (x, y - sd),
                xytext=(3, -2.5),  # no frontier runs to the lower right of a point
                textcoords="offset points",
                ha="left",
                va="top",
                fontsize=8.5,
                path_effects=[patheffects.withStroke(linewidth=2.2, foreground="white")],
                zorder=4,
            )
