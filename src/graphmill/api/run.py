"""A run as a value: what its folder says, and what can be done with it."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graphmill.base import exits
from graphmill.base.errors import UserError

if TYPE_CHECKING:
    import polars

    from graphmill.record.documents import Outcome
    from graphmill.record.run_folder import RunFolder
    from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)
_ADVICE: Final = " -> "  # as outcome.json has a rank's two sentences in one line


class EndedError(UserError):
    """What was started has ended otherwise than done. `exit_status`: that of the command; `path`: of the run."""

    def __init__(self, message: str, *, fix: str, exit_status: int, path: Path) -> None:
        super().__init__(message, fix=fix)
        self.exit_status = exit_status
        self.path = path


@dataclass(frozen=True)
class Run:
    """A run folder. It is read anew each time; a notebook shows its scores and learning curves.

    Raises a `UserError` if `path` is no run folder.
    """

    path: Path

    def __post_init__(self) -> None:
        from graphmill.base.arguments import path_of
        from graphmill.record.run_folder import RunFolder

        object.__setattr__(self, "path", path_of("path", self.path))
        RunFolder.open(self.path)

    @property
    def _folder(self) -> "RunFolder":
        from graphmill.record.run_folder import RunFolder

        return RunFolder(self.path)

    @property
    def plan(self) -> "Plan":
        """Plan of the run, as in plan.json."""
        return self._folder.read_plan()

    @property
    def summary(self) -> dict[str, Any]:
        """How it ended, as in outcome.json: `status`, `epochs`, the measures `best` (validation) and `test`, `wall_s`.

        Of one that has not ended only `status`, as `graphmill watch` says it.
        """
        from graphmill.cluster.status import Watcher
        from graphmill.record.documents import json_of

        outcome = self._folder.read_outcome()
        if outcome is None:
            return {"status": Watcher([self._folder]).look()[0].state}
        found: dict[str, Any] = json_of(outcome)
        return found

    @property
    def metrics(self) -> "polars.DataFrame":
        """The rows of metrics.csv: one per epoch, with a type for each column; none before the first epoch is over."""
        import polars

        from graphmill.report.table import load_runs

        tables = load_runs([self._folder])
        return tables[0].frame if tables else polars.DataFrame()

    @property
    def evaluations(self) -> "polars.DataFrame":
        """The rows of evaluations.csv: `epoch`, `set`, `measure`, `value`."""
        import polars

        from graphmill.record.evaluations import COLUMNS, read_evaluations

        rows = read_evaluations(self._folder, is_growing=True)
        return polars.DataFrame({name: [getattr(row, name) for row in rows] for name in COLUMNS})

    def evaluate(self, **choices: Any) -> dict[str, Any]:  # noqa: ANN401  # those of the function
        """The measures of its weights, as `graphmill.evaluate(run, …)`."""
        from graphmill.api.using import evaluate

        return evaluate(self.path, **choices)

    def predict(self, **choices: Any) -> "polars.DataFrame":  # noqa: ANN401  # those of the function
        """Return the run's predictions, as `graphmill.predict(run, …)` does."""
        from graphmill.api.using import predict

        return predict(self.path, **choices)

    def __fspath__(self) -> str:
        """The run's path, so that a run serves as a path: `graphmill.load(run)`, `graphmill.compare([run, other])`."""
        return os.fspath(self.path)

    def _repr_html_(self) -> str:
        from graphmill.report.notebook import run_cell

        return run_cell(self._folder)


def ended(folder: "RunFolder", code: int) -> Run:
    """The run that is done, with a message that says so. Raises an `EndedError` if it is not."""
    outcome = folder.read_outcome()
    if code == exits.DONE:
        if outcome is not None:
            _log.info(done_text(folder, outcome))
        return Run(folder.path)
    from graphmill.cluster.status import Watcher

    view = Watcher([folder]).look()[0]
    what, _, fix = view.detail.partition(_ADVICE) if view.state == "bad_request" else (view.detail, "", "")
    raise EndedError(f"{folder.path}: {what}", fix=fix or view.advice, exit_status=code, path=folder.path)


def done_text(folder: "RunFolder", outcome: "Outcome") -> str:
    """What a run that is done took, in a line."""
    number = len(folder.attempts())
    of = f" in attempt {number}" if number > 1 else ""
    return f"{folder.path}: {outcome.epochs} epoch{'' if outcome.epochs == 1 else 's'}, {outcome.wall_s:.1f} s{of}"
