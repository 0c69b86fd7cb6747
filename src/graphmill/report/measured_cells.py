"""The cells of a study as they were measured: what metrics.csv, the monitors and provenance.json of each run say."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.monitor.summary import MonitorSummary, read_monitors, summarise
from graphmill.record.metrics import read_metrics
from graphmill.record.provenance import Provenance
from graphmill.record.run_folder import RunFolder, find_runs
from graphmill.spec.differences import flat
from graphmill.spec.plan import Plan
from graphmill.spec.study import Study, expand, load_cell

PHASES: Final = ("compute_s", "wait_s", "sync_s")
"""Parts of an epoch's training that the ranks clock; what is left of it is `other_s`."""
UTILISATION: Final = ("cpu_util_avg", "gpu_util_avg")
"""From the monitors, if a task's metrics.csv does not have them."""

OVERLOAD: Final = 0.25
"""Cores: if other processes kept more than this busy, the times are not the study's alone, and the figures say so."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and sample standard deviation over the repeats of a cell."""

    mean: float
    sd: float | None  # None: one repeat, or a value that is not finite
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Spread | None":
        """Spread of the known values; None if none is known."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        is_spread = len(known) > 1 and all(map(math.isfinite, known))
        return cls(statistics.fmean(known), statistics.stdev(known) if is_spread else None, len(known))


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """One run of a study. `trouble` says why it is not counted; "" if it is."""

    name: str
    path: Path
    plan: Plan | None  # None: it never started
    size: int | None  # ranks or hosts asked for, if the study says
    status: str
    trouble: str
    epochs: tuple[Mapping[str, float | None], ...] = ()  # facts of whole epochs after the warm-up
    first: Mapping[str, float | None] | None = None  # of the first epoch, which warms up
    last: Mapping[str, float | None] | None = None  # of the last one, whatever it is
    provenance: Provenance | None = None
    others_cores: float | None = None  # cores of the fullest host that other processes kept busy meanwhile, on average

    def mean(self, fact: str) -> float | None:
        """Mean of a fact, over the epochs after the warm-up in which it was measured."""
        known = [value for epoch in self.epochs if (value := epoch.get(fact)) is not None]
        return statistics.fmean(known) if known else None


@dataclass(frozen=True, slots=True)
class WantedCell:
    """A cell that a study asks for, whether it was run or not."""

    name: str
    path: Path
    size: int | None = None


def wanted_of_study(study: Study, logs_root: Path) -> list[WantedCell]:
    """All cells of a study, in order."""
    wanted = []
    for cell in expand(study):
        experiment = load_cell(study, cell)
        size = experiment.slurm.hosts if study.hosts else experiment.train.ranks
        wanted.append(
            WantedCell(cell.name, logs_root / study.name / cell.name, size if isinstance(size, int) else None)
        )
    return wanted


def wanted_in_folder(folder: Path) -> list[WantedCell]:
    """All runs below a folder. A cell that never began leaves no trace there."""
    runs = find_runs(folder)
    if not runs:
        raise UserError(f"{folder} holds no runs", fix="name a study, or a folder with the runs of one")
    return [WantedCell(str(run.path.relative_to(folder)), run.path) for run in runs]


def measure(wanted: WantedCell) -> MeasuredCell:
    """What is known of one cell."""
    folder = RunFolder(wanted.path)
    if not folder.plan_path.is_file():
        return MeasuredCell(wanted.name, wanted.path, None, wanted.size, "new", "it was not run")
    plan, outcome = folder.read_plan(), folder.read_outcome()
    status = "unfinished" if outcome is None else outcome.status
    if outcome is None or outcome.status != "done":
        trouble = status.replace("_", " ") + (f": {outcome.message}" if outcome and outcome.message else "")
        return MeasuredCell(wanted.name, wanted.path, plan, wanted.size, status, trouble)
    rows = _rows(folder, plan)
    if outcome.elastic:
        return MeasuredCell(wanted.name, wanted.path, plan, wanted.size, status, outcome.elastic)
    monitors = summarise(read_monitors(folder.monitor_dir))
    used = {"cpu_util_avg": monitors.cpu_util_avg, "gpu_util_avg": monitors.gpu_util_avg}
    steady = [row for number, row in enumerate(rows) if number and _is_whole(row, rows[number - 1], plan)]
    return MeasuredCell(
        name=wanted.name,
        path=wanted.path,
        plan=plan,
        size=wanted.size,
        status=status,
        trouble="" if steady else "no whole epoch follows the first, which is warm-up",
        epochs=tuple(steady),
        first=rows[0] if rows else None,
        last={**used, **rows[-1]} if rows else None,
        provenance=folder.read_provenance(),
        others_cores=_others(monitors),
    )


def refuse_other_keys(cells: Sequence[MeasuredCell], studied: Iterable[str]) -> None:
    """Raise a `UserError` if usable cells differ in more than the keys that are studied, or in their machine."""
    usable = [cell for cell in cells if not cell.trouble]
    if not usable:
        return
    may_differ = {*studied, "run_id", "seed", "name"}
    reference = usable[0]
    there = _choices(reference)
    for cell in usable[1:]:
        here = _choices(cell)
        other = [key for key in {**there, **here} if key not in may_differ and there.get(key) != here.get(key)]
        if other:
            words = "; ".join(
                f"{key} is {there.get(key)} in the first and {here.get(key)} in the second" for key in other
            )
            raise UserError(
                f"{reference.path} and {cell.path} differ in more than the studied keys: {words}",
                fix="compare runs that share these: remove the odd ones, or make a study of that key",
            )


def disturbance(others_cores: float) -> str:
    """Say in words for a figure that other processes took part of the machine; "" if they hardly did."""
    return f"not a quiet machine: others kept up to {others_cores:.1f} cores busy" if others_cores > OVERLOAD else ""


def primary_measure(plan: Plan) -> str:
    """The fact that says how good the model is: val_micro_f1, val_mae."""
    return f"val_{plan.kind.primary.name}"


def _choices(cell: MeasuredCell) -> dict[str, object]:
    """What a plan says, and on what it was measured. `threads` counts here: it decides how fast a rank is."""
    assert cell.plan is not None
    choices: dict[str, object] = dict(flat(cell.plan))
    choices.pop("dataset.path")  # a staged copy is the same data
    if cell.provenance is not None:
        choices["the machine"] = f"{cell.provenance.cpu_model} with {cell.provenance.num_cores} cores"
    return choices


def _rows(folder: RunFolder, plan: Plan) -> list[dict[str, float | None]]:
    rows = read_metrics(folder.metrics_path)
    return [{name: _number(text) for name, text in row.items()} for row in rows]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _is_whole(row: Mapping[str, float | None], before: Mapping[str, float | None], plan: Plan) -> bool:
    """Whether the epoch is not cut short by the plan's end, and not the first after a resume, which warms up again."""
    number, calendar = int(row.get("epoch") or 0), plan.calendar
    if not 1 <= number <= calendar.num_epochs:  # a table that someone changed
        return False
    return row.get("epoch_steps") == calendar.length(number - 1) and row.get("attempt") == before.get("attempt")


def _others(monitors: MonitorSummary) -> float | None:
    """Cores that processes other than the ranks kept busy during the run."""
    known = [
        max(0.0, host.host.cores_avg - host.ranks_cores_avg)
        for host in monitors.hosts
        if host.host.cores_avg is not None and host.ranks_cores_avg is not None
    ]
    return max(known, default=None)
