"""How well each class is told apart: precision, recall and F1 by class, and which classes are taken for which."""

import math
from collections.abc import Sequence
from typing import Final

import polars as pl

from graphmill.report.chart import Axis, Chart, Panel, Series, linear_axis
from graphmill.report.predictions import RunPredictions
from graphmill.report.style import MARKERS, OKABE_ITO, shortened
from graphmill.spec.kinds.kind import PredictsClasses

MOST_CLASSES: Final = 16
"""Rows of a figure that can be read. Of more classes the largest are drawn; the table of scores has all."""

MOST_IN_MATRIX: Final = 12
"""Rows of a matrix whose cells have room for a number. Of more classes the largest are drawn; the table has all."""

SHADES: Final = ("D6E6F2", "9CC6E0", "5A9FCB", "1F6FAA", "08406F")
"""Of shares up to 20, 40, 60, 80 and 100 %; what is below `_LEAST_SHARE` is white."""

_LEAST_SHARE: Final = 0.005


def class_scores(of: RunPredictions, columns: PredictsClasses) -> pl.DataFrame:
    """A row for each class of the split or of its predictions, the largest first.

    Columns: `class`, `name`, `items`, `predicted` (how often), `precision`, `recall`, `f1`. A score whose denominator
    is 0 is null.
    """
    table = of.read(columns.truth, columns.predicted, known=columns.truth)
    truth, predicted = table[columns.truth], table[columns.predicted]
    found = pl.DataFrame({"class": pl.concat([truth, predicted]).unique().sort()})
    for name, values in (
        ("items", truth),
        ("predicted", predicted),
        ("right", truth.filter(truth == predicted)),
    ):
        counts = values.value_counts().select(pl.col(values.name).alias("class"), pl.col("count").alias(name))
        found = found.join(counts, on="class", how="left").with_columns(pl.col(name).fill_null(0).cast(pl.Int64))
    scored = found.with_columns(
        _ratio("right", pl.col("predicted")).alias("precision"),
        _ratio("right", pl.col("items")).alias("recall"),
        (2 * pl.col("right") / (pl.col("items") + pl.col("predicted"))).alias("f1"),
    )
    names = pl.Series("name", [_name(of.origin.get("class_names"), number) for number in scored["class"]])
    return scored.insert_column(1, names).drop("right").sort("items", "class", descending=[True, False])


def per_class_scores(of: RunPredictions, scores: pl.DataFrame) -> Chart:
    """Chart with three points for each class."""
    shown = scores.head(MOST_CLASSES)
    series = [
        _points(name, place, [(row[name], y) for row, y in zip(shown.to_dicts(), _rows(shown), strict=True)])
        for place, name in enumerate(("precision", "recall", "f1"))
    ]
    return Chart(
        name=f"per_class_scores{of.suffix}",
        title=of.title,
        note=_note(scores),
        is_synthetic=of.is_synthetic,
        x=_scores_axis(shown),
        y=_classes("class (items)", [f"{shortened(row['name'])} ({row['items']:,})" for row in shown.to_dicts()]),
        panels=(Panel("", tuple(series)),),
    )


def confusions(of: RunPredictions, columns: PredictsClasses, scores: pl.DataFrame) -> pl.DataFrame:
    """A row for each pair of a class and what its items are taken for, the largest classes first; all classes."""
    table = of.read(columns.truth, columns.predicted, known=columns.truth)
    order = scores.select("class", "name", pl.col("items").alias("of"), pl.int_range(pl.len()).alias("place"))
    counts = table.group_by(columns.truth, columns.predicted).len("items")
    return (
        counts.join(order, left_on=columns.truth, right_on="class")
        .join(order, left_on=columns.predicted, right_on="class", suffix="_predicted")
        .sort("place", "place_predicted")
        .select(
            pl.col("name").alias("class"),
            pl.col("name_predicted").alias("predicted"),
            "items",
            (pl.col("items") / pl.col("of")).alias("share"),
            "place",
            "place_predicted",
        )
    )


def confusion_matrix(of: RunPredictions, table: pl.DataFrame, scores: pl.DataFrame) -> Chart:
    """Heat map: of the items of each class, the percentage taken for each class; `table` comes from `confusions`."""
    shown = scores.head(MOST_IN_MATRIX)
    count = shown.height
    cells = [
        (truth, predicted, share)
        for truth, predicted, share in table.select("place", "place_predicted", "share").iter_rows()
        if truth < count and predicted < count
    ]
    names = tuple(_without_middle(name) for name in shown["name"])
    return Chart(
        name=f"confusion_matrix{of.suffix}",
        title=of.title,
        note=_note(scores, MOST_IN_MATRIX),
        is_synthetic=of.is_synthetic,
        x=Axis(
            "predicted class (in a cell: % of the row)",
            0.5,
            count + 0.5,
            tuple(float(place) for place in range(1, count + 1)),
            tick_texts=names,
        ),
        y=_classes("class (items)", [f"{shortened(row['name'])} ({row['items']:,})" for row in shown.to_dicts()]),
        panels=(Panel("", tuple(_shade(cells, place, count) for place in range(len(SHADES)))),),
    )


def _shade(cells: Sequence[tuple[int, int, float]], place: int, count: int) -> Series:
    """The cells of one shade, each a bar of height 1."""
    width = 1 / len(SHADES)
    lower, upper = max(_LEAST_SHARE, place * width), (place + 1) * width
    own = [cell for cell in cells if lower <= cell[2] < upper or (place == len(SHADES) - 1 and cell[2] >= 1)]
    return Series(
        label=f"to {100 * upper:.0f} %",
        form="bars",
        colour=SHADES[place],
        marker="square",
        x=tuple(predicted + 1.0 for _, predicted, _ in own),
        y=(1.0,) * len(own),
        names=tuple(_percent(share) for _, _, share in own),
        base=tuple(count - truth - 0.5 for truth, _, _ in own),
        width=1.0,
    )


def _without_middle(name: str) -> str:
    """Names of classes often differ at their end: Europe/Berlin, Europe/Bern."""
    return name if len(name) <= 14 else f"{name[:5]}…{name[-8:]}"


def _percent(share: float) -> str:
    """Write a share as a whole percentage; 100 means all of them, and not nearly all.

    >>> [_percent(share) for share in (0.006, 0.494, 0.999, 1.0)]
    ['<1', '49', '>99', '100']
    """
    if share < 0.01:
        return "<1"
    return ">99" if 0.99 < share < 1 else f"{100 * share:.0f}"


def _scores_axis(shown: pl.DataFrame) -> Axis:
    """Axis from 0, or from the lowest score if all are high: scores above .9 stay apart, and the label says so."""
    known = [score for name in ("precision", "recall", "f1") for score in shown[name].drop_nulls()]
    lowest = math.floor(20 * min(known, default=0.0)) / 20
    if lowest < 0.5:
        return linear_axis("score of the class, 0 to 1", 0.0, 1.0)
    lowest = min(lowest, 0.95)
    return linear_axis(f"score of the class, {lowest:g} to 1", lowest, 1.0)


def _points(name: str, place: int, points: Sequence[tuple[float | None, float]]) -> Series:
    known = [(score, y) for score, y in points if score is not None]
    return Series(
        label="F1" if name == "f1" else name,
        form="means",
        colour=OKABE_ITO[place],
        marker=MARKERS[place + 1],
        x=tuple(score for score, _ in known),
        y=tuple(y for _, y in known),
        y_sd=(0.0,) * len(known),
        names=("",) * len(known),
    )


def _rows(shown: pl.DataFrame) -> list[float]:
    """Height of each class: the largest on top."""
    return [float(shown.height - place) for place in range(shown.height)]


def _classes(label: str, texts: Sequence[str]) -> Axis:
    ticks = tuple(float(len(texts) - place) for place in range(len(texts)))
    return Axis(label, 0.5, len(texts) + 0.5, ticks, tick_texts=tuple(texts))


def _note(scores: pl.DataFrame, most: int = MOST_CLASSES) -> str:
    return (
        f"the {most} largest of {scores.height} classes; the table next to it has all" if scores.height > most else ""
    )


def _ratio(part: str, total: pl.Expr) -> pl.Expr:
    return pl.when(total > 0).then(pl.col(part) / total)


def _name(names: object, number: int) -> str:
    """Name of a class; its number where no name is known, or `names` is not a list."""
    if isinstance(names, list) and 0 <= number < len(names):
        return str(names[number])
    return str(number)
