"""How well each class is told apart: precision, recall and F1 by class, and which classes are taken for which."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from graphmill.report.chart import Axis, Chart, Panel, Series, linear_axis
from graphmill.report.predictions import Predictions
from graphmill.report.style import MARKERS, OKABE_ITO, shortened
from graphmill.spec.kinds.kind import PredictsClasses

MOST_CLASSES: Final = 16
"""Rows of a figure that can be read. Of more classes the largest are drawn; the table of scores has all."""

SHADES: Final = ("D6E6F2", "9CC6E0", "5A9FCB", "1F6FAA", "08406F")
"""Of shares up to 20, 40, 60, 80 and 100 %; what is below `_LEAST_SHARE` is white."""

_LEAST_SHARE: Final = 0.005


def class_scores(of: Predictions, columns: PredictsClasses) -> pl.DataFrame:
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


def per_class_scores(of: Predictions, scores: pl.DataFrame) -> Chart:
    """Three points for each class."""
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
        x=linear_axis("score of the class, 0 to 1", 0.0, 1.0),
        y=_classes("class (items)", [f"{shortened(row['name'])} ({row['items']:,})" for row in shown.to_dicts()]),
        panels=(Panel("", tuple(series)),),
    )


def confusion_matrix(of: Predictions, columns: PredictsClasses, scores: pl.DataFrame) -> Chart:
    """Of the items of each class, the share that is taken for each class, in five shades; rows add up to at most 1."""
    table = of.read(columns.truth, columns.predicted, known=columns.truth)
    shown = scores.head(MOST_CLASSES)
    places = {number: place for place, number in enumerate(shown["class"])}
    sizes = dict(zip(scores["class"], scores["items"], strict=True))
    cells = [
        (places[truth], places[predicted], count / sizes[truth])
        for truth, predicted, count in table.group_by(columns.truth, columns.predicted).len().sort(pl.all()).iter_rows()
        if truth in places and predicted in places
    ]
    count = len(places)
    labels = [f"{shortened(name)}  {place}" for place, name in enumerate(shown["name"], 1)]
    return Chart(
        name=f"confusion_matrix{of.suffix}",
        title=of.title,
        note=_note(scores),
        is_synthetic=of.is_synthetic,
        x=Axis(
            "predicted class, numbered as the rows (shade: share of the row)",
            0.5,
            count + 0.5,
            tuple(range(1, count + 1)),
        ),
        y=_classes("class", labels),
        panels=(Panel("", tuple(_shade(cells, place, count) for place in range(len(SHADES)))),),
    )


def _shade(cells: Sequence[tuple[int, int, float]], place: int, count: int) -> Series:
    """The cells of one shade, each a bar of height 1."""
    width = 1 / len(SHADES)
    lower, upper = max(_LEAST_SHARE, place * width), (place + 1) * width
    own = [cell for cell in cells if lower <= cell[2] < upper or (upper == 1 and cell[2] >= 1)]
    return Series(
        label=f"to {100 * upper:.0f} %",
        form="bars",
        colour=SHADES[place],
        marker="square",
        x=tuple(predicted + 1.0 for _, predicted, _ in own),
        y=(1.0,) * len(own),
        base=tuple(count - truth - 0.5 for truth, _, _ in own),
        width=1.0,
    )


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


def _note(scores: pl.DataFrame) -> str:
    return f"the {MOST_CLASSES} largest of {scores.height} classes" if scores.height > MOST_CLASSES else ""


def _ratio(part: str, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole > 0).then(pl.col(part) / whole)


def _name(names: object, number: int) -> str:
    """Of a class; its number where none is known, or the file's list is not one."""
    if isinstance(names, list) and 0 <= number < len(names):
        return str(names[number])
    return str(number)
