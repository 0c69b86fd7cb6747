"""All figures of a merged metrics.csv: PNG and PDF by matplotlib, .tex for a paper, and PDF from it if there is LaTeX.

Each dataset has its own figures: the names of the files end in the dataset's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.base.names import did_you_mean
from graphmill.report.chart import Chart
from graphmill.report.curves import accuracy_vs_communication, sync_ablation
from graphmill.report.frontier_chart import pareto_frontier
from graphmill.report.latex import INSTALL, build_tex, find_latex
from graphmill.report.pareto import chosen_columns, final_points, same_seed_notes, usable_points
from graphmill.report.pgf import MARKER_LINE, render_tex
from graphmill.report.table import MERGED_METRICS, OfDataset, by_dataset, load_metrics

FIGURES = ("sync_ablation", "accuracy_vs_communication", "pareto_frontier")


@dataclass(frozen=True, slots=True)
class Figures:
    """What `figures` wrote."""

    images: tuple[Path, ...]  # PNG and PDF by matplotlib
    tex: tuple[Path, ...]
    pdfs: tuple[Path, ...]  # compiled from the .tex; empty if LaTeX is absent
    notes: tuple[str, ...]  # for the user: what was left out, and why


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
) -> Figures:
    """Draw the figures named in `only`, and compile their .tex, or only `tex_file`.

    A `tex_file` that exists is compiled as it is, and nothing is drawn; without LaTeX it is refused. `build_dir` is
    `<plots_dir>/build` unless given. A column that is None is chosen by the task of the runs;
    `task`: see `load_metrics`.
    """
    build_dir = build_dir or plots_dir / "build"
    if tex_file and tex_file.exists():
        return Figures((), (tex_file,), (build_tex(tex_file, build_dir),), ())
    for name in only:
        if name not in FIGURES:
            raise UserError(f"there is no figure named {name!r}", fix=did_you_mean(name, FIGURES))
    table = load_metrics(metrics, runs=runs, task=task)
    charts, notes = _charts(by_dataset(table), metrics, only, *chosen_columns(table, comm_column, acc_column))
    tex_files = [plots_dir / f"{chart.name}.tex" for chart in charts]
    _check_tex_files(tex_files, tex_file)
    from graphmill.report.draw import draw_chart

    images = [image for chart in charts for image in draw_chart(chart, images_dir)]
    for chart, path in zip(charts, tex_files, strict=True):
        write_text(path, render_tex(chart, source=str(metrics)))
    pdfs: list[Path] = []
    if compile_tex and (tex_file or find_latex()):
        pdfs = [build_tex(path, build_dir) for path in ([tex_file] if tex_file else tex_files)]
    elif compile_tex:
        notes.append(f"LaTeX is absent, so {plots_dir}/*.tex were written but not compiled; to compile them: {INSTALL}")
    return Figures(tuple(images), tuple(tex_files), tuple(pdfs), tuple(notes))


def _check_tex_files(tex_files: Sequence[Path], asked: Path | None) -> None:
    for path in tex_files:
        if not is_ours(path):
            raise UserError(
                f"{path} was not written by graphmill, and would be overwritten",
                fix="move it, or give another --plots-dir",
            )
    if asked and asked.resolve() not in [path.resolve() for path in tex_files]:
        raise UserError(
            f"{asked} does not exist, and is not one of the figures of these metrics",
            fix=f"give one of {', '.join(str(path) for path in tex_files)}",
        )


def is_ours(tex_file: Path) -> bool:
    """Whether a .tex file may be overwritten: it does not exist, or `figures` wrote it."""
    if not tex_file.exists():
        return True
    with tex_file.open(encoding="utf-8", errors="replace") as lines:
        return MARKER_LINE in lines.readline()


def _charts(
    parts: Sequence[OfDataset], metrics: Path, only: Sequence[str], comm: str, acc: str
) -> tuple[list[Chart], list[str]]:
    charts: list[Chart] = []
    notes: list[str] = []
    for part in parts:
        if "sync_ablation" in only:
            charts.append(sync_ablation(part))
        if part.is_of_one_rank:
            notes.append(
                f"{part.name or metrics}: one rank each, which communicates nothing, so it is in no such figure"
            )
            continue
        points = usable_points(part, metrics, comm, acc)
        notes += same_seed_notes(final_points(points))
        if "accuracy_vs_communication" in only:
            charts.append(accuracy_vs_communication(part, comm, acc))
        if "pareto_frontier" in only:
            charts.append(pareto_frontier(part, points, comm, acc))
    notes += [f"{chart.name}: {chart.note}" for chart in charts if chart.note]
    return charts, notes
