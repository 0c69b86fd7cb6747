"""Weights & Biases: an offline run `<folder>/wandb/offline-run-<time>-<identity>`, for `wandb sync`; or online.

W&B can neither append to an offline run nor replace a point, so an export writes the run whole, and removes what it
wrote of the same run before. `graphmill.json` in its folder has a checksum, by which a run that has not changed is left
alone. The id of the W&B run is the same in every export. Steps of W&B only rise: the test measures, which are those of
the best epoch, are in the summary only. `--online` resumes the run of that id, of which W&B ignores steps that it has;
this was not tried, for want of a W&B server.
"""

import shutil
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal

import wandb
from pydantic import BaseModel

from graphmill.base.files import write_json
from graphmill.record.documents import read_document
from graphmill.report.export.tracker import Change, LoggedValue, Target, TrackerRun

_NOTE: Final = "graphmill.json"


class Note(BaseModel):
    """Note beside what W&B writes: what it was made of."""

    content: str


def open_target(target: Target) -> "Runs":
    """The runs below the folder `target.place`."""
    return Runs(Path(target.place or "."), target.project, "online" if target.online else "offline")


@dataclass(frozen=True, slots=True)
class Runs:
    """W&B's `dir`, and one project."""

    folder: Path
    project: str
    mode: Literal["online", "offline"]

    def planned(self, run: TrackerRun) -> Change:
        """Look for what was written before; W&B itself is not asked."""
        earlier = self._earlier(run)
        place = str(self.folder / "wandb")
        if any(_content_of(folder) == run.content() for folder in earlier):
            return Change(run.name, "unchanged", 0, place)
        return Change(run.name, "written anew" if earlier else "new", len(run.points), place)

    def write(self, run: TrackerRun) -> None:
        """Write the run whole, then remove what was there of it."""
        earlier = self._earlier(run)
        if any(_content_of(folder) == run.content() for folder in earlier):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        into = wandb.init(
            project=self.project,
            id=run.identity,
            name=run.name,
            dir=str(self.folder),
            mode=self.mode,
            resume="allow" if self.mode == "online" else None,
            config={**run.params, "tags": dict(run.tags)},
            settings=_settings(),
        )
        written = Path(into.settings.sync_dir)
        for step, points in groupby(_risen(run), key=lambda point: point.step):
            values = list(points)
            into.log({point.name: point.value for point in values} | {"_timestamp": values[0].time}, step=step)
        for point in _of_the_best(run):
            into.summary[point.name] = point.value
        into.finish(exit_code=0 if run.ending in (None, "done") else 1)
        write_json(written / _NOTE, {"content": run.content()})
        for folder in earlier:
            if folder != written:
                shutil.rmtree(folder)

    def _earlier(self, run: TrackerRun) -> list[Path]:
        found = self.folder.glob(f"wandb/*run-*-{run.identity}")
        return sorted(folder for folder in found if not folder.is_symlink())


def _settings() -> Any:  # noqa: ANN401  # wandb's own
    """Settings that record nothing of this machine, which is not the one that the run trained on."""
    return wandb.Settings(
        silent=True, console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True, disable_code=True
    )


def _content_of(folder: Path) -> str:
    note = folder / _NOTE
    return read_document(note, Note, f"remove {folder}").content if note.exists() else ""


def _risen(run: TrackerRun) -> list[LoggedValue]:
    """All points whose step is no lower than that of those before, by step."""
    return sorted((point for point in run.points if not _is_of_the_best(point)), key=lambda point: point.step)


def _of_the_best(run: TrackerRun) -> list[LoggedValue]:
    return [point for point in run.points if _is_of_the_best(point)]


def _is_of_the_best(point: LoggedValue) -> bool:
    return point.name.startswith("test_")
