"""`bench TASK RUN`: what a trained run is worth, measured by its task."""

import argparse
import csv
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.cli.data import task_options
from graphmill.cli.find_run import find_run
from graphmill.cli.show import Cell, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.spec.kinds.kind import AnyKind


def bench_run(kind: "AnyKind", arguments: Sequence[str]) -> None:
    """Measure a run, show a table, and write a CSV file of all that was measured."""
    asked = parser_of(kind).parse_args(list(arguments))
    from graphmill.tasks.stores import load as load_named
    from graphmill.tasks.stores import open_store
    from graphmill.train.load import load
    from graphmill.train.where_data_are import DataChoice, plan_over

    assert kind.bench_options is not None
    options = task_options(kind.bench_options, asked.option, f"bench of the task {kind.name}")
    folder = find_run(asked.run, asked.logs_root)
    plan = folder.read_plan()
    if plan.task.kind != kind.name:
        raise UserError(f"{folder.path} is a run of the task {plan.task.kind}", fix=f"name a run of {kind.name}")
    over = plan_over(plan, DataChoice(asked.dataset, asked.dataset_root), os.environ)
    model = load(folder.path, asked.weights, dataset_root=asked.dataset_root, trust=asked.trust)
    store = open_store(kind, Path(over.dataset.path))
    found = load_named(kind.bench)(model, store, options, _tell)
    if asked.output is not None:
        write_text(asked.output, _csv(found.rows))
    if asked.json:
        print_json({"summary": found.summary, "rows": found.rows})
        return
    columns = list(found.summary[0])
    print_table(columns, [[_cell(line[name]) for name in columns] for line in found.summary], title=str(folder.path))
    if asked.output is not None:
        print_line(f"{asked.output}: {len(found.rows):,} rows")


def parser_of(kind: "AnyKind") -> argparse.ArgumentParser:
    """Of `graphmill bench KIND`."""
    assert kind.bench_options is not None
    keys = [f"  -o {name}=…  {field.description}" for name, field in kind.bench_options.model_fields.items()]
    parser = argparse.ArgumentParser(
        prog=f"graphmill bench {kind.name}",
        description=f"What a trained run of the task {kind.name} is worth, measured.",
        epilog="\n".join(
            ["options of the task:", *keys, "", f"example: graphmill bench {kind.name} RUN --output x.csv"]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="a run id or a run folder")
    parser.add_argument("-o", "--option", metavar="KEY=VALUE", action="append", default=[], help="repeatable")
    parser.add_argument("--weights", choices=("best", "last"), default="best")
    parser.add_argument("--dataset", metavar="NAME", help="other prepared data; else those of the run")
    parser.add_argument("--dataset-root", metavar="FOLDER", type=Path)
    parser.add_argument("--logs-root", metavar="FOLDER", type=Path, default=Path("logs"))
    parser.add_argument("--trust", metavar="DOTTED.PATH", action="append", default=[], help="as of evaluate")
    parser.add_argument("--output", metavar="FILE", type=Path, help="CSV file of everything that was measured")
    parser.add_argument("--json", action="store_true")
    return parser


def _tell(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
    else:
        sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    from io import StringIO

    text = StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: "" if value is None else value for name, value in row.items()} for row in rows])
    return text.getvalue()


def _cell(value: object) -> Cell:
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)
