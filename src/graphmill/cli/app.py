"""The tree of commands."""

import sys
import traceback
from typing import Annotated

import typer

import graphmill
from graphmill.cli import (
    bench,
    bottleneck,
    data,
    devcluster,
    doctor,
    launch,
    list_runs,
    pipeline,
    plan,
    predict,
    pull,
    reports,
    scaling,
    script,
    stage,
    stop,
    study,
    submit,
    train,
    verify,
    watch,
)
from graphmill.cli.tree import Commands, tell_bug

app = typer.Typer(
    name="graphmill",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: it starts fast, and reads the same in a log, a test and the reference
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)
for module in (
    data,
    stage,
    plan,
    train,
    predict,
    launch,
    study,
    pipeline,
    script,
    submit,
    watch,
    stop,
    list_runs,
    pull,
    reports,
    scaling,
    bottleneck,
    verify,
    devcluster,
    doctor,
    bench,
):
    module.register(app)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"graphmill {graphmill.__version__}")
        raise typer.Exit


@app.callback()
def graphmill_(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train graph neural networks, from a laptop to a Slurm cluster.

    \b
    Example:
      graphmill train debian-packages-sage --ranks 2
      graphmill merge && graphmill pareto && graphmill figures

    Exit status: 0 done; 1 it ran, and the answer is no; 2 the request was wrong; 75 out of time, resume me.
    """


def main() -> None:
    """The entry point: what escapes the commands is a bug of ours, and is reported as one."""
    try:
        app()
    except Exception:  # noqa: BLE001  # the outermost frame: whatever comes here is a bug, and is reported as one
        traceback.print_exc()
        tell_bug()
        sys.exit(1)
