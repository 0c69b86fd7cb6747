"""`bench TASK RUN`: what a trained run is worth, measured by its task."""

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.base.cells import csv_text
from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.cli.agree import agree_to_code
from graphmill.cli.data import task_options
from graphmill.cli.find_run import find_run
from graphmill.cli.show import Cell, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.config.frozen import Spec
    from graphmill.record.run_folder import RunFolder
    from graphmill.record.weights import Which
    from graphmill.spec.kinds.extras import Bench
    from graphmill.spec.kinds.kind import AnyKind
    from graphmill.tasks.task import Benched

_log = logging.getLogger(__name__)


def bench_run(kind: "AnyKind", bench: "Bench", arguments: Sequence[str]) -> None:
    """Measure a run, or the stages of a pipeline that are done; show a table, write a CSV file of all measurements."""
    parsed = parser_of(kind.name, bench).parse_args(list(arguments))
    options = task_options(bench.options, parsed.option, f"bench of the task {kind.name}")
    stages = _stages_of(parsed.run, parsed.logs_root)
    rows: list[Mapping[str, Any]] = []
    summary: list[Mapping[str, Any]] = []
    for folder in stages or [find_run(parsed.run, parsed.logs_root)]:
        agree_to_code(folder, parsed.trust)
        choice = DataOf(parsed.weights, parsed.dataset, parsed.dataset_root)
        found = measured(kind, bench, folder, options, choice)
        stage = {"stage": folder.path.name} if stages else {}
        rows += [{**row, **stage} for row in found.rows]  # last: the first columns are those of other programs
        summary += [{**stage, **line} for line in found.summary]
    if parsed.output is not None:
        write_text(parsed.output, _csv(rows))
    if parsed.json:
        print_json({"summary": summary, "rows": rows})
        return
    show_summary(summary, title=parsed.run)
    if parsed.output is not None:
        print_line(f"{parsed.output}: {len(rows):,} rows")


@dataclass(frozen=True, slots=True)
class DataOf:
    """Which weights of a run are measured, and on what."""

    weights: "Which"
    dataset: str | None
    dataset_root: Path | None


def measured(kind: "AnyKind", bench: "Bench", folder: "RunFolder", options: "Spec", choice: DataOf) -> "Benched":
    """What a run is worth, by its task."""
    from graphmill.tasks.stores import load as load_named
    from graphmill.tasks.stores import open_store
    from graphmill.train.load import load
    from graphmill.train.where_data_are import DataChoice, plan_over

    plan = folder.read_plan()
    if plan.task.kind != kind.name:
        raise UserError(f"{folder.path} is a run of the task {plan.task.kind}", fix=f"name a run of {kind.name}")
    over = plan_over(plan, DataChoice(choice.dataset, choice.dataset_root), os.environ)
    model = load(folder.path, choice.weights, dataset_root=choice.dataset_root)
    store = open_store(kind, Path(over.dataset.path))
    found: Benched = load_named(bench.measure)(model, store, options, _tell)
    return found


def show_summary(summary: Sequence[Mapping[str, Any]], *, title: str) -> None:
    """A line for each family and size."""
    columns = list(summary[0])
    print_table(columns, [[_cell(line[name]) for name in columns] for line in summary], title=title)


def _stages_of(name: str, logs_root: Path) -> "list[RunFolder]":
    """The runs of the stages that are done, if `name` is a pipeline's, in order; the others are reported."""
    from graphmill.cluster.jobs.pipeline_record import PipelineFolder, stages_of
    from graphmill.cluster.launch.run_graph import DONE

    folders = [PipelineFolder(path) for path in (Path(name), logs_root / name)]
    folder = next((each for each in folders if each.record_path.is_file()), None)
    if folder is None:
        return []
    stages = stages_of(folder, folder.read_record())
    states = stages.runs.states()
    for state in states:
        if state.status != DONE:
            _log.warning(f"stage {state.name} is {state.status} and left out")
    found = [state.folder for state in states if state.status == DONE]
    if not found:
        raise UserError(f"no stage of {folder.path} is done", fix="run it: `graphmill pipeline run`")
    return found


def parser_of(name: str, bench: "Bench") -> argparse.ArgumentParser:
    """Parser of the command `graphmill bench KIND`, where `name` is the kind's name."""
    keys = [f"  -o {key}=…  {field.description}" for key, field in bench.options.model_fields.items()]
    parser = argparse.ArgumentParser(
        prog=f"graphmill bench {name}",
        description=f"What a trained run of the task {name} is worth, measured.",
        epilog="\n".join(["options of the task:", *keys, "", f"example: graphmill bench {name} RUN --output x.csv"]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="a run id, a run folder, or a pipeline's folder: all its stages")
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
    return csv_text([list(rows[0]), *(["" if row[name] is None else row[name] for name in rows[0]] for row in rows)])


def _cell(value: object) -> Cell:
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)
