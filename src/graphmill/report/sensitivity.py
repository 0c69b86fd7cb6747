"""What a run's speed depends on: every combination of some keys, measured; and how much each key matters on its own."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graphmill.base.errors import UserError
from graphmill.report.chart import Axis, Chart, Panel, Series, linear_axis
from graphmill.report.measured_cells import MeasuredCell, Spread, disturbance, primary_measure, refuse_other_keys
from graphmill.report.style import FAINT, MARKERS, OKABE_ITO, WARNING, shortened
from graphmill.spec.differences import flat
from graphmill.spec.plan import Plan

_SECTIONS = ("train.", "task.", "slurm.")
_FOLLOWS = {  # what a plan derives from a key that is varied
    "batch_size": {"steps_per_epoch", "steps_per_rank"},
    "ranks": {"steps_per_epoch", "steps_per_rank", "threads"},
    "epochs": {"steps_per_rank"},
    "max_steps": {"steps_per_rank", "epochs"},
    "dataset.train_limit": {"dataset.num_train", "optimizer.weight_decay", "steps_per_epoch", "steps_per_rank"},
    "dataset.name": {"dataset.*", "optimizer.weight_decay"},
}


@dataclass(frozen=True, slots=True)
class Combination:
    """All repeats of one combination of values."""

    values: tuple[str, ...]  # one per key
    num_wanted: int
    failed: dict[str, str]
    epoch_s: Spread | None
    first_epoch_s: Spread | None
    throughput: Spread | None  # seeds per second, over all ranks
    wait_share: Spread | None  # of an epoch's training
    sync_share: Spread | None
    measure: Spread | None
    peak_rss_mib: Spread | None
    others_cores: Spread | None


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of one key alone: throughput at each value, over that at its first, averaged over all the others."""

    key: str
    ratios: dict[str, float]  # geometric means; a failed combination is left out with those it would be compared with

    @property
    def spread(self) -> float:
        """The best value over the worst."""
        return max(self.ratios.values()) / min(self.ratios.values())


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A sensitivity study as measured."""

    keys: tuple[str, ...]
    combinations: tuple[Combination, ...]
    effects: tuple[Effect, ...]  # the strongest first
    plan: Plan
    measure: str
    notes: tuple[str, ...]


def sensitivity_of(cells: Sequence[MeasuredCell], *, keys: Sequence[str]) -> Sensitivity:
    """Put the cells together, or refuse with a `UserError` if they differ in more than `keys`."""
    names = [_plan_key(key) for key in keys]
    refuse_other_keys(cells, {*names, *(name for key in names for name in _FOLLOWS.get(key, ()))})
    usable = [cell for cell in cells if not cell.trouble]
    if not usable or usable[0].plan is None:
        raise UserError(
            "no cell of the study can be counted: " + "; ".join(f"{cell.name}: {cell.trouble}" for cell in cells[:3]),
            fix="run the study again: it continues with what is not done",
        )
    plan = usable[0].plan
    groups: dict[tuple[str, ...], list[MeasuredCell]] = {}
    for cell in cells:
        groups.setdefault(_values(cell, names), []).append(cell)
    measure = primary_measure(plan)
    combinations = [_combination(values, group, measure) for values, group in groups.items()]
    effects = [_effect(place, key, combinations) for place, key in enumerate(keys)]
    return Sensitivity(
        keys=tuple(keys),
        combinations=tuple(combinations),
        effects=tuple(sorted((each for each in effects if each), key=lambda each: -each.spread)),
        plan=plan,
        measure=measure,
        notes=tuple(_notes(cells)),
    )


def _notes(cells: Sequence[MeasuredCell]) -> Iterator[str]:
    for cell in cells:
        if cell.trouble:
            yield f"cell {cell.name} is not counted: {cell.trouble}"
    if words := disturbance(max((cell.others_cores or 0.0 for cell in cells), default=0.0)):
        yield f"{words}; run it again on a quiet machine"


def csv_rows(sensitivity: Sensitivity) -> list[dict[str, Any]]:
    """One row per combination."""
    rows = []
    for each in sensitivity.combinations:
        spreads = {
            "epoch_time_sec": each.epoch_s,
            "throughput_samples_per_sec": each.throughput,
            "first_epoch_time_sec": each.first_epoch_s,
            "wait_share": each.wait_share,
            "sync_share": each.sync_share,
            sensitivity.measure: each.measure,
            "peak_rss_mib": each.peak_rss_mib,
            "others_cores_avg": each.others_cores,
        }
        row: dict[str, Any] = dict(zip(sensitivity.keys, each.values, strict=True))
        row |= {name: spread.mean if spread else None for name, spread in spreads.items()}
        row["epoch_time_sec_sd"] = each.epoch_s.sd if each.epoch_s else None
        row["throughput_samples_per_sec_sd"] = each.throughput.sd if each.throughput else None
        row |= {"repeats": each.num_wanted - len(each.failed), "failed": len(each.failed)}
        rows.append(row)
    return rows


def sensitivity_json(sensitivity: Sensitivity) -> dict[str, Any]:
    """All that was measured, for a program: sensitivity_full.json."""
    return {
        "kind": "sensitivity",
        "keys": list(sensitivity.keys),
        "measure": sensitivity.measure,
        "effects": [
            {"key": each.key, "ratios": each.ratios, "best_over_worst": each.spread} for each in sensitivity.effects
        ],
        "notes": list(sensitivity.notes),
        "combinations": [asdict(each) for each in sensitivity.combinations],
    }


def sensitivity_chart(sensitivity: Sensitivity) -> Chart:
    """Throughput of all combinations: along the first key, a line for each value of the others."""
    values = list(dict.fromkeys(each.values[0] for each in sensitivity.combinations))
    rest = list(dict.fromkeys(each.values[1:] for each in sensitivity.combinations))
    known = [each.throughput for each in sensitivity.combinations if each.throughput]
    top = max(spread.mean + (spread.sd or 0.0) for spread in known)
    seeds = sensitivity.plan.kind.seeds_are
    y = linear_axis(f"throughput ({seeds}/s)", 0, top, from_zero=True)
    ticks = tuple(float(place) for place in range(len(values)))
    x = Axis(_short(sensitivity.keys[0]), -0.3, len(values) - 0.7, ticks, tick_texts=tuple(values))
    second = list(dict.fromkeys(each[0] for each in rest if each)) or [""]
    panels = [
        Panel(
            f"{_short(sensitivity.keys[1])} {value}" if len(sensitivity.keys) > 1 else "",
            tuple(_lines(sensitivity, values, [each for each in rest if not each or each[0] == value], y)),
        )
        for value in second
    ]
    counts = {each.num_wanted - len(each.failed) for each in sensitivity.combinations}
    runs = f"mean ± s.d. of {max(counts)} runs" if max(counts) > 1 else "single runs"
    words = disturbance(
        max((each.others_cores.mean for each in sensitivity.combinations if each.others_cores), default=0.0)
    )
    ranks = "1 rank" if sensitivity.plan.ranks == 1 else f"{sensitivity.plan.ranks} ranks"
    return Chart(
        name="sensitivity_throughput",
        title=f"{shortened(sensitivity.plan.dataset.name)}, {ranks}, {runs}" + (f"\n{words}" if words else ""),
        note="",
        is_synthetic=sensitivity.plan.dataset.synthetic,
        x=x,
        y=y,
        panels=tuple(panels),
    )


def _lines(sensitivity: Sensitivity, values: Sequence[str], rest: Sequence[tuple[str, ...]], y: Axis) -> list[Series]:
    series: list[Series] = []
    gaps: list[float] = []
    for number, others in enumerate(rest):
        own = {each.values[0]: each for each in sensitivity.combinations if each.values[1:] == others}
        points = [(float(place), own[value].throughput) for place, value in enumerate(values) if value in own]
        gaps += [float(values.index(each.values[0])) for each in own.values() if each.failed]
        shown = [(place, spread) for place, spread in points if spread]
        if shown:
            words = ", ".join(
                f"{_short(key)} {text}" for key, text in zip(sensitivity.keys[2:], others[1:], strict=True)
            )
            series.append(
                Series(
                    label=words or "measured",
                    form="line",
                    colour=OKABE_ITO[number % len(OKABE_ITO)],
                    marker=MARKERS[number % len(MARKERS)],
                    x=tuple(place for place, _ in shown),
                    y=tuple(spread.mean for _, spread in shown),
                    y_sd=tuple(spread.sd or 0.0 for _, spread in shown),
                )
            )
    if gaps:
        names = tuple(f"{gaps.count(place)} failed" for place in dict.fromkeys(gaps))
        places = tuple(dict.fromkeys(gaps))
        series.append(
            Series("runs that failed", "crosses", WARNING, "square", places, (y.lower,) * len(places), names=names)
        )
    return series or [Series("", "dots", FAINT, "circle", (), ())]


def _combination(values: tuple[str, ...], cells: Sequence[MeasuredCell], measure: str) -> Combination:
    usable = [cell for cell in cells if not cell.trouble]
    return Combination(
        values=values,
        num_wanted=len(cells),
        failed={cell.name: cell.trouble for cell in cells if cell.trouble},
        epoch_s=Spread.of(cell.mean("train_s") for cell in usable),
        first_epoch_s=Spread.of(cell.first.get("train_s") for cell in usable if cell.first),
        throughput=Spread.of(cell.mean("seeds_per_s") for cell in usable),
        wait_share=Spread.of(_share(cell, "wait_s") for cell in usable),
        sync_share=Spread.of(_share(cell, "sync_s") for cell in usable),
        measure=Spread.of(cell.last.get(measure) for cell in usable if cell.last),
        peak_rss_mib=Spread.of(cell.last.get("peak_rss_mib") for cell in usable if cell.last),
        others_cores=Spread.of(cell.others_cores for cell in usable),
    )


def _share(cell: MeasuredCell, name: str) -> float | None:
    part, whole = cell.mean(name), cell.mean("train_s")
    return part / whole if part is not None and whole else None


def _effect(place: int, key: str, combinations: Sequence[Combination]) -> Effect | None:
    """Ratios to the key's first value, in pairs that agree in all other keys."""
    by_rest: dict[tuple[str, ...], dict[str, float]] = {}
    for each in combinations:
        if each.throughput:
            rest = each.values[:place] + each.values[place + 1 :]
            by_rest.setdefault(rest, {})[each.values[place]] = each.throughput.mean
    values = list(dict.fromkeys(each.values[place] for each in combinations))
    whole = [speeds for speeds in by_rest.values() if len(speeds) == len(values)]
    if not whole:
        return None
    ratios: Mapping[str, float] = {
        value: statistics.geometric_mean([speeds[value] / speeds[values[0]] for speeds in whole]) for value in values
    }
    return Effect(key, dict(ratios))


def _values(cell: MeasuredCell, names: Sequence[str]) -> tuple[str, ...]:
    """What the cell's plan has for the keys; of a cell that never started, its name replaces them."""
    if cell.plan is None:
        return (cell.name, *[""] * (len(names) - 1))
    choices = flat(cell.plan)
    return tuple(_text(choices.get(name)) for name in names)


def _plan_key(key: str) -> str:
    """The name that a plan has for a key of an experiment: train.batch_size is batch_size."""
    for section in _SECTIONS:
        key = key.removeprefix(section)
    return key


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _short(key: str) -> str:
    return key.rpartition(".")[2].replace("_", " ")
