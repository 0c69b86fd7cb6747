"""Strong and weak scaling in numbers: one point per number of ranks or hosts, from the measured cells."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from graphmill.base.errors import UserError
from graphmill.report.laws import Fit, fit_amdahl, fit_gustafson
from graphmill.report.measured_cells import (
    OVERLOAD,
    PHASES,
    UTILISATION,
    MeasuredCell,
    Spread,
    primary_measure,
    refuse_other_keys,
)
from graphmill.spec.differences import flat
from graphmill.spec.plan import Plan

ScalingKind = Literal["strong", "weak"]
Axis = Literal["ranks", "hosts"]

STRONG_COLUMNS: Final = (
    *("num_nodes", "epoch_time_sec", "throughput_samples_per_sec", "speedup", "efficiency", "ideal_speedup"),
    *("train_loss", "val_loss", "MEASURE", "gpu_util_avg"),  # MEASURE: what the task is judged by, such as val_mae
)
WEAK_COLUMNS: Final = (
    *("num_nodes", "epoch_time_sec", "throughput_samples_per_sec", "time_ratio", "efficiency"),
    *("samples_per_node", "total_samples", "train_loss", "val_loss", "gpu_util_avg"),
)
"""The columns of the multi-node DCRNN scripts, in their order; ours follow them."""


@dataclass(frozen=True, slots=True)
class Point:
    """All repeats of one size. Of an axis of hosts, `size` counts hosts. None: no repeat was usable, or measured it."""

    size: int
    ranks: int
    num_wanted: int
    failed: dict[str, str]  # name of the cell: what happened
    threads: int | None  # of each rank
    cores_per_host: int | None
    is_oversubscribed: bool | None  # more threads than cores on a host
    train_seeds: int | None  # of the cell's training set
    epoch_s: Spread | None  # training part of an epoch
    first_epoch_s: Spread | None
    throughput: Spread | None  # seeds per second, over all ranks
    phases: dict[str, Spread | None]  # compute_s, wait_s, sync_s, other_s, eval_s of an epoch; of rank 0
    facts: dict[str, Spread | None]  # of the last epoch
    others_cores: Spread | None
    speedup: Spread | None = None  # weak: scaled, the ratio of throughputs
    efficiency: Spread | None = None

    @property
    def num_counted(self) -> int:
        """Repeats that the numbers are based on."""
        return self.num_wanted - len(self.failed)


@dataclass(frozen=True, slots=True)
class Scaling:
    """A strong or weak study as measured."""

    kind: ScalingKind
    axis: Axis
    points: tuple[Point, ...]  # by size
    plan: Plan  # of the first usable cell: what all share
    measure: str  # the fact by which a model is judged
    fit: Fit | None  # over all points
    fit_own_cores: Fit | None  # over those whose threads have a core each; None if that leaves out none, or too many
    notes: tuple[str, ...]

    @property
    def base(self) -> Point:
        """What the others are compared with: the smallest size."""
        return self.points[0]

    def ideal(self, point: Point) -> float:
        """Speed-up without any loss."""
        return point.size / self.base.size


def scaling_of(kind: ScalingKind, axis: Axis, cells: Sequence[MeasuredCell]) -> Scaling:
    """Put the cells together, or refuse with a `UserError` if they cannot be compared."""
    refuse_other_keys(cells, _studied(kind, axis))
    _refuse_other_work(kind, cells)
    usable = [cell for cell in cells if not cell.trouble]
    sizes = sorted({size for cell in cells if (size := _size(cell, axis)) is not None})
    points = [_point([cell for cell in cells if _size(cell, axis) == size], size) for size in sizes]
    if not points or points[0].epoch_s is None:
        tried = points[0].failed if points else {}
        why = "; ".join(f"{name}: {what}" for name, what in list(tried.items())[:3])
        raise UserError(
            f"no run of the smallest size can be counted, and it is what the others are compared with ({why})",
            fix="run the study again: it continues with what is not done",
        )
    plan = usable[0].plan
    assert plan is not None
    compared = tuple(_compared(point, points[0], kind) for point in points)
    return Scaling(
        kind=kind,
        axis=axis,
        points=compared,
        plan=plan,
        measure=primary_measure(plan),
        fit=_fit(kind, compared),
        fit_own_cores=_own_cores_fit(kind, compared),
        notes=tuple(_notes(cells, compared)),
    )


def infer_kind(cells: Sequence[MeasuredCell]) -> tuple[ScalingKind, Axis]:
    """What a folder of runs is a study of, inferred from the plans."""
    plans = [cell.plan for cell in cells if cell.plan is not None]
    if len({plan.ranks for plan in plans}) < 2:
        raise UserError(
            "the runs have the same number of ranks: this is neither a strong nor a weak study",
            fix="name the study's YAML file or recipe, or `graphmill compare` for other comparisons",
        )
    axis: Axis = "hosts" if len({plan.hosts for plan in plans}) == len({plan.ranks for plan in plans}) else "ranks"
    is_weak = len({plan.dataset.num_train for plan in plans}) > 1
    return ("weak" if is_weak else "strong"), axis


def csv_rows(scaling: Scaling) -> list[dict[str, Any]]:
    """One row per size, `PREDECESSORS_COLUMNS` first."""
    return [_csv_row(scaling, point) for point in scaling.points]


def _csv_row(scaling: Scaling, point: Point) -> dict[str, Any]:
    def of(spread: Spread | None) -> float | None:
        return spread.mean if spread else None

    def sd(spread: Spread | None) -> float | None:
        return spread.sd if spread else None

    strong = scaling.kind == "strong"
    ratio = point.epoch_s.mean / scaling.base.epoch_s.mean if point.epoch_s and scaling.base.epoch_s else None
    predecessors: dict[str, Any] = {
        "num_nodes": point.size,
        "epoch_time_sec": of(point.epoch_s),
        "throughput_samples_per_sec": of(point.throughput),
        "speedup": of(point.speedup),
        "efficiency": of(point.efficiency),
        "ideal_speedup": scaling.ideal(point),
        "time_ratio": ratio,
        "samples_per_node": None if point.train_seeds is None else point.train_seeds / point.size,
        "total_samples": point.train_seeds,
        "train_loss": of(point.facts.get("loss")),
        "val_loss": of(point.facts.get("val_loss")),
        scaling.measure: of(point.facts.get(scaling.measure)),
        "gpu_util_avg": of(point.facts.get("gpu_util_avg")),
    }
    listed = [scaling.measure if name == "MEASURE" else name for name in (STRONG_COLUMNS if strong else WEAK_COLUMNS)]
    own = {
        "num_nodes_counts": scaling.axis,
        "ranks": point.ranks,
        "repeats": point.num_counted,
        "failed": len(point.failed),
        "epoch_time_sec_sd": sd(point.epoch_s),
        "throughput_samples_per_sec_sd": sd(point.throughput),
        **({"speedup_sd": sd(point.speedup)} if strong else {"scaled_speedup": of(point.speedup)}),
        "efficiency_sd": sd(point.efficiency),
        **({"karp_flatt": _karp_flatt(scaling, point)} if strong else {}),
        "first_epoch_time_sec": of(point.first_epoch_s),
        **{f"{name}ec": of(value) for name, value in point.phases.items()},
        scaling.measure: of(point.facts.get(scaling.measure)),
        "cpu_util_avg": of(point.facts.get("cpu_util_avg")),
        "threads_per_rank": point.threads,
        "cores_per_host": point.cores_per_host,
        "oversubscribed": point.is_oversubscribed,
        "others_cores_avg": of(point.others_cores),
    }
    return {**{name: predecessors[name] for name in listed}, **{k: v for k, v in own.items() if k not in listed}}


def full_json(scaling: Scaling) -> dict[str, Any]:
    """All that was measured, for a program: `<kind>_scaling_full.json`."""
    plan = scaling.plan
    shared = {
        "task": plan.task.kind,
        "dataset": plan.dataset.name,
        "synthetic": plan.dataset.synthetic,
        "batch_size": plan.batch_size if scaling.kind == "weak" else plan.batch_size * plan.ranks,
        "batch_size_is": "of a rank" if scaling.kind == "weak" else "of all ranks together",
        "steps_per_epoch": flat(plan)["steps_per_epoch"],
        "epochs": plan.calendar.num_epochs,
        "sync": plan.sync.model_dump(mode="json"),
        "device": plan.device,
        "precision": plan.precision,
        "threads_per_rank": plan.threads,
    }
    return {
        "kind": scaling.kind,
        "num_nodes_counts": scaling.axis,
        "work": work_words(scaling),
        "measure": scaling.measure,
        "shared": shared,
        "fit": None if scaling.fit is None else asdict(scaling.fit),
        "fit_own_cores": None if scaling.fit_own_cores is None else asdict(scaling.fit_own_cores),
        "notes": list(scaling.notes),
        "points": [asdict(point) for point in scaling.points],
        "rows": csv_rows(scaling),
    }


def work_words(scaling: Scaling) -> str:
    """What is held fixed, for a table's heading."""
    plan = scaling.plan
    if scaling.kind == "strong":
        seeds, batch = plan.dataset.num_train, plan.batch_size * plan.ranks
        return f"fixed problem: {seeds:,} training seeds an epoch in global batches of {batch:,}"
    per_rank = plan.dataset.num_train // plan.ranks
    return (
        f"work grows with the ranks: {per_rank:,} training {plan.kind.seeds_are} of each rank an epoch, in batches of"
        f" {plan.batch_size:,}; the training set is sampled from the whole, the graph stays the same"
    )


def measure_words(scaling: Scaling) -> str:
    """The measure's name for the user."""
    known: dict[str, str] = {f"val_{measure.name}": measure.words for measure in scaling.plan.kind.measures}
    return known[scaling.measure]


def _studied(kind: ScalingKind, axis: Axis) -> set[str]:
    own = {"batch_size"} if kind == "strong" else {"dataset.num_train", "optimizer.weight_decay"}  # 1 / num_train
    return {"ranks", *own, *({"hosts"} if axis == "hosts" else set())}


def _refuse_other_work(kind: ScalingKind, cells: Sequence[MeasuredCell]) -> None:
    """Strong: the same global batch in all; weak: the same training seeds per rank in all."""
    amounts: dict[int | float, str] = {}
    for cell in cells:
        if cell.plan is not None and not cell.trouble:
            plan = cell.plan
            amount = plan.batch_size * plan.ranks if kind == "strong" else plan.dataset.num_train / plan.ranks
            amounts.setdefault(amount, str(cell.path))
    if len(amounts) > 1:
        (one, first), (other, second) = list(amounts.items())[:2]
        what = "the global batch" if kind == "strong" else "the training seeds of a rank"
        raise UserError(
            f"the cells of a {kind} study share {what}, but it is {one:g} in {first} and {other:g} in {second}",
            fix="remove the odd one, or make a study of each",
        )


def _size(cell: MeasuredCell, axis: Axis) -> int | None:
    if cell.plan is not None:
        return cell.plan.hosts if axis == "hosts" else cell.plan.ranks
    return cell.size


def _point(cells: Sequence[MeasuredCell], size: int) -> Point:
    usable = [cell for cell in cells if not cell.trouble]
    plan = next((cell.plan for cell in (*usable, *cells) if cell.plan is not None), None)
    cores = next((cell.provenance.num_cores for cell in usable if cell.provenance is not None), None)
    shown = plan.kind.columns.items() if plan else ()
    facts = {name for name, column in shown if column.kind == "number"} | {*UTILISATION}
    threads = plan.threads if plan else None
    return Point(
        size=size,
        ranks=plan.ranks if plan else size,
        num_wanted=len(cells),
        failed={cell.name: cell.trouble for cell in cells if cell.trouble},
        threads=threads,
        cores_per_host=cores,
        is_oversubscribed=None if plan is None or cores is None else plan.ranks_per_host * plan.threads > cores,
        train_seeds=plan.dataset.num_train if plan else None,
        epoch_s=Spread.of(cell.mean("train_s") for cell in usable),
        first_epoch_s=Spread.of(cell.first.get("train_s") for cell in usable if cell.first),
        throughput=Spread.of(_throughput(cell) for cell in usable),
        phases=_phases(usable),
        facts={fact: Spread.of(cell.last.get(fact) for cell in usable if cell.last) for fact in sorted(facts)},
        others_cores=Spread.of(cell.others_cores for cell in usable),
    )


def _throughput(cell: MeasuredCell) -> float | None:
    """Seeds of all epochs after the warm-up ÷ their time: of unequal epochs, not the mean of ratios."""
    seeds = [epoch.get("num_seeds") for epoch in cell.epochs]
    times = [epoch.get("train_s") for epoch in cell.epochs]
    if None in seeds or None in times:
        return None
    return sum(value or 0 for value in seeds) / sum(value or 0 for value in times)


def _phases(usable: Sequence[MeasuredCell]) -> dict[str, Spread | None]:
    found = {name: Spread.of(cell.mean(name) for cell in usable) for name in PHASES}
    rest = []
    for cell in usable:
        total, parts = cell.mean("train_s"), [cell.mean(name) for name in PHASES]
        if total is not None and None not in parts:
            rest.append(max(0.0, total - sum(part or 0 for part in parts)))
    return {**found, "other_s": Spread.of(rest), "eval_s": Spread.of(cell.mean("eval_s") for cell in usable)}


def _compared(point: Point, base: Point, kind: ScalingKind) -> Point:
    """The point with its speed-up and efficiency; their deviation is that of both times, as of independent runs."""
    if point.epoch_s is None or base.epoch_s is None or point.throughput is None or base.throughput is None:
        return point
    one, other = (base.epoch_s, point.epoch_s) if kind == "strong" else (point.throughput, base.throughput)
    ratio = one.mean / other.mean
    sd: float | None = None
    if point is base:
        sd = 0.0
    elif one.sd is not None and other.sd is not None:
        sd = ratio * math.hypot(one.sd / one.mean, other.sd / other.mean)
    n = min(one.n, other.n)
    ideal = point.size / base.size
    efficiency = Spread(ratio / ideal, None if sd is None else sd / ideal, n)
    return replace(point, speedup=Spread(ratio, sd, n), efficiency=efficiency)


def _fit(kind: ScalingKind, points: Sequence[Point]) -> Fit | None:
    known = [(point.size / points[0].size, point.speedup.mean) for point in points if point.speedup]
    fit = fit_amdahl if kind == "strong" else fit_gustafson
    return fit([n for n, _ in known], [speedup for _, speedup in known])


def _own_cores_fit(kind: ScalingKind, points: Sequence[Point]) -> Fit | None:
    own = [point for point in points if not point.is_oversubscribed]
    return _fit(kind, own) if points[0] in own and 1 < len(own) < len(points) else None


def _karp_flatt(scaling: Scaling, point: Point) -> float | None:
    """The serial share that this one point implies: if it grows with n, it is overhead."""
    n = scaling.ideal(point)
    if n <= 1 or point.speedup is None:
        return None
    return (1 / point.speedup.mean - 1 / n) / (1 - 1 / n)


def _notes(cells: Sequence[MeasuredCell], points: Sequence[Point]) -> list[str]:
    notes = [f"cell {cell.name} is not counted: {cell.trouble}" for cell in cells if cell.trouble]
    crowded = [point for point in points if point.is_oversubscribed]
    if crowded:
        listed = ", ".join(str(point.size) for point in crowded)
        point = crowded[0]
        notes.append(
            f"oversubscribed at {listed}: more threads than the {point.cores_per_host} cores of a host, so what is lost"
            " there is the machine's share, not the program's"
        )
    busy = [point.others_cores.mean for point in points if point.others_cores and point.others_cores.mean > OVERLOAD]
    if busy:
        notes.append(
            f"other processes kept up to {max(busy):.1f} cores busy meanwhile (monitor): these times are not the"
            " study's alone; run it again on a quiet machine"
        )
    commits = {cell.provenance.code.commit for cell in cells if cell.provenance and cell.provenance.code}
    if len(commits) > 1:
        notes.append(f"the cells were run with {len(commits)} commits of the code: {', '.join(sorted(commits))}")
    return notes
