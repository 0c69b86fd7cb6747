"""`pull`: fetch runs from another machine."""

from pathlib import Path
from typing import Annotated

import typer

from graphmill.base.names import counted
from graphmill.cli.options import SshConfig
from graphmill.cli.show import print_line, print_table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(pull)


def pull(
    source: Annotated[str, typer.Argument(metavar="[USER@]HOST:PATH", help="A logs folder, or one run in it.")],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="The logs folder here.")] = Path("logs"),
    *,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Also checkpoints: whole ones only.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also files that are not graphmill's, such as profiles.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is new, and fetch nothing.")] = False,
    ssh_config: SshConfig = None,
) -> None:
    """Fetch runs from another machine, with rsync over ssh.

    Nothing here is deleted; half-written files, locks and temporary files stay there. Unfinished runs may be fetched
    repeatedly: only what is new is transferred. Then merge, pareto and figures work as for runs of this machine.

    \b
    Example:
      graphmill pull me@perlmutter:/path/to/logs --dry-run
      graphmill pull me@perlmutter:/path/to/logs
      graphmill merge && graphmill pareto && graphmill figures
    """
    from graphmill.cluster.pull import Pull
    from graphmill.cluster.remote import Source

    runs = Pull(Source.parse(source), to, checkpoints, everything, ssh_config).run(dry_run=dry_run)
    if not runs:
        print_line(f"{source} holds no runs")
        return
    told = [run for run in runs if run.state != "unchanged"]
    if told:
        print_table(
            ("run", "here", "files", "ended"),
            [(run.name or source.rpartition("/")[2], run.state, run.num_files, run.is_finished) for run in told],
        )
    counts = {state: sum(run.state == state for run in runs) for state in ("new", "changed", "unchanged")}
    what = ", ".join(f"{number} {state}" for state, number in counts.items())
    print_line(f"{counted(len(runs), 'run')}: {what}{' (nothing fetched: --dry-run)' if dry_run else f', in {to}'}")
