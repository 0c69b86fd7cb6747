"""A run as experiment trackers know one, what a writer for a tracker is, and which there are.

A run is one, whatever attempts, requeues and jobs it took: metrics.csv has one row for each epoch, and an epoch that
was done again after a resume has replaced the earlier one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Final, Literal, Protocol

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.base.retries import is_there
from graphmill.base.versions import installed_version
from graphmill.record.documents import Attempt, Outcome
from graphmill.record.endings import EndingName
from graphmill.record.evaluations import Evaluated, read_evaluations
from graphmill.record.events import Epoch, Evaluation, Event, events_in
from graphmill.record.manifest import hash_text
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.columns import MODELLED, OF_THE_RUN
from graphmill.spec.differences import flat
from graphmill.spec.optimizer import learning_rate
from graphmill.spec.plan import Plan

_OF_THE_PLAN: Final = {"epoch", "sync_every", "world_size", "target_global_steps", *OF_THE_RUN, *MODELLED}
"""Columns that are no points: the step itself, what the params say, and what follows from them by formula."""
PACKAGES: Final = {
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow-skinny", "sqlalchemy", "alembic"),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
}
"""The trackers, and the packages that each needs; any of them as the optional extra of that name."""


@dataclass(frozen=True, slots=True)
class LoggedValue:
    """One value of one measure."""

    step: int  # the epoch, counted from 1; 0: the weights that the run began with
    time: float  # Unix time (s) at which the run recorded it
    name: str  # as in metrics.csv; of another evaluation set <set>_<measure>
    value: float


@dataclass(frozen=True, slots=True)
class TrackerRun:
    """One run, over all its attempts."""

    name: str  # the run id
    identity: str  # 16 characters: the same in every export of this run, another for every other run
    began: float  # Unix time, s, of the first attempt
    ended: float | None  # Unix time, s; None: it has no outcome
    ending: EndingName | None
    params: Mapping[str, Any]  # the plan, by dotted name
    tags: Mapping[str, str]
    points: tuple[LoggedValue, ...]  # in the order in which they were recorded

    def content(self) -> str:
        """A checksum of all of it."""
        return hash_text(repr(asdict(self)))


def read_run(folder: RunFolder, *, verified: str | None = None) -> TrackerRun:
    """The run in `folder`, as far as it has come. `verified`: what `graphmill verify` says of it, if it was asked.

    Raises `UserError` if the folder is damaged, the run has not begun, or two of its measures have one name.
    """
    plan, outcome, attempts = folder.read_plan(), folder.read_outcome(), folder.attempts()
    if not attempts:
        raise UserError(f"{folder.path} has no attempts.jsonl: the run has not begun", fix="export it once it runs")
    events = events_in(folder.events_path(0)) if is_there(folder.events_path(0)) else []
    points = sorted([*_of_epochs(folder, plan, events), *_of_evaluations(folder, events)], key=_order)
    _refuse_doubles(folder, points)
    return TrackerRun(
        name=plan.run_id,
        identity=_identity(plan, attempts[0]),
        began=attempts[0].time,
        ended=None if outcome is None else max(attempts[-1].time, *(event.time for event in events[-1:])),
        ending=None if outcome is None else outcome.status,
        params=flat(plan),
        tags=_tags(folder, plan, outcome, attempts, verified),
        points=tuple(points),
    )


def refuse_same_names(runs: Sequence[TrackerRun]) -> None:
    """Raise a `UserError` if two runs would be written as one."""
    doubled = sorted(name for name, count in Counter(run.name for run in runs).items() if count > 1)
    if doubled:
        raise UserError(
            f"several of these runs are called {doubled[0]}, and a tracker would show them as one",
            fix="export them one by one, each with a --project of its own",
        )


def _identity(plan: Plan, first: Attempt) -> str:
    """Id of a run: two runs of the same plan, under the same name, began at different moments."""
    return hash_text(f"{plan.run_id}\n{first.hostname}\n{first.pid}\n{first.time!r}")


def _of_epochs(folder: RunFolder, plan: Plan, events: Sequence[Event]) -> Iterator[LoggedValue]:
    if not is_there(folder.metrics_path):
        return
    columns, calendar = plan.kind.columns, plan.calendar
    shown = [name for name, column in columns.items() if column.kind != "text" and name not in _OF_THE_PLAN]
    times = {event.epoch: event.time for event in events if isinstance(event, Epoch)}
    rows = read_metrics(folder.metrics_path, is_growing=True)
    for row in rows:
        epoch = int(row["epoch"])
        if epoch not in times:
            if row is rows[-1] and not folder.is_done():
                return  # its event is written next
            raise UserError(
                f"metrics.csv of {folder.path} has epoch {epoch}, but events/rank_0.jsonl does not",
                fix="copy the run again from where it was made",
            )
        rate = learning_rate(plan.optimizer, calendar, int(row["steps_done"]) - 1)
        yield LoggedValue(epoch, times[epoch], "learning_rate", rate)
        for name in shown:
            if row.get(name):
                yield LoggedValue(epoch, times[epoch], name, _number(row[name]))


def _of_evaluations(folder: RunFolder, events: Sequence[Event]) -> Iterator[LoggedValue]:
    """Values of the initial weights, the test split and other sets; val after each epoch is in metrics.csv."""
    times = {(event.epoch, event.set): event.time for event in events if isinstance(event, Evaluation)}
    for row in read_evaluations(folder, is_growing=True):
        is_in_metrics = row.set == "val" and row.epoch > 0
        if not is_in_metrics and row.measure != "num_seeds" and (row.epoch, row.set) in times:
            yield LoggedValue(row.epoch, times[row.epoch, row.set], _name(row), row.value)


def _name(row: Evaluated) -> str:
    return f"{row.set}_{row.measure}"


def _number(text: str) -> float:
    return {"true": 1.0, "false": 0.0}[text] if text in ("true", "false") else float(text)


def _order(point: LoggedValue) -> tuple[float, int, str]:
    return point.time, point.step, point.name


def _refuse_doubles(folder: RunFolder, points: Sequence[LoggedValue]) -> None:
    doubled = sorted(name for (_, name), count in Counter((p.step, p.name) for p in points).items() if count > 1)
    if doubled:
        raise UserError(
            f"{folder.path} has two measures called {doubled[0]}: one in metrics.csv, one of an evaluation set",
            fix="give the evaluation set of your task another name",
        )


def _tags(
    folder: RunFolder, plan: Plan, outcome: Outcome | None, attempts: Sequence[Attempt], verified: str | None
) -> dict[str, str]:
    provenance, params = folder.read_provenance(), flat(plan)
    jobs = [*(job.job_id for job in folder.jobs()), *(attempt.job_id for attempt in attempts)]
    code = None if provenance is None else provenance.code
    found = {
        "dataset": plan.dataset.name,
        "synthetic": str(plan.dataset.synthetic).lower(),
        "task": plan.kind.name,
        "model": str(params.get("model.kind", "")),
        "scheme": plan.sync.scheme,
        "seed": str(plan.seed),
        "hosts": ", ".join(dict.fromkeys(attempt.hostname for attempt in attempts)),
        "attempts": str(len(attempts)),
        "job_ids": ", ".join(dict.fromkeys(job for job in jobs if job)),
        "code_commit": "" if code is None else code.commit + ("-dirty" if code.dirty else ""),
        "status": "unfinished" if outcome is None else outcome.status,
        "verify": verified or "",
    }
    return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Target:
    """Where to write. `place`: a folder, or MLflow's tracking URI; None: the tracker's own default."""

    project: str
    place: str | None = None
    online: bool = False  # wandb only


@dataclass(frozen=True, slots=True)
class Change:
    """What an export of one run does."""

    run: str
    how: Literal["new", "added to", "written anew", "unchanged"]
    num_points: int  # that are written
    place: str


class Tracker(Protocol):
    """Writes runs. Each module here says how an export that is repeated doubles nothing."""

    def planned(self, run: TrackerRun) -> Change:
        """What `write` would do; nothing is written. Raises a `UserError` where names collide."""

    def write(self, run: TrackerRun) -> None:
        """Write a run to the tracker."""


def open_tracker(name: str, target: Target) -> Tracker:
    """The writer for the tracker called `name`; `UserError` if there is none, or its packages are not installed."""
    if name not in PACKAGES:
        raise UserError(f"--to {name} is no tracker; {did_you_mean(name, PACKAGES)}", fix=f"--to {'|'.join(PACKAGES)}")
    missing = [package for package in PACKAGES[name] if not _is_installed(package)]
    if missing:
        raise UserError(
            f"--to {name} needs {', '.join(missing)}, which this Python does not have",
            fix=f"pip install 'graphmill[{name}]', or {' '.join(['pip install', *missing])}",
        )
    if target.online and name != "wandb":
        raise UserError(f"--online is for wandb, and --to is {name}", fix="leave --online out")
    tracker: Tracker = import_module(f"graphmill.report.export.{name}").open_target(target)
    return tracker


def _is_installed(package: str) -> bool:
    """mlflow has all of mlflow-skinny."""
    return any(installed_version(name) is not None for name in (package, package.removesuffix("-skinny")))
