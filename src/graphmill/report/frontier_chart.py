"""The Pareto chart: every epoch of every run, the frontier, and the end of every scheme and k with its spread."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from graphmill.record.columns import is_lower_better
from graphmill.report.chart import Chart, Panel, Series, focus, linear_axis, with_room
from graphmill.report.configurations import CONFIGURATION
from graphmill.report.curves import Variant, communication_axis, title_of, variant_labels
from graphmill.report.pareto import RUN, column_tag, final_points, frontier, summary
from graphmill.report.style import FAINT, INK, MARKERS, OKABE_ITO, axis_words
from graphmill.report.table import OfDataset


@dataclass(frozen=True, slots=True)
class _Mean:
    """Where the runs of one group end, on average."""

    variant: Variant
    k: int
    num_runs: int
    x: float
    y: float
    x_sd: float
    y_sd: float


def pareto_frontier(part: OfDataset, points: pl.DataFrame, comm: str, acc: str) -> Chart:
    """Draw the sorted `points` of one dataset (report.pareto.usable_points)."""
    means = _means(points, comm, acc)
    falling = is_lower_better(part.kind, acc)
    y = linear_axis(axis_words(part.kind, acc), *_limits(points, acc, means, falling=falling))
    x = with_room(
        communication_axis(part.kind, comm, points.filter(pl.col(acc).is_between(y.lower, y.upper))[comm].to_list()),
        0.06,
    )
    shown = points.filter(pl.col(comm) > 0) if x.is_log else points
    means = [mean for mean in means if mean.x > 0 or not x.is_log]
    labels = variant_labels([mean.variant for mean in means])
    best = frontier(shown, acc, lower=falling)
    stairs = Series("frontier", "stairs", INK, "circle", tuple(best[comm]), tuple(best[acc]))
    colours = {variant: OKABE_ITO[place % len(OKABE_ITO)] for place, variant in enumerate(labels)}
    clouds = (_cloud(shown, variant, colours[variant], comm, acc) for variant in labels)
    legend = Series("every epoch", "cloud", FAINT, "circle", (), ())  # the colours are those of the ends
    ends = (_ends(means, variant, label, place) for place, (variant, label) in enumerate(labels.items()))
    hidden = points.height - shown.height
    return Chart(
        name=f"pareto_frontier_{column_tag(comm)}{part.suffix}",
        title=title_of(part, list(labels), [mean.num_runs for mean in means]),
        note=f"{hidden} points without communication are not on the logarithmic axis" if hidden else "",
        is_synthetic=part.synthetic,
        x=x,
        y=y,
        panels=(Panel("", (legend, *clouds, stairs, *ends)),),
    )


def _limits(points: pl.DataFrame, acc: str, means: Sequence[_Mean], *, falling: bool) -> tuple[float, float]:
    runs = [run[acc].to_list() for run in points.sort("epoch").partition_by(RUN)]
    lower, upper = focus(runs, falling=falling)
    lower = min(lower, *(mean.y - mean.y_sd for mean in means))
    upper = max(upper, *(mean.y + mean.y_sd for mean in means))
    return lower - 0.05 * (upper - lower), upper  # room for the names of the points


def _means(points: pl.DataFrame, comm: str, acc: str) -> list[_Mean]:
    return [
        _Mean(
            variant=Variant.of(row),
            k=row["sync_every"] or 0,
            num_runs=row["n"],
            x=row[f"{comm}_mean"],
            y=row[f"{acc}_mean"],
            x_sd=row[f"{comm}_sd"] or 0.0,
            y_sd=row[f"{acc}_sd"] or 0.0,
        )
        for row in summary(final_points(points), comm, acc).to_dicts()
    ]


def _cloud(points: pl.DataFrame, variant: Variant, colour: str, comm: str, acc: str) -> Series:
    names = ("sync_scheme", "payload", "world_size", CONFIGURATION)
    same = [pl.col(name).eq_missing(pl.lit(value)) for name, value in zip(names, variant, strict=True)]
    rows = points.filter(same)
    return Series("", "cloud", colour, "circle", tuple(rows[comm]), tuple(rows[acc]))


def _ends(means: Sequence[_Mean], variant: Variant, label: str, place: int) -> Series:
    own = sorted((mean for mean in means if mean.variant == variant), key=lambda mean: mean.x)
    return Series(
        label=label,
        form="means",
        colour=OKABE_ITO[place % len(OKABE_ITO)],
        marker=MARKERS[place % len(MARKERS)],
        x=tuple(mean.x for mean in own),
        y=tuple(mean.y for mean in own),
        x_sd=tuple(mean.x_sd for mean in own) if any(mean.x_sd > 1e-6 * mean.x for mean in own) else (),
        y_sd=tuple(mean.y_sd for mean in own),
        names=tuple(f"k = {mean.k}" if _is_lowest(mean, means) else "" for mean in own),
    )


def _is_lowest(mean: _Mean, means: Sequence[_Mean]) -> bool:
    """Whether `mean` is lowest of those that share its k and, nearly, its communication: one name for all."""
    together = [other for other in means if other.k == mean.k and abs(other.x - mean.x) <= 0.1 * abs(mean.x)]
    return mean is min(together, key=lambda other: (other.y - other.y_sd, repr(other.variant)))
