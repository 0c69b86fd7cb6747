"""`verify`: is a run whole and true to its plan?"""

from pathlib import Path
from typing import Annotated

import typer

from graphmill.base import exits
from graphmill.cli.options import Json, LogsRoot
from graphmill.cli.show import print_json, print_line, print_table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(verify)


def verify(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            show_default=False,
            help="A run id, a run folder, or a folder of runs; else the latest run.",
        ),
    ] = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Check that runs are whole and true to their plan.

    Files, outcome, epochs, steps, seeds, losses, replicas, ranks, data. Exit status 1 where a check fails.

    \b
    Example:
      graphmill verify
      graphmill verify logs/demo --json
    """
    from graphmill.cli.find_run import find_several
    from graphmill.cluster.verify import verify_run

    results = [(folder, verify_run(folder)) for folder in find_several(run, logs_root)]
    is_true = all(check.result != "fail" for _, checks in results for check in checks)
    if json:
        print_json({"ok": is_true, "runs": [{"run": folder.path, "checks": checks} for folder, checks in results]})
    else:
        for folder, checks in results:
            if len(results) > 1:
                print_line(str(folder.path))
            print_table(("check", "result", "detail"), [[check.name, check.result, check.detail] for check in checks])
    if not is_true:
        raise typer.Exit(exits.ANSWER_IS_NO)
