"""`stop`: end a run so that it can be resumed later."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.base.errors import UserError
from graphmill.cli.options import LogsRoot
from graphmill.cli.show import print_line

if TYPE_CHECKING:
    from graphmill.record.run_folder import RunFolder


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(stop)


def stop(
    run: Annotated[str, typer.Argument(metavar="RUN|JOB", help="A run, a folder of runs, or the number of a job.")],
    *,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for a checkpoint.")] = False,
    grace: Annotated[
        float, typer.Option("--grace", metavar="S", min=0, help="Seconds to save and leave; then it is cancelled.")
    ] = 120.0,
    logs_root: LogsRoot = Path("logs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be stopped.")] = False,
) -> None:
    """Stop a run: its ranks save a checkpoint and leave.

    Pending jobs are cancelled. A stopped run does not resume automatically; --resume continues it.

    \b
    Example:
      graphmill stop logs/my-run-20261121T081500Z
      graphmill stop 4711 --now
    """
    from graphmill.cluster.stop import find_targets, refuse_neighbours
    from graphmill.cluster.stop import stop as stop_targets

    targets = find_targets(_named(run, logs_root))
    living = [target for target in targets if target.is_alive]
    if not living:
        names = ", ".join(str(target.folder.path) for target in targets[:3])
        raise UserError(f"nothing of {names} waits or runs", fix="`graphmill list` shows what does")
    refuse_neighbours(living)
    for target in living:
        print_line(f"{target.folder.path}: {target.describe()}")
    if dry_run:
        print_line("nothing was stopped")
        return
    stop_targets(living, now=now, grace_s=grace)
    for target in living:
        if target.folder.is_command():
            print_line(f"stopped; run it again with `graphmill submit --resume {target.folder.path}`")
            continue
        if not target.folder.plan_path.exists():
            print_line(f"{target.folder.path}: stopped; continue with `graphmill pipeline submit`")
            continue
        verb = "submit" if target.jobs else "train"
        print_line(f"stopped; continue with `graphmill {verb} --resume {target.folder.path}`")


def _named(run: str, logs_root: Path) -> "list[RunFolder]":
    """The runs that are named; of a pipeline its own folder, too, since its pending jobs belong to no run yet."""
    from graphmill.cli.find_run import find_by_name_or_job, named_pipeline
    from graphmill.record.run_folder import find_runs

    pipeline = named_pipeline(run, logs_root)
    if pipeline is None:
        return find_by_name_or_job(run, logs_root)
    return [pipeline, *find_runs(pipeline.path)]
