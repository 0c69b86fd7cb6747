"""`scaling`: a strong, weak or sensitivity study as CSV, JSON and figures; from measured cells only."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmill.base.cells import csv_text
from graphmill.base.errors import UserError
from graphmill.base.files import write_json, write_text
from graphmill.record.metrics import format_cell
from graphmill.report.chart import Chart
from graphmill.report.figures import is_ours
from graphmill.report.latex import build_tex, find_latex
from graphmill.report.measured_cells import MeasuredCell, WantedCell, measure, wanted_in_folder, wanted_of_study
from graphmill.report.pgf import render_tex
from graphmill.report.scaling_charts import scaling_charts
from graphmill.report.scaling_points import Axis, Scaling, csv_rows, full_json, infer_kind, scaling_of
from graphmill.report.sensitivity import Sensitivity, sensitivity_chart, sensitivity_json, sensitivity_of
from graphmill.report.sensitivity import csv_rows as sensitivity_rows
from graphmill.spec.columns import Cell
from graphmill.spec.study import Study, StudyKind


@dataclass(frozen=True, slots=True)
class ScalingFiles:
    """What `scaling` wrote, and what it says."""

    kind: StudyKind
    result: Scaling | Sensitivity
    rows: tuple[Mapping[str, Any], ...]  # of the CSV
    csv: Path
    json: Path
    images: tuple[Path, ...]
    tex: tuple[Path, ...]
    pdfs: tuple[Path, ...]  # compiled from the .tex
    notes: tuple[str, ...]


def write_scaling(source: Study | Path, *, logs_root: Path, out: Path, compile_tex: bool = False) -> ScalingFiles:
    """Measure the cells of a study, or the runs in a folder, and write everything below `out`.

    They are in a folder named after the study, or the folder, and the dataset; names begin with the kind: the results
    of two studies, or of two datasets, do not overwrite each other.
    """
    wanted = wanted_of_study(source, logs_root) if isinstance(source, Study) else wanted_in_folder(source)
    cells = [measure(each) for each in wanted]
    if all(cell.plan is None for cell in cells):
        name = source.name if isinstance(source, Study) else source
        raise UserError(
            f"no cell of {name} was run yet: {logs_root} holds none of them",
            fix=f"`graphmill study run` with that study, or give --logs-root (of {len(wanted)} cells)",
        )
    if isinstance(source, Study) and source.kind == "sweep":
        raise UserError(
            f"study {source.name} is a sweep: there is no size along which it scales",
            fix="set its kind to strong, weak or sensitivity; `graphmill compare STUDY` compares others",
        )
    out = out / _folder_name(source, cells)
    if isinstance(source, Study) and source.kind == "sensitivity":
        found = sensitivity_of(cells, keys=tuple(source.vary))
        charts, rows, document = [sensitivity_chart(found)], sensitivity_rows(found), sensitivity_json(found)
        return _written("sensitivity", found, found.notes, rows, document, charts, source, out, compile_tex)
    kind, axis = _kind(source, cells)
    scaling = scaling_of(kind, axis, cells)
    charts = scaling_charts(scaling)
    return _written(
        kind, scaling, scaling.notes, csv_rows(scaling), full_json(scaling), charts, source, out, compile_tex
    )


def _folder_name(source: Study | Path, cells: Sequence[MeasuredCell]) -> str:
    """Name of the output folder, such as debian-strong_debian-packages."""
    name = source.name if isinstance(source, Study) else str(source)
    datasets = dict.fromkeys(cell.plan.dataset.name for cell in cells if cell.plan is not None)
    words = (re.sub(r"[^A-Za-z0-9.-]+", "-", word).strip("-.") for word in (name, *datasets))
    return "_".join(word for word in words if word)


def _kind(source: Study | Path, cells: Sequence[MeasuredCell]) -> tuple[Any, Axis]:
    return (source.kind, source.axis) if isinstance(source, Study) else infer_kind(cells)


def _written(
    kind: StudyKind,
    result: Scaling | Sensitivity,
    notes: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    document: Mapping[str, Any],
    charts: Sequence[Chart],
    source: Study | Path,
    out: Path,
    compile_tex: bool,
) -> ScalingFiles:
    from graphmill.report.draw import draw_chart

    stem = "sensitivity" if kind == "sensitivity" else f"{kind}_scaling"
    tex_files = [out / "tex" / f"{chart.name}.tex" for chart in charts]
    for path in tex_files:
        if not is_ours(path):
            raise UserError(
                f"{path} was not written by graphmill, and would be overwritten", fix="move it, or give another --out"
            )
    if compile_tex and not find_latex():
        raise UserError("LaTeX is absent, so nothing can be compiled", fix="leave out --compile, or install it")
    csv_path, json_path = out / f"{stem}.csv", out / f"{stem}_full.json"
    write_text(csv_path, _csv_text(rows))
    name = source.name if isinstance(source, Study) else str(source)
    write_json(json_path, {"study": name, **document})
    images = [image for chart in charts for image in draw_chart(chart, out)]
    for chart, path in zip(charts, tex_files, strict=True):
        write_text(path, render_tex(chart, source=str(csv_path)))
    pdfs = [build_tex(path, out / "tex" / "build") for path in tex_files] if compile_tex else []
    return ScalingFiles(
        kind=kind,
        result=result,
        rows=tuple(rows),
        csv=csv_path,
        json=json_path,
        images=tuple(images),
        tex=tuple(tex_files),
        pdfs=tuple(pdfs),
        notes=tuple(notes),
    )


def _csv_text(rows: Sequence[Mapping[str, Cell]]) -> str:
    return csv_text([list(rows[0]), *([format_cell(value) for value in row.values()] for row in rows)])


__all__ = ["ScalingFiles", "WantedCell", "write_scaling"]
