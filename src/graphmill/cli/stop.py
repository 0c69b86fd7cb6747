"""`stop`: end a run so that it can go on later."""

from pathlib import Path
from typing import Annotated

import typer

from graphmill.base.errors import UserError
from graphmill.cli.options import LogsRoot
from graphmill.cli.plan import say
from graphmill.cli.show import print_line


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

    Jobs that wait are cancelled. A stopped run does not go on by itself; --resume continues it.

    \b
    Example:
      graphmill stop logs/my-run-20261121T081500Z
      graphmill stop 4711 --now
    """
    from graphmill.cli.find_run import find_by_name_or_job
    from graphmill.cluster.stop import find_targets
    from graphmill.cluster.stop import stop as stop_targets

    targets = find_targets(find_by_name_or_job(run, logs_root))
    living = [target for target in targets if target.is_alive]
    if not living:
        names = ", ".join(str(target.folder.path) for target in targets[:3])
        raise UserError(f"nothing of {names} waits or runs", fix="`graphmill list` shows what does")
    for target in living:
        print_line(f"{target.folder.path}: {target.in_words()}")
    if dry_run:
        print_line("nothing was stopped")
        return
    stop_targets(living, now=now, grace_s=grace, say=say)
    for target in living:
        verb = "submit" if target.jobs else "train"
        print_line(f"stopped; continue with `graphmill {verb} --resume {target.folder.path}`")
