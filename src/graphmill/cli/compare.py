"""`compare`: finished runs by what differs between them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmill.cli.options import Json, LogsRoot
from graphmill.cli.show import Cell, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.report.compare import Comparison
    from graphmill.report.measured_cells import Spread

_TOOK = {"num_syncs": "syncs", "measured_mib": "measured MiB", "wall_s": "wall s"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(compare)


def compare(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STUDY|RUN]…", show_default=False, help="Studies, runs or folders of runs; all runs if left out."
        ),
    ] = None,
    *,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="val|test|KEY",
            show_default=False,
            help="By score, the best first, or by a key that varies; else by the keys of --by, or val.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="KEY[,KEY]…",
            show_default=False,
            help="A row for each value of these keys of the plan, and what its runs moved and took.",
        ),
    ] = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Compare finished runs: one row for each configuration, as mean ± s.d. over its rng seeds.

    Runs are averaged only if they differ in nothing but their rng seed; every key in which they differ is a column.
    The best row on the validation split is marked. With --by the columns are the keys that you name, and beside the
    scores stand synchronisations, measured MiB, speed and time (training and evaluation, without start-up) of a run.

    \b
    Example:
      graphmill compare my-grid
      graphmill compare my-grid --sort model.hidden_channels --json
      graphmill compare demo --by train.sync.scheme,train.sync.every
    """
    from graphmill.api.using import compared

    tables = compared(what or [], sort, [key.strip() for key in by.split(",")] if by else [], logs_root)
    if json:
        print_json({"tables": [{**_fields(table), "best": table.best} for table in tables]})
        return
    for table in tables:
        show_comparison(table)


def show_comparison(table: "Comparison") -> None:
    """Print a table, and what it leaves out."""
    from graphmill.api.using import tell_left_out
    from graphmill.report.compare import span_text
    from graphmill.report.configurations import short_names
    from graphmill.spec.kinds import find_kind

    best, kind = table.best, find_kind(table.task)
    took = list(dict.fromkeys(name for row in table.rows for name in row.took))
    words = {**_TOOK, "seeds_per_s": f"{kind.seeds_are}/s"}
    scores = [f"val {table.measure}", f"test {table.measure}"]
    columns = ["", *short_names(table.varied), "runs", *scores, *(words[name] for name in took)]
    rows: list[list[Cell]] = [
        [
            "*" if row is best else "",
            *(_shown(row.values[key]) for key in table.varied),
            len(row.runs),
            _score(row.val),
            _score(row.test),
            *(_mean(row.took.get(name)) for name in took),
        ]
        for row in table.rows
    ]
    if any(row.begins_with for row in table.rows):
        columns.append("begins with")
        rows = [[*cells, row.begins_with or None] for cells, row in zip(rows, table.rows, strict=True)]
    synthetic = ", synthetic data" if table.synthetic else ""
    what = f"mean ± s.d. over runs with different {kind.repeated_over}"
    print_line(f"{table.dataset} ({table.task}{synthetic}): {what}")
    if rows:
        print_table(columns, rows)
    if best is not None:
        print_line("*: best on the validation split")
    if rows and table.baselines:
        cells: list[list[Cell]] = [
            [baseline.words, span_text(baseline.val), span_text(baseline.test)] for baseline in table.baselines.values()
        ]
        print_table(("baseline", f"val {table.measure}", f"test {table.measure}"), cells)
    tell_left_out(table)


def _shown(value: Any) -> Cell:  # noqa: ANN401  # whatever a plan holds
    if isinstance(value, float):
        return repr(value)  # 0.001 as it was written
    return value if value is None or isinstance(value, str | int) else str(value)


def _score(score: "Spread | None") -> str | None:
    if score is None:
        return None
    return f"{score.mean:.4f}" + ("" if score.sd is None else f" ± {score.sd:.4f}")


def _mean(spread: "Spread | None") -> Cell:
    """Format a mean with about three digits."""
    if spread is None:
        return None
    return f"{spread.mean:,.0f}" if spread.mean >= 100 else f"{spread.mean:.3g}"


def _fields(table: "Comparison") -> dict[str, Any]:
    return {name: getattr(table, name) for name in table.__slots__}
