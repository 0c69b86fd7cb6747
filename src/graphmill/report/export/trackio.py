"""Trackio: one run in the project `target.project`, in its own SQLite database in `target.place`, else `TRACKIO_DIR`.

Exported again, a run that has not changed is left alone, by the checksum in its config; a changed one is deleted and
written whole: Trackio adds a second point where one has the same step. It is written through `SQLiteStorage.bulk_log`,
as Trackio's own importers do: `trackio.log` stamps points with the time of the export.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from graphmill.base.errors import UserError
from graphmill.report.export.tracker import Change, Target, TrackerRun

_CONTENT: Final = "graphmill_content"
_IDENTITY: Final = "graphmill_identity"


def open_target(target: Target) -> "Project":
    """The project in the folder `target.place`, which Trackio reads from the environment when it is imported."""
    if target.place is not None:
        os.environ["TRACKIO_DIR"] = str(Path(target.place).absolute())
    return Project(target.project)


@dataclass(frozen=True, slots=True)
class Project:
    """One project of Trackio's store."""

    project: str

    def planned(self, run: TrackerRun) -> Change:
        """Compare the config of the run that is there."""
        known, place = self._known(run), self._place()
        if known is None:
            return Change(run.name, "new", len(run.points), place)
        if known.get(_IDENTITY) != run.identity:
            raise UserError(
                f"the Trackio project {self.project} has another run called {run.name}",
                fix="give --project, or delete that run in Trackio",
            )
        if known.get(_CONTENT) == run.content():
            return Change(run.name, "unchanged", 0, place)
        return Change(run.name, "written anew", len(run.points), place)

    def write(self, run: TrackerRun) -> None:
        """Write it whole, in place of what was there."""
        from trackio.sqlite_storage import SQLiteStorage

        if self.planned(run).how == "unchanged":
            return
        steps = [(step, list(points)) for step, points in groupby(run.points, key=lambda point: point.step)]
        SQLiteStorage.delete_run(self.project, run.name)
        SQLiteStorage.bulk_log(
            project=self.project,
            run=run.name,
            run_id=run.identity,
            metrics_list=[{point.name: point.value for point in points} for _, points in steps],
            steps=[step for step, _ in steps],
            timestamps=[datetime.fromtimestamp(points[0].time, UTC).isoformat() for _, points in steps],
            config={**run.params, **run.tags, _IDENTITY: run.identity, _CONTENT: run.content()},
        )

    def _known(self, run: TrackerRun) -> Mapping[str, Any] | None:
        """The config of the run of that name; None if there is none."""
        from trackio.sqlite_storage import SQLiteStorage

        if not SQLiteStorage.get_project_db_path(self.project).exists():
            return None
        found: Mapping[str, Any] | None = SQLiteStorage.get_run_config(self.project, run.name)
        return found

    def _place(self) -> str:
        from trackio.sqlite_storage import SQLiteStorage

        return str(SQLiteStorage.get_project_db_path(self.project))
