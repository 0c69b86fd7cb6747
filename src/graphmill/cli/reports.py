"""`merge`, `pareto`, `figures`: from runs to a table, a frontier and figures."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from graphmill.base.names import counted
from graphmill.cli.options import Json
from graphmill.cli.show import print_json, print_line, print_table

_log = logging.getLogger(__name__)

_RESULTS = Path("results")
_METRICS = _RESULTS / "metrics.csv"

CommColumn = Annotated[
    str | None,
    typer.Option(
        "--comm-column",
        metavar="COLUMN",
        show_default=False,
        help="The cost, to be small; else modelled_mib_cum_fp32, or measured_mib_cum where nothing is modelled.",
    ),
]
AccColumn = Annotated[
    str | None,
    typer.Option(
        "--acc-column",
        metavar="COLUMN",
        show_default=False,
        help="An accuracy, to be large, or an error, to be small; else the best value of what the task is judged by.",
    ),
]
Runs = Annotated[str, typer.Option("--runs", metavar="GLOB", help="Only runs whose id matches, such as 'ablation/*'.")]
TaskOfRuns = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="TASK",
        show_default=False,
        help="Of the runs: where runs of several tasks were merged, or of a task outside this package,"
        " package.module:KIND.",
    ),
]
Metrics = Annotated[Path, typer.Option("--metrics", metavar="FILE", help="What `merge` wrote.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(merge)
    app.command()(pareto)
    app.command()(figures)


def merge(
    *,
    input_root: Annotated[Path, typer.Option("--input-root", metavar="FOLDER", help="Where run folders are.")] = Path(
        "logs"
    ),
    glob: Annotated[str, typer.Option("--glob", metavar="GLOB", help="Which files below it.")] = "**/metrics.csv",
    layout: Annotated[
        str,
        typer.Option(
            "--layout",
            metavar="LAYOUT",
            help="wide: a row per epoch; long: a row per epoch, evaluation set and measure; or the header of another"
            " program: sync-ablation, multi-node-dcrnn.",
        ),
    ] = "wide",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            show_default=False,
            help="CSV to write, and Parquet next to it; else results/metrics.csv, evaluations.csv, metrics_LAYOUT.csv.",
        ),
    ] = None,
    key_columns: Annotated[
        str | None,
        typer.Option("--key-columns", metavar="A,B,…", show_default=False, help="Columns that identify a row."),
    ] = None,
    json: Json = False,
) -> None:
    """Merge the metrics of all runs into one table, or one for each task.

    Same inputs, same bytes, in whatever order they are found. Runs of several tasks have a file each,
    results/metrics_TASK.csv, and `pareto` and `figures` read all of them.

    \b
    Example:
      graphmill merge --input-root logs --output results/metrics.csv
      graphmill merge --layout long
    """
    from graphmill.report.layouts import merge_as

    keys = [name.strip() for name in key_columns.split(",")] if key_columns else None
    written = merge_as(layout, input_root, pattern=glob, output=output, key_columns=keys)
    if json:
        print_json(written)
        return
    for merged in written:
        held = f"{counted(merged.num_rows, 'row')} of {counted(merged.num_files, 'run')}"
        print_line(f"{merged.csv} and {merged.parquet}: {held}")
        if merged.num_superseded:
            print_line(
                f"{counted(merged.num_superseded, 'row')} left out: superseded by a later attempt, or duplicates"
            )
        for path in merged.original_files:
            print_line(f"{path} has the header of another program (docs/coming-from.md); what it lacks was filled in")
    if len(written) > 1:
        tasks = ", ".join(str(merged.task) for merged in written)
        print_line(f"a table for each task ({tasks}); pareto and figures read them all, or one: --task TASK")


def pareto(
    *,
    metrics: Metrics = _METRICS,
    output_dir: Annotated[Path, typer.Option("--output-dir", metavar="FOLDER", help="Where to write.")] = _RESULTS,
    comm_column: CommColumn = None,
    acc_column: AccColumn = None,
    runs: Runs = "*",
    task: TaskOfRuns = None,
    json: Json = False,
) -> None:
    """Find the accuracy that communication buys.

    A point is on the frontier if no other has both more accuracy (or less error) and less communication.

    \b
    Example:
      graphmill pareto --comm-column measured_mib_cum --runs 'demo/*'
    """
    from graphmill.report.pareto import pareto as find_frontier

    written = find_frontier(
        metrics, output_dir=output_dir, comm_column=comm_column, acc_column=acc_column, runs=runs, task=task
    )
    if json:
        print_json(written)
        return
    rows = [
        [files.dataset, files.num_points, files.num_frontier, str(files.all_points), str(files.frontier)]
        for files in written
    ]
    print_table(("dataset", "points", "on the frontier", "all", "frontier"), rows)
    for note in [note for files in written for note in files.notes]:
        _log.info(note)


def figures(
    *,
    metrics: Metrics = _METRICS,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            show_default=False,
            help="learning_curves, sync_ablation, accuracy_vs_communication or pareto_frontier; of predictions"
            " per_class_scores, confusion_matrix or forecast_vs_truth. Repeatable.",
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions",
            metavar="FILE",
            show_default=False,
            help="Draw figures of these predictions instead: what `predict` wrote as .parquet.",
        ),
    ] = None,
    comm_column: CommColumn = None,
    acc_column: AccColumn = None,
    runs: Runs = "*",
    images_dir: Annotated[Path, typer.Option("--images-dir", metavar="FOLDER", help="For PNG and PDF.")] = _RESULTS
    / "figures",
    plots_dir: Annotated[Path, typer.Option("--plots-dir", metavar="FOLDER", help="For PGFPlots .tex.")] = Path(
        "plots"
    ),
    build_dir: Annotated[
        Path | None,
        typer.Option(
            "--build-dir", metavar="FOLDER", show_default=False, help="For compiled .tex; else <plots>/build."
        ),
    ] = None,
    tex_file: Annotated[
        Path | None, typer.Option("--tex-file", metavar="FILE", show_default=False, help="Compile only this .tex.")
    ] = None,
    compile_tex: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile the .tex where LaTeX is.")
    ] = True,
    task: TaskOfRuns = None,
    json: Json = False,
) -> None:
    """Draw the figures of a merged table, or of predictions.

    Learning curves, the sync ablation, accuracy against communication, and the Pareto frontier; of predictions the
    scores of every class and the confusion matrix, or forecasts against what was measured: as PNG, PDF and PGFPlots.

    \b
    Example:
      graphmill figures --only learning_curves
      graphmill predict cora-sage-1 --output test.parquet && graphmill figures --predictions test.parquet
      graphmill figures --tex-file plots/sync_ablation_cora.tex
    """
    from graphmill.report.figures import FIGURES, OF_PREDICTIONS, prediction_figures
    from graphmill.report.figures import figures as draw

    if predictions is not None:
        drawn = prediction_figures(
            predictions,
            only=only or OF_PREDICTIONS,
            images_dir=images_dir,
            plots_dir=plots_dir,
            build_dir=build_dir,
            compile_tex=compile_tex,
            task=task,
        )
    else:
        drawn = draw(
            metrics,
            only=only or FIGURES,
            comm_column=comm_column,
            acc_column=acc_column,
            runs=runs,
            images_dir=images_dir,
            plots_dir=plots_dir,
            build_dir=build_dir,
            tex_file=tex_file,
            compile_tex=compile_tex,
            task=task,
        )
    if json:
        print_json(drawn)
        return
    for path in (*drawn.images, *drawn.tables, *drawn.tex, *drawn.pdfs):
        print_line(str(path))
    for note in drawn.notes:
        _log.info(note)
