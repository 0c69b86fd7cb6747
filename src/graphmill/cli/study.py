"""`study run|submit|list`: one experiment in many cells."""

from pathlib import Path
from typing import Annotated

import typer

from graphmill.api.planning import make_plan
from graphmill.cli.job_options import JobOptions
from graphmill.cli.options import After, DatasetRoot, Json, LogsRoot, takes_groups
from graphmill.cli.recipes import show_recipes
from graphmill.cli.show import print_json, print_line, print_table
from graphmill.cli.submit_options import SubmitOptions, submit_remotely
from graphmill.cli.tree import Commands
from graphmill.cli.words import WordsCommand

StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="A YAML file, or the name of a recipe.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode=None)
    group.command("run")(run)
    group.command("submit", cls=WordsCommand)(takes_groups(submit))
    group.command("list")(list_)
    group.callback()(study)
    app.add_typer(group, name="study")


def study() -> None:
    """Run one experiment in many cells.

    \b
    Example:
      graphmill study run study-demo
      graphmill study submit study-demo --at-once 4
    """


def run(
    name: StudyName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and stop before anything runs.")] = False,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
) -> None:
    """Run the cells of a study, one after another.

    Done ones are skipped, interrupted ones continued. Every cell is planned before the first one starts. A cell that
    fails is recorded and the study continues (exit status 1 at the end); Ctrl-C stops the study (75), and the same
    command continues from there.

    \b
    Example:
      graphmill study run study-demo --logs-root logs

    \b
    A study file:
      name: sync-ablation
      experiment: debian-packages-sage
      set: {train.ranks: 4}
      vary: {train.sync.scheme: [deferred_allreduce, local_sgd], train.sync.every: [1, 4, 16]}
      cells: [{name: diloco, train.sync.scheme: diloco, train.sync.every: 16}]
      seeds: [1, 2, 3]
    """
    from graphmill.cluster.launch.study import refuse_wrong_cells, run_study, runs_of_study
    from graphmill.record.run_folder import RunFolder
    from graphmill.spec.study import load_study

    loaded = load_study(name)
    if dry_run:
        refuse_wrong_cells(loaded)
        _print_cells(name, logs_root, json=False)
        return
    code = run_study(
        loaded,
        logs_root=logs_root,
        planner=lambda experiment, run_id: make_plan(experiment, root, run_id, to_train=True, logs_root=logs_root),
    )
    if code:
        raise typer.Exit(code)
    where = "" if logs_root == Path("logs") else f" --logs-root {logs_root}"
    if loaded.kind != "sweep":
        print_line(f"{loaded.name}: done; `graphmill scaling {name}{where}` compares the cells")
        return
    from graphmill.cli.compare import show_comparison
    from graphmill.report.compare import compare

    for table in compare([RunFolder.open(state.folder.path) for state in runs_of_study(loaded, logs_root).states()]):
        show_comparison(table)
    print_line(f"{loaded.name}: done; `graphmill compare {loaded.name}{where}` shows this table again")


def submit(
    ctx: typer.Context,
    name: StudyName,
    *,
    at_once: Annotated[
        int | None,
        typer.Option(
            "--at-once", metavar="N", min=1, show_default=False, help="Cells of the study that run at a time; else all."
        ),
    ] = None,
    pack: Annotated[
        int,
        typer.Option("--pack", metavar="N", min=1, help="Cells that share a job, side by side on its host."),
    ] = 1,
    chain: Annotated[
        str | None,
        typer.Option(
            "--chain",
            metavar="afterok|afterany",
            show_default=False,
            help="One job per cell; each starts when the one before it succeeded, or ended.",
        ),
    ] = None,
    after: After = None,
    options: SubmitOptions,
    job: JobOptions,
) -> None:
    """Submit the cells of a study as an array job of Slurm.

    Each task of the array is one cell, a run of its own. Cells that ask for other hosts than the rest get an array
    of their own. Done cells are skipped, and those whose jobs wait or run.

    \b
    Example:
      graphmill study submit study-demo --at-once 4 --time 00:30:00
      graphmill study submit study-demo --chain afterok --dry-run
      graphmill study submit my-study.yaml --on me@login.cluster:projects/gnn
    """
    overrides = [*(options.override or []), *job.overrides()]
    submit_remotely(ctx, ["study", "submit"], [name], overrides, options)
    from graphmill.cli.study_submit import submit_study

    submit_study(name, options, overrides=overrides, at_once=at_once, pack=pack, chain=chain, after=after)


def list_(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY", show_default=False, help="A YAML file or a recipe; all such recipes if left out."
        ),
    ] = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """List the cells of a study, or the recipes of studies.

    \b
    Example:
      graphmill study list
      graphmill study list study-demo --json
    """
    if name is not None:
        _print_cells(name, logs_root, json=json)
        return
    show_recipes("study", json=json)


def _print_cells(name: str, logs_root: Path, *, json: bool) -> None:
    from graphmill.cluster.launch.study import runs_of_study
    from graphmill.spec.study import expand, load_study

    study = load_study(name)
    states = runs_of_study(study, logs_root).states()
    if json:
        cells = [
            {"cell": cell.name, "status": state.status, "run": state.folder.path, "overrides": cell.overrides}
            for cell, state in zip(expand(study), states, strict=True)
        ]
        print_json({"study": name, "cells": cells})
        return
    rows = [[state.name, state.status, str(state.folder.path)] for state in states]
    print_table(("cell", "status", "folder"), rows, title=f"{len(states)} cells of {name}")
