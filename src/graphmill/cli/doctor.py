"""`doctor`: what this machine has, and what would fail on it."""

import os
from pathlib import Path

import typer

from graphmill.base import exits
from graphmill.cli.options import DatasetRoot, Json, LogsRoot, resolved_dataset_root
from graphmill.cli.show import print_json, print_line, print_table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(root: DatasetRoot = None, logs_root: LogsRoot = Path("logs"), json: Json = False) -> None:
    """Show what this machine has, and what would fail.

    Cores, memory, GPUs, backends, versions, disk. Exit status 1 if something needed is missing.

    \b
    Example:
      graphmill doctor
      graphmill doctor --json --dataset-root /scratch/data
    """
    from graphmill.runtime.checks import examine

    findings = examine(dataset_root=resolved_dataset_root(root), logs_root=logs_root, environ=os.environ)
    healthy = all(finding.result != "fail" for finding in findings)
    if json:
        print_json({"ok": healthy, "findings": findings})
    else:
        rows = [[finding.name, finding.result, finding.detail] for finding in findings]
        print_table(("what", "result", "detail"), rows)
        troubles = [finding for finding in findings if finding.result != "ok"]
        for finding in troubles:
            print_line(f"{finding.result}: {finding.name}: what would fail: {finding.would_fail}")
        if not troubles:
            print_line("nothing would fail")
    if not healthy:
        raise typer.Exit(exits.ANSWER_IS_NO)
