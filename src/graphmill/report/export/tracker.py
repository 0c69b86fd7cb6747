"""What a writer for a tracker is, and which there are."""

from dataclasses import dataclass
from importlib import import_module
from typing import Final, Literal, Protocol

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.base.versions import installed_version
from graphmill.report.export.tracker_run import TrackerRun

PACKAGES: Final = {
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow-skinny", "sqlalchemy", "alembic"),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
}
"""The trackers, and the packages that each needs; any of them as the optional extra of that name."""


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
