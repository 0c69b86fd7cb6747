"""`watch`: what runs do, shown until they end."""

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.base import exits
from graphmill.base.foreign import in_one_line
from graphmill.cli.options import Json, LogsRoot
from graphmill.cli.show import print_json, print_line

if TYPE_CHECKING:
    from rich.console import Console, Group

    from graphmill.cluster.pipeline_status import PipelineWatcher
    from graphmill.cluster.status import RunView, Watcher

_log = logging.getLogger(__name__)

MIN_INTERVAL_S = 1.0
_MAX_TAIL = 8
_STYLES = {
    **dict.fromkeys(("running", "starting", "closing"), "cyan"),
    "waiting": "yellow",
    "done": "green",
    "planned": "dim",
    **dict.fromkeys(("out_of_time", "preempted", "stopped"), "yellow"),
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(watch)


def watch(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|JOB]",
            show_default=False,
            help="A run, a folder of runs, or the number of a job; else all that run or wait, or the latest.",
        ),
    ] = None,
    logs_root: LogsRoot = Path("logs"),
    interval: Annotated[
        float, typer.Option("--interval", metavar="S", min=MIN_INTERVAL_S, help="Seconds between two looks.")
    ] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    json: Json = False,
) -> None:
    """Watch runs until they end.

    State, why a job waits, progress, the tail of the log; lines instead of a table without a terminal. Slurm is queried
    once per interval, however many runs there are; if it has forgotten a job, or is down, the run folder is used.
    Ctrl-C ends the watching, not the runs. Exit status 0: all are done; 75: some stopped and can be continued; 1: some
    failed, or are damaged. With --once, only runs that have ended, or are damaged, count.

    \b
    Example:
      graphmill watch
      graphmill watch 4711
      graphmill watch logs/sync-ablation --once --json
      graphmill watch logs/neighbours
    """
    from graphmill.cluster.follow import exit_status
    from graphmill.record.endings import ENDINGS

    watcher = _watcher(run, logs_root)
    try:
        views = _look_once(watcher, json=json) if once else _follow(watcher, interval, json=json)
    except KeyboardInterrupt:
        _log.info("no longer watching; the run continues (`graphmill stop` ends it)")
        raise typer.Exit(exits.INTERRUPTED) from None
    code = exit_status(view.state for view in views if not once or view.state in {*ENDINGS, "damaged"})
    if code:
        raise typer.Exit(code)


def _look_once(watcher: "Watcher | PipelineWatcher", *, json: bool) -> "Sequence[RunView]":
    views = watcher.look()
    _tell_troubles(watcher.queue.troubles)
    if json:
        print_json(_json(views, watcher.queue.troubles))
    else:
        _print_once(views)
    return views


def _watcher(run: str | None, logs_root: Path) -> "Watcher | PipelineWatcher":
    from graphmill.cli.find_run import find_by_name_or_job, latest_run, named_pipeline
    from graphmill.cluster.status import Watcher
    from graphmill.record.run_folder import find_runs_and_commands

    pipeline = named_pipeline(run, logs_root)
    if pipeline is not None:
        from graphmill.cluster.jobs.pipeline_record import PipelineFolder
        from graphmill.cluster.pipeline_status import PipelineWatcher

        return PipelineWatcher(PipelineFolder(pipeline.path.absolute()), Watcher([]))
    if run is not None:
        return Watcher(find_by_name_or_job(run, logs_root), root=logs_root)
    everything = Watcher(find_runs_and_commands(logs_root), root=logs_root)
    views = everything.look()
    unknown = "unresponsive" if everything.queue.is_silent else None  # Slurm gives no answer: such a run may live
    living = {view.folder for view in views if view.is_alive or view.state == unknown}
    folders = [folder for folder in everything.folders if folder.path in living] or [latest_run(logs_root)]
    return Watcher(folders, root=logs_root, queue=everything.queue)


def _follow(watcher: "Watcher | PipelineWatcher", interval: float, *, json: bool) -> "Sequence[RunView]":
    if not json and sys.stdout.isatty():
        return _follow_on_terminal(watcher, interval)
    from graphmill.cluster.follow import looks, plain_line, what_counts

    told: dict[Path, str] = {}
    troubles: tuple[str, ...] = ()
    views: Sequence[RunView] = ()
    for views in looks(watcher, interval):
        if watcher.queue.troubles != troubles:
            troubles = watcher.queue.troubles
            _tell_troubles(troubles or ("Slurm answers again",))
        if json:
            print_json(_json(views, troubles))
        for view in () if json else views:
            line = plain_line(view)
            if told.get(view.folder) != what_counts(view):
                told[view.folder] = what_counts(view)
                print_line(f"{time.strftime('%H:%M:%S')}  {line}")
    return views


def _follow_on_terminal(watcher: "Watcher | PipelineWatcher", interval: float) -> "Sequence[RunView]":
    from rich.console import Console
    from rich.live import Live

    from graphmill.cluster.follow import looks

    console = Console()
    views: Sequence[RunView] = ()
    with Live(console=console, auto_refresh=False) as live:
        for views in looks(watcher, interval):
            live.update(drawn(views, watcher.queue.troubles, console, height=console.height), refresh=True)
    return views


def drawn(views: "Sequence[RunView]", troubles: Sequence[str], console: "Console", *, height: int) -> "Group":
    """A table of the runs, why they wait or failed, and the tail of the log if it is one run."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from graphmill.cli.fitting import fitting
    from graphmill.cluster.status import tail

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("run", "job", "state", "time", "hosts"):
        table.add_column(name, overflow="fold")
    for name in ("epoch", "loss", "seeds/s", "MiB"):
        table.add_column(name, justify="right", no_wrap=True)
    room = max(3, height - 8 - len(troubles))
    shown = _most_telling(views, room)
    for view in shown:
        cells = [Text(in_one_line(cell)) for cell in _cells(view)]
        cells[2].stylize(_STYLES.get(view.state, "bold red"))
        table.add_row(*cells)
    below = [Text(f"… and {len(views) - len(shown)} more")] if len(shown) < len(views) else []
    notes = _notes(shown)
    below += [Text(in_one_line(note)) for note in notes[: max(0, room - len(shown))]]
    if len(views) == 1 and views[0].log is not None:
        below += [Text(""), Text(in_one_line(str(views[0].log)), style="dim")]
        below += [Text(line, overflow="ellipsis", no_wrap=True) for line in tail(views[0].log, _MAX_TAIL)]
    below += [Text(f"{in_one_line(trouble)}; it is asked again", style="yellow") for trouble in troubles]
    below.append(Text(f"{time.strftime('%H:%M:%S')}  Ctrl-C ends the watching, not the runs", style="dim"))
    return Group(fitting(table, console), *below)


def _most_telling(views: "Sequence[RunView]", room: int) -> "Sequence[RunView]":
    """Choose the views that fit: those that run, then those that failed, those that wait, those that ended."""
    if len(views) <= room:
        return views
    order = {"running": 0, "starting": 0, "closing": 0, "failed": 1, "unfinished": 1, "waiting": 2}
    return sorted(views, key=lambda view: order.get(view.state, 3))[:room]


def _notes(views: "Sequence[RunView]") -> list[str]:
    """Why runs wait or ended: each text once, with the runs that it is true of."""
    runs: dict[tuple[str, str, bool], list[str]] = {}
    for view in views:
        if view.detail:
            runs.setdefault((view.detail, view.advice, view.is_hopeless), []).append(view.job_id or view.run)
    notes = []
    for (detail, advice, is_hopeless), names in runs.items():
        who = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        never = "will never start: " if is_hopeless else ""
        notes.append(f"{who}: {never}{detail}{f' → {advice}' if advice else ''}")
    return notes


def _cells(view: "RunView") -> list[str]:
    from graphmill.cluster.follow import clock

    progress = view.progress
    return [
        view.run,
        view.job_id or "-",
        view.state,
        clock(view.elapsed_s, view.limit_s),
        view.hosts or "-",
        view.epoch_of_all,
        _number(progress.loss if progress else None, ".4f"),
        _number(progress.seeds_per_s if progress else None, ",.0f"),
        _number(progress.peak_rss_mib if progress else None, ",.0f"),
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _print_once(views: "Sequence[RunView]") -> None:
    from graphmill.cluster.follow import plain_line

    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        console.print(drawn(views, (), console, height=10_000))
        return
    for view in views:
        print_line(plain_line(view))


def _json(views: "Sequence[RunView]", troubles: Sequence[str]) -> dict[str, object]:
    return {"runs": list(views), "troubles": list(troubles)}


def _tell_troubles(troubles: Sequence[str]) -> None:
    for trouble in troubles:
        _log.info(trouble)
