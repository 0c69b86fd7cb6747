"""`baseline`: what methods that learn little or nothing score on prepared data."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.base.python import python_m
from graphmill.cli.options import DatasetRoot, Json, LogsRoot, resolved_dataset_root
from graphmill.cli.progress import progress
from graphmill.cli.show import Cell, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.spec.kinds.kind import AnyKind, TaskPlan

_MOST_SCORES = 6  # of a split, in the table; --json has all


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(baseline)


def baseline(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A name that `graphmill datasets` lists.")],
    *,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            "-O",
            metavar="KEY=VALUE",
            show_default=False,
            help="Of the experiment whose runs they are compared with, such as dataset.horizon=3. Repeatable.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="TASK", show_default=False, help="package.module:KIND, where the task is not built in."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Score also what takes long or much memory; how much is said first.")
    ] = False,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Score methods that learn little or nothing, so that the scores of models can be judged.

    On the splits, masks and measures that runs are evaluated with, and kept in the logs root, where `train`, `compare`
    and `report` find them. Of nodes: the majority class, label propagation, logistic regression on features, own,
    propagated or both, a perceptron. Of graphs: the majority class, logistic regression on mean features and counts, or
    on counts of subtrees. Of forecasts: the last value, the same time a day and a week before, the average. What takes
    more than 20 seconds of two cores, or gigabytes, is left out, with what it would take; --all scores it.

    \b
    Example:
      graphmill baseline debian-packages
      graphmill baseline metr-la -O dataset.horizon=3 --dataset-root /data --json
    """
    kind, task_plan = _planned(dataset, task, resolved_dataset_root(root), overrides or [])
    if not kind.baselines.methods:
        raise UserError(f"the task {kind.name} has no baselines", fix="name some on its page: docs/howto/own-task.md")
    results = dict(_scored(kind, task_plan, everything=everything))
    _keep(logs_root, kind, task_plan, results)
    if json:
        print_json({"dataset": task_plan.dataset.name, "task": kind.name, "baselines": results})
        return
    _show(kind, task_plan, results)


def _planned(dataset: str, task: str | None, root: Path, overrides: list[str]) -> "tuple[AnyKind, TaskPlan]":
    """The task's section of the plan of its default experiment over those data."""
    from graphmill.config.check import checked
    from graphmill.config.draft import Draft
    from graphmill.graph.header import is_prepared, read_header
    from graphmill.spec.kinds import TASKS, all_kinds, default_kind, find_kind
    from graphmill.tasks.stores import known_dataset, require_store

    folder = next((path for path in (root / dataset, Path(dataset)) if is_prepared(path)), None)
    if task is not None:
        kind = find_kind(task)
    elif folder is not None and (name := read_header(folder).kind) in TASKS:
        kind = find_kind(name)
    elif folder is not None:
        raise UserError(f"{folder} holds data of the task {name}", fix=f"--task {name}")
    else:
        kind = next((kind for kind in all_kinds() if known_dataset(kind, dataset) is not None), default_kind())
    store = require_store(kind, dataset, root)
    draft = Draft({"task": {"kind": kind.name}, "dataset": {"name": dataset}, **kind.baselines.under}, {})
    for text in overrides:
        draft.override(text)
    experiment: Any = checked(kind.experiment, draft, f"an experiment of the task {kind.name}")
    return kind, kind.resolve(experiment, store.info(experiment.dataset))


def _scored(kind: "AnyKind", task_plan: "TaskPlan", *, everything: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each baseline by name, with `scores` by split and measure, or `why_not`; torch is loaded in another process."""
    words = {each.name: each.words for each in kind.baselines.methods}
    environ = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    with tempfile.TemporaryDirectory() as folder:
        section = Path(folder) / "section.json"
        section.write_text(task_plan.model_dump_json(), encoding="utf-8")
        command = python_m("graphmill.train.baseline", str(section), *(["--all"] if everything else []))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                name = parse_json(line)["baseline"]
                with progress(words[name]):
                    answer = process.stdout.readline()
                if answer:
                    yield name, parse_json(answer)
    if process.returncode:
        raise typer.Exit(process.returncode)


def _keep(logs_root: Path, kind: "AnyKind", task_plan: "TaskPlan", results: dict[str, dict[str, Any]]) -> None:
    """Keep the scores for runs on the same data, which would compute them at their end, or skip them as too costly."""
    from graphmill.record.kept_baselines import KeptBaselines

    kept = KeptBaselines.of(logs_root, task_plan)
    for each in kind.baselines.methods:
        if each.scored == "end" and (scores := results[each.name]["scores"]):
            kept.keep(each.name, scores)


def _show(kind: "AnyKind", task_plan: "TaskPlan", results: dict[str, dict[str, Any]]) -> None:
    known = {each.name: each for each in kind.baselines.methods}
    scores = [scores for each in results.values() for scores in each["scores"].values()]
    shown = [each for each in kind.measures if each.is_shown and any(each.name in values for values in scores)]
    synthetic = " (synthetic)" if task_plan.dataset.synthetic else ""
    print_line(f"{task_plan.dataset.name}{synthetic}: baselines, on the splits and measures of its runs")
    for split in ("val", "test"):
        rows: list[list[Cell]] = [
            [known[name].words, *(_text(each["scores"].get(split, {}).get(measure.name)) for measure in shown)]
            for name, each in results.items()
        ]
        columns = [split, *(measure.words for measure in shown)]
        print_table(columns[: 1 + _MOST_SCORES], [row[: 1 + _MOST_SCORES] for row in rows])
    for name, each in results.items():
        print_line(f"{known[name].words}: {each['why_not'] or known[name].about}")


def _text(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"
