"""Forecasts against what was measured: some series over a day or so, forecast as far ahead as the run does."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import polars as pl

from graphmill.base.errors import UserError
from graphmill.report.chart import Axis, Chart, Panel, Series, linear_axis
from graphmill.report.predictions import RunPredictions
from graphmill.report.style import MARKERS, OKABE_ITO, shortened
from graphmill.spec.kinds.kind import PredictsSeries

NUM_SERIES: Final = 4
SPAN_S: Final = 24 * 3600
_TICK_S: Final = 6 * 3600


def forecast_vs_truth(of: RunPredictions, columns: PredictsSeries) -> Chart:
    """A panel for each of some series, from the one that is forecast best to the one that is forecast worst."""
    names = [columns.series, columns.time, columns.steps_ahead, columns.truth, columns.predicted]
    table = of.read(*names, known=columns.truth)
    steps = int(table[columns.steps_ahead].max() or 0)  # type: ignore[arg-type]  # a column of integers
    far = table.filter(pl.col(columns.steps_ahead) == steps)
    errors = _errors(far, columns)
    chosen = _spread_out(errors[columns.series].to_list())
    begin = int(far[columns.time].min() or 0)  # type: ignore[arg-type]
    day = far.filter(pl.col(columns.series).is_in(chosen), pl.col(columns.time) < begin + SPAN_S)
    if day.is_empty():
        raise UserError(f"{of.path} has no forecast of the first day to draw", fix="predict another split")
    unit = str(of.origin.get("unit") or "unit of the data")
    values = [*day[columns.truth], *day[columns.predicted]]
    mae = dict(errors.iter_rows())
    return Chart(
        name=f"forecast_vs_truth{of.suffix}",
        title=f"{of.title}, {_ahead(table, columns, steps)} ahead",
        note=f"{len(chosen)} of {errors.height} series, from the best to the worst forecast",
        is_synthetic=of.is_synthetic,
        x=_hours(begin, int(day[columns.time].max() or begin)),  # type: ignore[arg-type]
        y=linear_axis(f"{columns.truth} ({unit})", min(values), max(values)),
        panels=tuple(
            Panel(f"{shortened(str(name))}, MAE {mae[name]:.3g} {unit}", _lines(day, columns, name)) for name in chosen
        ),
    )


def _errors(far: pl.DataFrame, columns: PredictsSeries) -> pl.DataFrame:
    """Mean absolute error of each series over the whole file, the smallest first."""
    error = (pl.col(columns.predicted) - pl.col(columns.truth)).abs().mean().alias("mae")
    return far.group_by(columns.series).agg(error).sort("mae", columns.series)


def _spread_out(names: Sequence[str]) -> list[str]:
    """Pick some of the names, evenly spread, the first and the last among them."""
    count = min(NUM_SERIES, len(names))
    return [names[round(place * (len(names) - 1) / max(count - 1, 1))] for place in range(count)]


def _lines(day: pl.DataFrame, columns: PredictsSeries, name: str) -> tuple[Series, ...]:
    own = day.filter(pl.col(columns.series) == name).sort(columns.time)
    times = tuple(float(time) for time in own[columns.time])
    return tuple(
        Series(label, "rule", OKABE_ITO[place], MARKERS[place], times, tuple(own[column]))
        for place, (label, column) in enumerate(
            ((columns.truth, columns.truth), (columns.predicted, columns.predicted))
        )
    )


def _ahead(table: pl.DataFrame, columns: PredictsSeries, steps: int) -> str:
    """How far ahead the forecasts are, such as 12 steps (60 min)."""
    times = table[columns.time].unique().sort()
    interval = times.diff().min()
    words = f"{steps} step{'s' * (steps > 1)}"
    return f"{words} ({steps * interval / 60:g} min)" if isinstance(interval, int | float) else words


def _hours(begin: int, end: int) -> Axis:
    """Clock times of the data, which are local, with the day that they begin on."""
    first = -(-begin // _TICK_S) * _TICK_S
    ticks = tuple(float(time) for time in range(first, end + 1, _TICK_S))
    texts = tuple(datetime.fromtimestamp(tick, UTC).strftime("%H:%M") for tick in ticks)
    day = datetime.fromtimestamp(begin, UTC).strftime("%Y-%m-%d")
    return Axis(f"local time, from {day} (h:min)", float(begin), float(max(end, begin + 1)), ticks, tick_texts=texts)
