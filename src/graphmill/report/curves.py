"""Charts with a line per scheme and k: accuracy against steps, and against communication."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import polars as pl

from graphmill.base.errors import UserError
from graphmill.record.columns import is_lower_better
from graphmill.report.chart import LOG_SPAN, Axis, Chart, Panel, Series, edge_note, focus, linear_axis, log_axis, notes
from graphmill.report.configurations import CONFIGURATION
from graphmill.report.order import sort_key
from graphmill.report.pareto import DEFAULT_COMM, GROUP, RUN, column_tag
from graphmill.report.style import (
    MARKERS,
    OKABE_ITO,
    axis_words,
    ordered_colours,
    scheme_place,
    scheme_words,
    shortened,
)
from graphmill.report.table import OfDataset
from graphmill.spec.kinds.kind import AnyKind


class Variant(NamedTuple):
    """What a group of runs shares besides its k."""

    scheme: str | None
    payload: str | None
    world_size: int | None
    configuration: str  # what else varies between the runs of this dataset; "": nothing

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Variant":
        """Variant that a row of a table belongs to."""
        return cls(row["sync_scheme"], row["payload"], row["world_size"], row[CONFIGURATION])


@dataclass(frozen=True, slots=True)
class Curve:
    """The mean over the runs of one group, epoch by epoch."""

    variant: Variant
    k: int
    num_runs: int
    is_cut: bool  # epochs that not all of its runs have were left out
    x: tuple[float, ...]
    y: tuple[float, ...]
    y_sd: tuple[float, ...]  # empty for a single run


def sync_ablation(part: OfDataset) -> Chart:
    """What the task is judged by, on the validation split, against steps of all ranks."""
    measure = f"val_{part.kind.primary.name}"
    curves = mean_curves(part, "global_steps", measure)
    x = linear_axis(axis_words(part.kind, "global_steps"), 0, max(curve.x[-1] for curve in curves), from_zero=True)
    return _chart(part, f"sync_ablation{part.suffix}", curves, x, measure_axis(part.kind, curves, measure))


def accuracy_vs_communication(part: OfDataset, comm: str, acc: str) -> Chart:
    """Accuracy against what was communicated for it."""
    curves = mean_curves(part, comm, acc)
    y = measure_axis(part.kind, curves, acc)
    points = [point for curve in curves for point in zip(curve.x, curve.y, strict=True)]
    x = communication_axis(part.kind, comm, [cost for cost, accuracy in points if y.lower <= accuracy <= y.upper])
    shown = [right_of_zero(curve) for curve in curves if curve.x[-1] > 0] if x.is_log else curves
    tag = "" if comm == DEFAULT_COMM else f"_{column_tag(comm)}"
    chart = _chart(part, f"{acc.lower()}_vs_total_comm{tag}{part.suffix}", shown, x, y)
    hidden = "runs without communication are not on the logarithmic axis" if len(shown) < len(curves) else ""
    return replace(chart, note=notes(chart.note, hidden))


def mean_curves(part: OfDataset, x: str, y: str) -> list[Curve]:
    """One curve per group of runs that differ in their seed, in the order a legend lists them."""
    usable = part.frame.filter(pl.col(x).is_finite(), pl.col(y).is_finite())
    if usable.is_empty():
        of_dataset = f" of {part.name}" if part.name else ""
        raise UserError(
            f"no row{of_dataset} has both {x} and {y}", fix="choose columns that were measured in these runs"
        )
    runs = usable.select(*RUN, CONFIGURATION).unique().group_by(GROUP).len("num_runs")
    epochs = (
        usable.group_by(*GROUP, "epoch")
        .agg(pl.len().alias("n"), pl.col(x).mean().alias("x"), pl.col(y).mean().alias("y"), pl.col(y).std().alias("sd"))
        .join(runs, on=GROUP, nulls_equal=True)
        .sort(*GROUP, "x", "epoch")
    )
    groups = epochs.partition_by(GROUP, maintain_order=True)
    return sorted((_curve(group) for group in groups), key=lambda curve: (variant_order(curve.variant), curve.k))


def communication_axis(kind: AnyKind, column: str, values: Sequence[float]) -> Axis:
    """Axis of communication; logarithmic if the range is wide."""
    positive = [value for value in values if value > 0]
    if positive and max(positive) > LOG_SPAN * min(positive):
        return log_axis(axis_words(kind, column), min(positive), max(positive))
    return linear_axis(axis_words(kind, column), 0, max(values), from_zero=True)


def measure_axis(kind: AnyKind, curves: Sequence[Curve], column: str) -> Axis:
    """Axis from the lowest to the highest of the curves with their bands, except a steep beginning (`focus`)."""
    bounds = [bound for curve in curves for bound in bounds_of(curve)]
    return linear_axis(axis_words(kind, column), *focus(bounds, falling=is_lower_better(kind, column)))


def bounds_of(curve: Curve) -> tuple[list[float], list[float]]:
    """The lower and the upper edge of its band; the curve itself, twice, where it has none."""
    spread = curve.y_sd or (0.0,) * len(curve.y)
    pairs = list(zip(curve.y, spread, strict=True))
    return [y - sd for y, sd in pairs], [y + sd for y, sd in pairs]


def variant_order(variant: Variant) -> tuple[Any, ...]:
    """Sort key of a variant; numbers in its configuration count by value."""
    configuration = [sort_key(word) for word in variant.configuration.replace(",", " ").split()]
    return configuration, scheme_place(variant.scheme), variant.payload or "", variant.world_size or 0


def variant_labels(variants: Sequence[Variant]) -> dict[Variant, str]:
    """Name each variant by what distinguishes it from the others; by its scheme, if nothing else does."""
    schemes, payloads, ranks = (len({variant[place] for variant in variants}) > 1 for place in range(3))
    labels = {}
    for variant in sorted(set(variants), key=variant_order):
        words = [scheme_words(variant.scheme)] if schemes or not variant.configuration else []
        if payloads and variant.payload:
            words.append(f"{variant.payload} payload")
        if ranks and variant.world_size:
            words.append(_ranks(variant.world_size))
        labels[variant] = ", ".join(filter(None, (*words, variant.configuration)))
    return labels


def title_of(part: OfDataset, variants: Sequence[Variant], num_runs: Sequence[int]) -> str:
    """Dataset, scheme, ranks if they are the same for all, and how many seeds are averaged.

    The scheme is left out where a label names it, and where one rank has nobody to exchange anything with.
    """
    words = [shortened(part.name or "dataset not recorded")]
    schemes, ranks = {variant.scheme for variant in variants}, {variant.world_size for variant in variants}
    if len(schemes) == 1 and ranks != {1} and any(variant.configuration for variant in variants):
        words.append(scheme_words(schemes.pop()))
    if len(ranks) == 1 and (same := ranks.pop()):
        words.append(_ranks(same))
    fewest, most = min(num_runs), max(num_runs)
    if most > 1:
        words.append(f"mean ± s.d. of {most} seeds" if fewest == most else f"mean ± s.d. of {fewest} to {most} seeds")
    else:
        words.append("single runs" if len(num_runs) > 1 else "single run")
    return ", ".join(words)


def _ranks(number: int) -> str:
    return f"{number} ranks" if number > 1 else "1 rank"


def _curve(group: pl.DataFrame) -> Curve:
    complete = group.filter(pl.col("n") == pl.col("num_runs"))
    kept = group if complete.is_empty() else complete  # a mean over fewer runs would jump
    first = group.row(0, named=True)
    return Curve(
        variant=Variant.of(first),
        k=first["sync_every"] or 0,
        num_runs=first["num_runs"],
        is_cut=kept.height < group.height,
        x=tuple(kept["x"]),
        y=tuple(kept["y"]),
        y_sd=() if kept["sd"].has_nulls() else tuple(kept["sd"]),
    )


def right_of_zero(curve: Curve) -> Curve:
    """The part of a curve that a logarithmic axis can show."""
    start = next(place for place, x in enumerate(curve.x) if x > 0)
    return replace(curve, x=curve.x[start:], y=curve.y[start:], y_sd=curve.y_sd[start:])


def _chart(part: OfDataset, name: str, curves: Sequence[Curve], x: Axis, y: Axis) -> Chart:
    variants = [curve.variant for curve in curves]
    cut = sum(curve.is_cut for curve in curves)
    title = title_of(part, variants, [curve.num_runs for curve in curves])
    panels = _panels(curves, variant_labels(variants))
    if len(panels) == 1:  # the legend takes the place of the panel's title
        title = f"{title}, {panels[0].title}"
        panels = (replace(panels[0], title=""),)
    return Chart(
        name=name,
        title=title,
        note=notes(
            f"{cut} of {len(curves)} lines end where their shortest run ends" if cut else "", edge_note(panels, y)
        ),
        is_synthetic=part.synthetic,
        x=x,
        y=y,
        panels=panels,
    )


def _panels(curves: Sequence[Curve], labels: dict[Variant, str]) -> tuple[Panel, ...]:
    """A panel per variant with a colour per k; with one k only, one panel with a colour per variant."""
    ks = sorted({curve.k for curve in curves})
    if len(ks) == 1 and len(labels) > 1:
        places = {variant: place for place, variant in enumerate(labels)}
        series = tuple(
            _line(
                curve, labels[curve.variant], OKABE_ITO[places[curve.variant] % len(OKABE_ITO)], places[curve.variant]
            )
            for curve in curves
        )
        return (Panel(f"k = {ks[0]}", series),)
    colours = dict(zip(ks, ordered_colours(len(ks)), strict=True))
    return tuple(
        Panel(
            label,
            tuple(
                _line(curve, f"k = {curve.k}", colours[curve.k], ks.index(curve.k))
                for curve in curves
                if curve.variant == variant
            ),
        )
        for variant, label in labels.items()
    )


def _line(curve: Curve, label: str, colour: str, place: int) -> Series:
    marker = MARKERS[place % len(MARKERS)]
    return Series(label, "line", colour, marker, x=curve.x, y=curve.y, y_sd=curve.y_sd)
