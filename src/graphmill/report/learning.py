"""Learning curves: the loss, and the measure that the task is judged by, against epochs; a line per configuration.

A line is the mean over the runs that differ in nothing but their rng seed, with their standard deviation as a band.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from graphmill.record.columns import is_lower_better
from graphmill.report.chart import Axis, Chart, Panel, Series, edge_note, linear_axis, notes
from graphmill.report.curves import Curve, bounds_of, mean_curves, measure_axis, title_of, variant_labels
from graphmill.report.pareto import RUN
from graphmill.report.style import MARKERS, OKABE_ITO, axis_words, ordered_colours
from graphmill.report.table import OfDataset
from graphmill.spec.kinds import find_kind
from graphmill.spec.kinds.kind import AnyKind

MOST_LINES: Final = 12
"""More cannot be told apart: the best are drawn, and the note counts the others."""

LONG: Final = 12
"""Epochs; the steep beginning of a longer curve may lie outside the axis (`focus`)."""


def columns_of_curves(kind: AnyKind) -> tuple[str, ...]:
    """Columns of metrics.csv that learning curves are drawn of."""
    return (*RUN, "epoch", "dataset", "synthetic", "loss", "val_loss", *(f"val_{each.name}" for each in kind.measures))


def learning_curves(part: OfDataset) -> list[Chart]:
    """A chart of the loss, of the measure, and of each of the user's own; of a measure that no row has, none."""
    of_task = find_kind(part.kind.name).measures
    own = [measure.name for measure in part.kind.measures[1:] if measure.name not in {each.name for each in of_task}]
    shown = ["loss", *(f"val_{name}" for name in (part.kind.primary.name, *own))]
    known = [column for column in shown if part.frame[column].is_finite().any()]
    return [_chart(part, column) for column in known]


def _chart(part: OfDataset, column: str) -> Chart:
    curves = mean_curves(part, "epoch", column)
    shown = _best(curves, lower=is_lower_better(part.kind, column))
    title = title_of(part, [curve.variant for curve in curves], [curve.num_runs for curve in curves])
    cut = sum(curve.is_cut for curve in shown)
    left_out = (
        f"the {len(shown)} best of {len(curves)} configurations" if len(shown) < len(curves) else "",
        f"{cut} of {len(shown)} lines end where their shortest run ends" if cut else "",
    )
    labels = _labels(shown)
    if len(curves) == 1:
        shown, labels = _of_one(part, column, shown[0])
    panels, y = (Panel("", _lines(shown, labels)),), _axis(part, shown, column)
    return Chart(
        name=f"learning_{column}{part.suffix}",
        title=title,
        note=notes(*left_out, edge_note(panels, y)),
        is_synthetic=part.synthetic,
        x=_epochs(shown),
        y=y,
        panels=panels,
    )


def _of_one(part: OfDataset, column: str, curve: Curve) -> tuple[list[Curve], list[str]]:
    """Curves of one configuration: the loss on both splits, which together show where it begins to overfit."""
    if column != "loss":
        return [curve], [""]  # the axis says it
    if not part.frame["val_loss"].is_finite().any():
        return [curve], [""]
    return [curve, *mean_curves(part, "epoch", "val_loss")], ["training", "validation"]


def _axis(part: OfDataset, curves: Sequence[Curve], column: str) -> Axis:
    """The whole of short curves; of long ones, what is worth comparing."""
    if max(len(curve.y) for curve in curves) >= LONG:
        return measure_axis(part.kind, curves, column)
    bounds = [bound for curve in curves for bound in bounds_of(curve)]
    return linear_axis(axis_words(part.kind, column), min(map(min, bounds)), max(map(max, bounds)))


def _epochs(curves: Sequence[Curve]) -> Axis:
    """Axis of whole epochs: a tick between two means nothing."""
    axis = linear_axis("epoch", min(curve.x[0] for curve in curves), max(curve.x[-1] for curve in curves))
    return replace(axis, ticks=tuple(tick for tick in axis.ticks if tick == int(tick) and tick >= 1))


def _best(curves: Sequence[Curve], *, lower: bool) -> list[Curve]:
    """Curves with the best last values, at most as many as can be told apart, in their given order."""
    ranked = sorted(curves, key=lambda curve: curve.y[-1] if lower else -curve.y[-1])[:MOST_LINES]
    return [curve for curve in curves if curve in ranked]


def _labels(curves: Sequence[Curve]) -> list[str]:
    variants = variant_labels([curve.variant for curve in curves])
    names = [variants[curve.variant] for curve in curves]
    if len({curve.k for curve in curves}) == 1:
        return names
    ks = [f"k = {curve.k}" for curve in curves]
    return ks if len(variants) == 1 else [f"{name}, {k}" for name, k in zip(names, ks, strict=True)]


def _lines(curves: Sequence[Curve], labels: Sequence[str]) -> tuple[Series, ...]:
    colours = OKABE_ITO if len(curves) <= len(OKABE_ITO) else ordered_colours(len(curves))
    return tuple(
        Series(label, "line", colours[place], MARKERS[place % len(MARKERS)], curve.x, curve.y, y_sd=curve.y_sd)
        for place, (curve, label) in enumerate(zip(curves, labels, strict=True))
    )
