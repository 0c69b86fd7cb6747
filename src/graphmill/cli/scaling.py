"""`scaling`: a strong, weak or sensitivity study as tables, JSON and figures."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmill.cli.options import Json, LogsRoot
from graphmill.cli.show import Cell, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.report.scaling import ScalingFiles
    from graphmill.report.scaling_points import Scaling
    from graphmill.report.sensitivity import Sensitivity

_log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(scaling)


def scaling(
    name: Annotated[str, typer.Argument(metavar="STUDY|FOLDER", help="A study's YAML file or recipe, or its folder.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where to write.")] = Path("results/scaling"),
    compile_tex: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Also compile the .tex, by LaTeX.")
    ] = False,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Show how a run scales.

    From the measured epochs of a strong, weak or sensitivity study: a table, CSV, JSON, and figures as PNG, PDF and
    PGFPlots. The first epoch is warm-up, shown separately. Cells that differ in more than what is studied are refused;
    failed ones are shown as failed. Efficiency is not capped: it may be above 1.

    \b
    Example:
      graphmill study run study-debian-strong && graphmill scaling study-debian-strong
      graphmill scaling logs/debian-weak --out results/scaling --json
    """
    from graphmill.report.scaling import write_scaling

    written = write_scaling(_source(name, logs_root), logs_root=logs_root, out=out, compile_tex=compile_tex)
    if json:
        print_json({**_document(written), "rows": written.rows})
        return
    _print_result(written)
    for path in (written.csv, written.json, *written.images, *written.tex, *written.pdfs):
        print_line(str(path))
    for note in written.notes:
        _log.info(f"note: {note}")


def _source(name: str, logs_root: Path) -> Any:  # noqa: ANN401  # a Study, which is imported late, or a Path
    from graphmill.record.run_folder import find_runs
    from graphmill.spec.study import load_study

    for path in (Path(name), logs_root / name):
        if path.is_dir() and find_runs(path):
            return path
    return load_study(name)


def _document(written: "ScalingFiles") -> dict[str, Any]:
    return {
        "kind": written.kind,
        "csv": written.csv,
        "json": written.json,
        "images": written.images,
        "tex": written.tex,
        "pdfs": written.pdfs,
        "notes": written.notes,
    }


def _print_result(written: "ScalingFiles") -> None:
    from graphmill.report.scaling_points import Scaling

    if isinstance(written.result, Scaling):
        _print_scaling(written.result)
    else:
        _print_sensitivity(written.result)


def _print_scaling(scaling: "Scaling") -> None:
    from graphmill.report.scaling_points import measure_words, work_words

    print_line(f"{scaling.kind} scaling of {scaling.plan.dataset.name}; {work_words(scaling)}")
    rows: list[list[Cell]] = []
    for point in scaling.points:
        measure = point.facts.get(scaling.measure)
        rows.append(
            [
                point.size,
                f"{point.num_counted} of {point.num_wanted}" if point.failed else point.num_counted,
                _spread(point.epoch_s),
                _spread(point.throughput),
                _spread(point.speedup),
                _spread(point.efficiency),
                _spread(point.first_epoch_s),
                _spread(measure),
                "yes" if point.is_oversubscribed else "no" if point.is_oversubscribed is False else None,
            ]
        )
    speedup = "speed-up" if scaling.kind == "strong" else "scaled speed-up"
    columns = (scaling.axis, "runs", "epoch s", "seeds/s", speedup, "efficiency", "first epoch s")
    print_table((*columns, f"val {measure_words(scaling)}", "oversubscribed"), rows)
    for words, fit in (("all points", scaling.fit), ("points with a core per thread", scaling.fit_own_cores)):
        if fit is not None:
            residual = (
                "exact, for there are only two" if fit.residual is None else f"residual {100 * fit.residual:.1f} %"
            )
            print_line(f"{fit.law.capitalize()}, {words}: serial share {100 * fit.serial_share:.1f} %, {residual}")


def _print_sensitivity(sensitivity: "Sensitivity") -> None:
    rows: list[list[Cell]] = [
        [
            *each.values,
            f"{each.num_wanted - len(each.failed)} of {each.num_wanted}",
            _spread(each.throughput),
            _spread(each.epoch_s),
            f"{100 * each.wait_share.mean:.0f} %" if each.wait_share else None,
            _spread(each.measure),
        ]
        for each in sensitivity.combinations
    ]
    print_table((*sensitivity.keys, "runs", "seeds/s", "epoch s", "waiting", sensitivity.measure), rows)
    for effect in sensitivity.effects:
        ratios = ", ".join(f"{value}: ×{ratio:.2f}" for value, ratio in effect.ratios.items())  # noqa: RUF001  # the sign
        print_line(f"{effect.key} alone changes the throughput by a factor of {effect.spread:.2f} ({ratios})")


def _spread(value: Any) -> str | None:  # noqa: ANN401  # a Spread, which is imported late
    if value is None:
        return None
    decimals = 0 if value.mean >= 1000 else 1 if value.mean >= 100 else 2 if value.mean >= 10 else 3
    text = f"{value.mean:,.{decimals}f}"
    return text if value.sd is None else f"{text} ± {value.sd:,.{decimals}f}"
