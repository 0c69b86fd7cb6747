"""Code that a run names and the person has not run on this machine: asked for once, before anything imports it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphmill.base.errors import UserError
from graphmill.runtime.trust import Code, agree, remember, unnamed

if TYPE_CHECKING:
    from graphmill.record.run_folder import RunFolder


def agree_to_code(folder: "RunFolder", trust: Sequence[str] | None = None) -> None:
    """See to it that the person has named all that the run's plan names, here and in what is started from here."""
    agree(folder.plan_path, folder.code(), trust or (), _ask)


def agree_to_job(folder: "RunFolder") -> None:
    """See to it that the person has named the code of the job that the run was submitted with, to submit it again."""
    from graphmill.cluster.jobs.submit import code_of_job, refuse_foreign_job

    try:
        refuse_foreign_job(folder)
    except UserError as refused:
        new = unnamed(code_of_job(folder))
        _ask(folder.path, new, refused)
        remember(new)


def _ask(path: Path, codes: Sequence[Code], refused: UserError) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise refused
    typer.echo(f"{path} names what you have not run on this machine:", err=True)
    for target in dict.fromkeys(code.target for code in codes):
        typer.echo(f"  {target}", err=True)
    typer.echo("To go on is to run it, with the options that stand there. You will not be asked again.", err=True)
    if not typer.confirm("Run it?", default=False, err=True):
        raise refused
