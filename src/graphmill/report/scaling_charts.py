"""The charts of a strong or weak study: speed-up, efficiency, throughput, where the time goes, and the warm-up."""

from collections.abc import Callable, Sequence
from typing import Final

from graphmill.report.chart import LOG_SPAN, Axis, Chart, Panel, Series, linear_axis
from graphmill.report.laws import Fit
from graphmill.report.measured_cells import Spread, disturbance
from graphmill.report.scaling_points import Point, Scaling
from graphmill.report.style import FAINT, INK, OKABE_ITO, WARNING, shortened

BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = OKABE_ITO
GOOD: Final = 0.8
"""A line is drawn at this efficiency."""

_PARTS: Final = (
    ("compute_s", "computing", BLUE),
    ("wait_s", "waiting for batches", YELLOW),
    ("sync_s", "synchronising", ORANGE),
    ("other_s", "rest of the loop", FAINT),
    ("eval_s", "evaluating", SKY),
)


def scaling_charts(scaling: Scaling) -> list[Chart]:
    """All charts; a law's fit is drawn if there is one."""
    return [
        _speedup(scaling),
        _efficiency(scaling),
        _throughput(scaling),
        _time_split(scaling),
        _first_epoch(scaling),
    ]


def title_of(scaling: Scaling) -> str:
    """Data, repeats, and the machine: what a reader must know to believe the figure."""
    plan, points = scaling.plan, scaling.points
    words = [f"{shortened(plan.dataset.name)}, {scaling.kind} scaling"]
    counts = {point.num_counted for point in points if point.epoch_s}
    most = max(counts)
    if most == 1:
        words.append("single runs")
    else:
        words.append(
            f"mean ± s.d. of {most} runs" if len(counts) == 1 else f"mean ± s.d. of {min(counts)} to {most} runs"
        )
    cores = next((point.cores_per_host for point in points if point.cores_per_host), None)
    threads = f"{plan.threads} thread{'s' if plan.threads > 1 else ''} a rank"
    machine = threads if cores is None else f"{threads}, {cores} cores a host"
    return f"{', '.join(words)}\n{machine}{_disturbed(points)}"


def _disturbed(points: Sequence[Point]) -> str:
    busy = max((point.others_cores.mean for point in points if point.others_cores), default=0.0)
    words = disturbance(busy)
    return f"; {words}" if words else ""


def _speedup(scaling: Scaling) -> Chart:
    strong = scaling.kind == "strong"
    x = _x_axis(scaling)
    known = [point for point in scaling.points if point.speedup]
    ideal = [scaling.ideal(point) for point in scaling.points]
    tops = [*ideal, *(_top(point.speedup) for point in known)]
    y = linear_axis("speed-up" if strong else "scaled speed-up (ratio of throughputs)", 0, max(tops), from_zero=True)
    sizes = [float(point.size) for point in scaling.points]
    lines = [
        Series("ideal", "dashes", FAINT, "circle", tuple(sizes), tuple(ideal)),
        Series("80 % of it", "dots", FAINT, "circle", tuple(sizes), tuple(GOOD * value for value in ideal)),
        *_machine(scaling),
        *_fits(scaling, lambda fit, n: fit.speedup(n)),
    ]
    return _chart(scaling, "speedup", x, y, (*lines, *_measured(scaling, lambda point: point.speedup, y)))


def _efficiency(scaling: Scaling) -> Chart:
    x = _x_axis(scaling)
    known = [point.efficiency for point in scaling.points if point.efficiency]
    y = linear_axis("parallel efficiency", 0, max(1.05, *(_top(value) for value in known)), from_zero=True)
    ends = (x.lower, x.upper)
    lines = [
        Series("ideal", "dashes", FAINT, "circle", ends, (1.0, 1.0)),
        Series("80 %", "dots", FAINT, "circle", ends, (GOOD, GOOD)),
        *_fits(scaling, lambda fit, n: fit.speedup(n) / n),
    ]
    return _chart(scaling, "efficiency", x, y, (*lines, *_measured(scaling, lambda point: point.efficiency, y)))


def _throughput(scaling: Scaling) -> Chart:
    x = _x_axis(scaling)
    known = [point.throughput for point in scaling.points if point.throughput]
    seeds = scaling.plan.kind.seeds_are
    y = linear_axis(f"throughput ({seeds}/s, all ranks)", 0, max(_top(value) for value in known), from_zero=True)
    base = scaling.base.throughput
    assert base is not None
    sizes = [float(point.size) for point in scaling.points]
    ideal = [(size, base.mean * size / scaling.base.size) for size in sizes]
    shown = [(size, value) for size, value in ideal if value <= y.upper]
    if len(shown) < len(ideal):  # to the edge of the panel, no further: what was measured sets the scale
        shown.append((y.upper / base.mean * scaling.base.size, y.upper))
    line = Series("ideal", "dashes", FAINT, "circle", tuple(a for a, _ in shown), tuple(b for _, b in shown))
    return _chart(scaling, "throughput", x, y, (line, *_measured(scaling, lambda point: point.throughput, y)))


def _time_split(scaling: Scaling) -> Chart:
    x = _places(scaling)
    bars: list[Series] = []
    base = [0.0] * len(scaling.points)
    for name, words, colour in _PARTS:
        values = [spread.mean if (spread := point.phases.get(name)) else 0.0 for point in scaling.points]
        if any(values):
            places = tuple(float(place) for place in range(len(values)))
            bars.append(Series(words, "bars", colour, "square", places, tuple(values), base=tuple(base), width=0.56))
            base = [low + value for low, value in zip(base, values, strict=True)]
    y = linear_axis("time of an epoch, rank 0 (s)", 0, max(base), from_zero=True)
    return _chart(scaling, "time_split", x, y, (*bars, *_gaps(scaling, y)))


def _first_epoch(scaling: Scaling) -> Chart:
    x = _places(scaling)
    known = [value for point in scaling.points for value in (point.first_epoch_s, point.epoch_s) if value]
    y = linear_axis("training time of an epoch (s)", 0, max(value.mean for value in known), from_zero=True)
    series = []
    for words, colour, shift, times in (
        ("first epoch (warm-up)", PINK, -0.15, [point.first_epoch_s for point in scaling.points]),
        ("later epochs", BLUE, 0.15, [point.epoch_s for point in scaling.points]),
    ):
        values = [(place + shift, value) for place, value in enumerate(times) if value]
        series.append(
            Series(
                label=words,
                form="bars",
                colour=colour,
                marker="square",
                x=tuple(place for place, _ in values),
                y=tuple(value.mean for _, value in values),
                base=(0.0,) * len(values),
                width=0.28,
            )
        )
    return _chart(scaling, "first_epoch", x, y, (*series, *_gaps(scaling, y)))


def _chart(scaling: Scaling, name: str, x: Axis, y: Axis, series: Sequence[Series]) -> Chart:
    return Chart(
        name=f"{scaling.kind}_{name}",
        title=title_of(scaling),
        note="",
        is_synthetic=scaling.plan.dataset.synthetic,
        x=x,
        y=y,
        panels=(Panel("", tuple(series)),),
    )


def _x_axis(scaling: Scaling) -> Axis:
    """Axis with a tick at every size; logarithmic if a linear axis would crowd the small ones."""
    sizes = [float(point.size) for point in scaling.points]
    lower, upper = min(sizes), max(sizes)
    if upper > LOG_SPAN * lower:
        return Axis(f"number of {scaling.axis}", lower / 1.3, upper * 1.3, tuple(sizes), is_log=True)
    room = 0.12 * (upper - lower)
    return Axis(f"number of {scaling.axis}", lower - room, upper + room, tuple(sizes))


def _places(scaling: Scaling) -> Axis:
    """An axis of bars: one place per size, whatever its number."""
    count = len(scaling.points)
    ticks = tuple(float(place) for place in range(count))
    texts = tuple(f"{point.size}*" if point.is_oversubscribed else str(point.size) for point in scaling.points)
    star = "; * more threads than cores" if any(point.is_oversubscribed for point in scaling.points) else ""
    return Axis(f"number of {scaling.axis}{star}", -0.6, count - 0.4, ticks, tick_texts=texts)


def _measured(scaling: Scaling, of: Callable[[Point], Spread | None], y: Axis) -> list[Series]:
    """The points: those whose threads have a core each, and those that must share; and what is missing."""
    own = [point for point in scaling.points if not point.is_oversubscribed]
    crowded = [point for point in scaling.points if point.is_oversubscribed]
    series = []
    for words, colour, marker, points in (
        ("measured", BLUE, "circle", own),
        ("measured, more threads than cores", PINK, "diamond", crowded),
    ):
        values = [(float(point.size), value) for point in points if (value := of(point))]
        if values:
            series.append(
                Series(
                    label=words,
                    form="means",
                    colour=colour,
                    marker="circle" if marker == "circle" else "diamond",
                    x=tuple(x for x, _ in values),
                    y=tuple(value.mean for _, value in values),
                    y_sd=tuple(value.sd or 0.0 for _, value in values),
                    names=("",) * len(values),
                )
            )
    return [*series, *_failed(scaling, y, lambda place, point: float(point.size))]


def _gaps(scaling: Scaling, y: Axis) -> list[Series]:
    return _failed(scaling, y, lambda place, point: float(place))


def _failed(scaling: Scaling, y: Axis, where: Callable[[int, Point], float]) -> list[Series]:
    """A cross on the axis for each size of which runs are missing."""
    gaps = [(where(place, point), point) for place, point in enumerate(scaling.points) if point.failed]
    if not gaps:
        return []
    names = tuple(f"{len(point.failed)} of {point.num_wanted}" for _, point in gaps)
    height = (y.lower,) * len(gaps)
    return [Series("runs that failed", "crosses", WARNING, "square", tuple(x for x, _ in gaps), height, names=names)]


def _machine(scaling: Scaling) -> list[Series]:
    """What this machine can give at best: threads beyond its cores add nothing."""
    crowded = [point for point in scaling.points if point.is_oversubscribed]
    if scaling.axis != "ranks" or not crowded or not crowded[0].cores_per_host or not crowded[0].threads:
        return []
    most = crowded[0].cores_per_host / crowded[0].threads / scaling.base.size
    if most < 1:
        return []
    bend, end = most * scaling.base.size, float(scaling.points[-1].size)
    start = float(scaling.base.size)
    return [Series("these cores at best", "rule", INK, "circle", (start, bend, end), (1.0, most, most))]


def _fits(scaling: Scaling, of: Callable[[Fit, float], float]) -> list[Series]:
    if scaling.fit is None or sum(1 for point in scaling.points if point.speedup) < 3:
        return []  # a law through two points is not a finding
    low, high = scaling.base.size, scaling.points[-1].size
    steps = [low * (high / low) ** (place / 40) for place in range(41)]
    share, law = scaling.fit.serial_share, scaling.fit.law.capitalize()
    residual = "" if scaling.fit.residual is None else f", residual {100 * scaling.fit.residual:.0f} %"
    if scaling.fit_own_cores is not None:
        law = f"{law}, all points"
    label = f"{law}: serial share {100 * share:.0f} %{residual}"
    if not 0 <= share <= 1:
        label = f"{law} does not hold: serial share {100 * share:.0f} %"
    values = tuple(of(scaling.fit, step / low) for step in steps)
    return [Series(label, "rule", GREEN, "circle", tuple(steps), values)]


def _top(value: Spread | None) -> float:
    return 0.0 if value is None else value.mean + (value.sd or 0.0)
