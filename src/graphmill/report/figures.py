"""All figures of a merged metrics.csv, or of predictions: PNG and PDF by matplotlib, .tex for a paper, and PDF from it
if there is LaTeX.

Each dataset has its own figures: the names of the files end in the dataset's; those of predictions in the run's, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.base.names import did_you_mean
from graphmill.record.csv_frames import without_formulas
from graphmill.report.chart import Chart
from graphmill.report.class_charts import class_scores, confusion_matrix, confusions, per_class_scores
from graphmill.report.curves import accuracy_vs_communication, sync_ablation
from graphmill.report.forecast_chart import forecast_vs_truth
from graphmill.report.frontier_chart import pareto_frontier
from graphmill.report.latex import INSTALL, build_tex, find_latex
from graphmill.report.learning import learning_curves
from graphmill.report.pareto import chosen_columns, final_points, is_of_one_run, same_seed_notes, usable_points
from graphmill.report.pgf import MARKER_LINE, render_tex
from graphmill.report.predictions import RunPredictions, open_predictions
from graphmill.report.table import MERGED_METRICS, OfDataset, datasets_of, load_tables, named
from graphmill.spec.kinds.kind import PredictsClasses, PredictsSeries

OF_COMMUNICATION = ("sync_ablation", "accuracy_vs_communication", "pareto_frontier")
FIGURES = (*OF_COMMUNICATION, "learning_curves")
OF_PREDICTIONS = ("per_class_scores", "confusion_matrix", "forecast_vs_truth")
"""Those that the task of the predictions has."""


@dataclass(frozen=True, slots=True)
class WrittenFigures:
    """What `figures` wrote."""

    images: tuple[Path, ...]  # PNG and PDF by matplotlib
    tex: tuple[Path, ...]
    pdfs: tuple[Path, ...]  # compiled from the .tex; empty if LaTeX is absent
    notes: tuple[str, ...]  # for the user: what was left out, and why
    tables: tuple[Path, ...] = ()  # the numbers behind a figure that shows some of them


def figures(
    metrics: Path = MERGED_METRICS,
    *,
    only: Sequence[str] = FIGURES,
    comm_column: str | None = None,
    acc_column: str | None = None,
    runs: str = "*",
    images_dir: Path = Path("results/figures"),
    plots_dir: Path = Path("plots"),
    build_dir: Path | None = None,
    tex_file: Path | None = None,
    compile_tex: bool = True,
    task: str | None = None,
) -> WrittenFigures:
    """Draw the figures named in `only`, and compile their .tex, or only `tex_file`.

    A `tex_file` that exists is compiled as it is, and nothing is drawn; without LaTeX it is refused. `build_dir` is
    `<plots_dir>/build` unless given. A column that is None is chosen by the task of the runs;
    `task`: see `load_tables`.
    """
    build_dir = build_dir or plots_dir / "build"
    if tex_file and tex_file.exists():
        return WrittenFigures((), (tex_file,), (build_tex(tex_file, build_dir),), ())
    _refuse_unknown(only, FIGURES)
    tables = load_tables(metrics, runs=runs, task=task, columns=(comm_column, acc_column))
    columns = {path: chosen_columns(table, comm_column, acc_column) for path, table in tables}
    charts: list[Chart] = []
    sources: list[Path] = []
    notes: list[str] = []
    for path, part in datasets_of(tables):
        charts += _charts(part, path, only, *columns[path], notes)
        sources += [path] * (len(charts) - len(sources))
    if not charts:
        raise UserError(
            f"all runs of {named(tables)} are of one rank, which communicates nothing: there is no"
            f" {' and no '.join(only)}",
            fix="graphmill figures --only learning_curves",
        )
    notes += [f"{chart.name}: {chart.note}" for chart in charts if chart.note]
    _check_tex_files(_tex_files(charts, plots_dir), tex_file)
    images = _drawn(charts, images_dir, plots_dir, sources)
    tex_files = _tex_files(charts, plots_dir)
    if compile_tex and tex_file:
        pdfs = [build_tex(tex_file, build_dir)]  # asked for: refused without LaTeX
    else:
        pdfs = _compiled(tex_files, build_dir, notes) if compile_tex else []
    return WrittenFigures(tuple(images), tuple(tex_files), tuple(pdfs), tuple(notes))


def prediction_figures(
    predictions: Path,
    *,
    only: Sequence[str] = OF_PREDICTIONS,
    images_dir: Path = Path("results/figures"),
    plots_dir: Path = Path("plots"),
    build_dir: Path | None = None,
    compile_tex: bool = True,
    task: str | None = None,
) -> WrittenFigures:
    """Draw the figures of a file of predictions that its task has; `task`: see `open_predictions`."""
    _refuse_unknown(only, OF_PREDICTIONS)
    charts, tables = prediction_charts(open_predictions(predictions, task=task))
    chosen = [chart for chart in charts if chart.name.startswith(tuple(only))]
    if not chosen:
        had = " and ".join(name for name in OF_PREDICTIONS if any(chart.name.startswith(name) for chart in charts))
        raise UserError(f"the figures of {predictions} are {had}", fix="name one of them with --only, or leave it out")
    _check_tex_files(_tex_files(chosen, plots_dir), None)
    images, tex_files = (
        _drawn(chosen, images_dir, plots_dir, [predictions] * len(chosen)),
        _tex_files(chosen, plots_dir),
    )
    notes = [f"{chart.name}: {chart.note}" for chart in chosen if chart.note]
    pdfs = _compiled(tex_files, build_dir or plots_dir / "build", notes) if compile_tex else []
    written = []
    for chart in chosen:
        if chart.name in tables:
            written.append(images_dir / f"{chart.name}.csv")
            write_text(written[-1], without_formulas(tables[chart.name]).write_csv(float_precision=6))
    return WrittenFigures(tuple(images), tuple(tex_files), tuple(pdfs), tuple(notes), tuple(written))


def prediction_charts(of: RunPredictions) -> tuple[list[Chart], dict[str, pl.DataFrame]]:
    """Charts of predictions and, for charts that show only some numbers, the numbers behind them by chart name."""
    match of.kind.predictions:
        case PredictsClasses() as columns:
            if of.origin.get("several_labels"):
                raise UserError(
                    f"the items of {of.path} have several labels each, and figures are drawn of one class per item:"
                    " there is no confusion matrix of them",
                    fix="draw its learning curves: graphmill report RUN; or read the columns label_* and prediction_*",
                )
            scores = class_scores(of, columns)
            taken_for = confusions(of, columns, scores)
            charts = [per_class_scores(of, scores), confusion_matrix(of, taken_for, scores)]
            return charts, {
                charts[0].name: scores,
                charts[1].name: taken_for.drop("place", "place_predicted"),
            }
        case PredictsSeries() as columns:
            return [forecast_vs_truth(of, columns)], {}
    raise UserError(f"the task {of.kind.name} has no figures of predictions", fix="draw its learning curves")


def _refuse_unknown(only: Sequence[str], known: Sequence[str]) -> None:
    for name in only:
        if name not in known:
            raise UserError(f"there is no figure named {name!r}", fix=did_you_mean(name, known))


def _tex_files(charts: Sequence[Chart], plots_dir: Path) -> list[Path]:
    return [plots_dir / f"{chart.name}.tex" for chart in charts]


def _drawn(charts: Sequence[Chart], images_dir: Path, plots_dir: Path, sources: Sequence[Path]) -> list[Path]:
    """Images, and the .tex of each chart; `sources`: the file that each was drawn of."""
    from graphmill.report.draw import draw_chart

    images = [image for chart in charts for image in draw_chart(chart, images_dir)]
    for chart, path, source in zip(charts, _tex_files(charts, plots_dir), sources, strict=True):
        write_text(path, render_tex(chart, source=str(source)))
    return images


def _compiled(tex_files: Sequence[Path], build_dir: Path, notes: list[str]) -> list[Path]:
    if find_latex():
        return [build_tex(path, build_dir) for path in tex_files]
    where = f"{tex_files[0].parent}/*.tex"
    notes.append(f"LaTeX is absent, so {where} were written but not compiled; to compile them: {INSTALL}")
    return []


def _check_tex_files(tex_files: Sequence[Path], tex_file: Path | None) -> None:
    for path in tex_files:
        if not is_ours(path):
            raise UserError(
                f"{path} was not written by graphmill, and would be overwritten",
                fix="move it, or give another --plots-dir",
            )
    if tex_file and tex_file.resolve() not in [path.resolve() for path in tex_files]:
        raise UserError(
            f"{tex_file} does not exist, and is not one of the figures of these metrics",
            fix=f"give one of {', '.join(str(path) for path in tex_files)}",
        )


def is_ours(tex_file: Path) -> bool:
    """Whether a .tex file may be overwritten: it does not exist, or `figures` wrote it."""
    if not tex_file.exists():
        return True
    with tex_file.open(encoding="utf-8", errors="replace") as lines:
        return MARKER_LINE in lines.readline()


def _charts(part: OfDataset, metrics: Path, only: Sequence[str], comm: str, acc: str, notes: list[str]) -> list[Chart]:
    """Charts of one dataset; what is left out is added to `notes`."""
    charts: list[Chart] = []
    if "sync_ablation" in only and not part.is_of_one_rank:
        charts.append(sync_ablation(part))
    if part.is_of_one_rank:
        notes.append(f"{part.name or metrics}: one rank each, which communicates nothing, so it is in no such figure")
    else:
        points = usable_points(part, metrics, comm, acc)
        notes += same_seed_notes(final_points(points))
        if "accuracy_vs_communication" in only:
            charts.append(accuracy_vs_communication(part, comm, acc))
        if tuple(only) == FIGURES and is_of_one_run(part):  # whoever names the figure wants its epochs
            notes.append(f"{part.name or metrics}: one run, so there is no Pareto frontier: it compares runs")
        elif "pareto_frontier" in only:
            charts.append(pareto_frontier(part, points, comm, acc))
    if "learning_curves" in only:
        charts += learning_curves(part)
    return charts
