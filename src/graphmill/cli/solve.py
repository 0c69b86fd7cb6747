"""`solve`: assignment problems in files, exactly."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmill.base.errors import UserError
from graphmill.cli.options import Json
from graphmill.cli.show import print_facts, print_json, print_line, print_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmill.graph.matrix_files import NamedMatrix

_SHOWN = 20  # pairs; all of them: --output, --json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(solve)


def solve(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Costs: .npy, .npz, .csv or .tsv, a line for each row.")],
    *,
    maximize: Annotated[bool, typer.Option("--maximize", help="Find the greatest total.")] = False,
    best: Annotated[int, typer.Option("--best", metavar="K", min=1, help="Find the K best assignments.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE.csv", show_default=False, help="Write all pairs with their costs."),
    ] = None,
    json: Json = False,
) -> None:
    """Solve assignment problems exactly: a column for each row, so that the total cost is least.

    Every item of the shorter side gets one of the other. inf (with --maximize: -inf) is a pair that is not allowed. A
    first line of a table without a number, and a first column without one, are names. That the total is the least is
    proven by dual potentials; exit status 1: it could not be, to the precision that the costs allow. From Python:
    graphmill.assignment.

    \b
    Example:
      graphmill solve costs.csv
      graphmill solve gains.npy --maximize --best 5 --output pairs.csv
    """
    from graphmill.assignment import InvalidCostsError, solve_best
    from graphmill.assignment import solve as solved
    from graphmill.graph.matrix_files import read_matrices

    if not file.exists():
        raise UserError(f"{file} does not exist", fix="give a file of costs, such as costs.csv")
    solutions: list[dict[str, Any]] = []
    for matrix in read_matrices(file):
        try:
            solution = solved(matrix.costs, maximize=maximize)
            ranked = [solution] if best == 1 else solve_best(matrix.costs, best, maximize=maximize)
        except InvalidCostsError as error:
            raise UserError(f"{file}, {matrix.name}: {error.message}", fix=error.fix) from None
        assert solution.certificate is not None
        solutions.append(
            {
                "matrix": matrix.name,
                "rows": matrix.costs.shape[0],
                "columns": matrix.costs.shape[1],
                "is_optimal": solution.certificate.is_optimal,
                "assignments": [{"total": each.cost, "pairs": _pairs(matrix, each.rows, each.cols)} for each in ranked],
            }
        )
    if output is not None:
        _write(output, solutions)
    if json:
        print_json(solutions)
    else:
        _show(solutions)
        if output is not None:
            print_line(f"\nwritten: {output}")
    if not all(each["is_optimal"] for each in solutions):
        sys.exit(1)


def _pairs(matrix: "NamedMatrix", rows: "NDArray[Any]", columns: "NDArray[Any]") -> list[dict[str, Any]]:
    costs = matrix.costs[rows, columns].tolist()
    return [
        {"row": _name(matrix.row_names, row), "column": _name(matrix.column_names, column), "cost": cost}
        for row, column, cost in zip(rows.tolist(), columns.tolist(), costs, strict=True)
    ]


def _name(names: Sequence[str], number: int) -> str | int:
    return names[number] if names else number


def _show(solutions: Sequence[dict[str, Any]]) -> None:
    if len(solutions) > 1:
        rows = [
            [each["matrix"], each["rows"], each["columns"], each["assignments"][0]["total"], each["is_optimal"]]
            for each in solutions
        ]
        print_table(["matrix", "rows", "columns", "total", "proven optimal"], rows)
        return
    (one,) = solutions
    totals = [each["total"] for each in one["assignments"]]
    size = f"{one['rows']:,} x {one['columns']:,}"
    print_facts([("costs", size), ("total", totals[0]), ("proven optimal", one["is_optimal"])])
    if len(totals) > 1:
        print_line("")
        print_table(["rank", "total"], [[rank, total] for rank, total in enumerate(totals, start=1)])
    pairs = one["assignments"][0]["pairs"]
    print_line("")
    print_table(["row", "column", "cost"], [[*each.values()] for each in pairs[:_SHOWN]])
    if len(pairs) > _SHOWN:
        print_line(f"… and {len(pairs) - _SHOWN:,} more: --output FILE.csv")


def _write(path: Path, solutions: Sequence[dict[str, Any]]) -> None:
    from graphmill.base.cells import csv_text
    from graphmill.base.files import write_text

    rows: list[list[Any]] = [["matrix", "rank", "row", "column", "cost"]]
    rows += [
        [each["matrix"], rank, *pair.values()]
        for each in solutions
        for rank, one in enumerate(each["assignments"], start=1)
        for pair in one["pairs"]
    ]
    try:
        write_text(path, csv_text(rows))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}", fix="give another --output") from None
