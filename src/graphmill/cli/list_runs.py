"""`list`: all runs of a logs root and what they do."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphmill.base.errors import UserError
from graphmill.cli.options import Json, LogsRoot
from graphmill.cli.show import Cell, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.cluster.status import RunView

_log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list")(list_)


def list_(logs_root: LogsRoot = Path("logs"), json: Json = False) -> None:
    """List all runs: state, job, epoch, and best score.

    Slurm is queried once for all of them; if it does not know a job, the run folder is used. `--json` has which of them
    was used, and more.

    \b
    Example:
      graphmill list
      graphmill list --logs-root /scratch/logs --json
    """
    from graphmill.cluster.status import Watcher
    from graphmill.record.run_folder import find_runs_and_commands

    if not logs_root.is_dir():
        raise UserError(f"{logs_root} is not a folder", fix="give --logs-root, or run something first")
    watcher = Watcher(find_runs_and_commands(logs_root), root=logs_root)
    views = watcher.look()
    for trouble in watcher.queue.troubles:
        _log.info(trouble)
    if json:
        print_json({"runs": views, "troubles": watcher.queue.troubles})
        return
    if not views:
        print_line(f"{logs_root} holds no runs")
        return
    rows: list[list[Cell]] = [
        [view.run, view.state, view.job_id or None, view.epoch_of_all, *_score(view)] for view in views
    ]
    print_table(["run", "state", "job", "epoch", "best score", "on validation"], rows)
    for view in views:
        for words in filter(None, (view.detail, view.begins_with and f"begins with {view.begins_with}")):
            print_line(f"{view.run}: {words}")


def _score(view: "RunView") -> tuple[Cell, Cell]:
    """The best score so far, and which measure it is."""
    progress = view.progress
    return (None, None) if progress is None or progress.best is None else (round(progress.best, 4), progress.measure)
