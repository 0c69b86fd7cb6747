"""Evaluate the weights of a run: `python -m graphmill.train.evaluate RUN_FOLDER [--split SPLIT] [--weights best|last]`.

Exact, with all neighbours, in one process, whatever the number of ranks that trained: they share one model.
Prints one JSON object; `graphmill evaluate` makes a table of it.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from graphmill.base import exits
from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.messages import show_messages
from graphmill.graph.splits import SPLITS, Split
from graphmill.nn.weights import Weights
from graphmill.record.judged import lost_to
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import Which, warn_of_damage
from graphmill.runtime.machine import machine_info
from graphmill.runtime.trust import refuse_foreign_code
from graphmill.spec.kinds import find_kind
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import never_pause
from graphmill.tasks.baselines import score_baselines
from graphmill.tasks.build import build_task
from graphmill.tasks.task import AnyTask
from graphmill.train.baselines_after import costly_scores
from graphmill.train.device import device_of
from graphmill.train.where_data_are import DATA_OF_THE_RUN, DataChoice, plan_over

_log = logging.getLogger(__name__)

Facts = dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class Judged:
    """A run whose weights are used: in one process, over the data that were asked for."""

    plan: Plan  # over those data
    task: AnyTask  # with the weights
    which: Which
    steps_done: int  # of each rank, when the weights were saved

    def facts(self, split: str) -> Facts:
        """Facts of an evaluation: which weights, and of which data."""
        return {
            "run": self.plan.run_id,
            "dataset": self.plan.dataset.name,
            "synthetic": self.plan.dataset.synthetic,
            "split": split,
            "weights": self.which,
            "steps_per_rank": self.steps_done,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the measures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.evaluate", description=__doc__)
    add_choices(parser, splits=SPLITS)
    options = parser.parse_args(arguments)
    show_messages()
    try:
        facts = measured(judged(options), options.split, RunFolder(options.run_folder))
    except UserError as error:
        return refused(error, as_json=options.json_errors)
    except UnreadableError as error:
        _log.error(f"{error}\n  → {error.fix}")
        return exits.IO_ERROR
    sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    return exits.DONE


def add_choices(parser: argparse.ArgumentParser, *, splits: Sequence[str]) -> None:
    """The arguments that choose a run, its weights and the data."""
    parser.add_argument("run_folder", type=Path)
    parser.add_argument("--split", choices=splits, default="test")
    parser.add_argument("--weights", choices=("best", "last"), default="best")
    parser.add_argument("--dataset")
    parser.add_argument("--dataset-root", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--trust", action="append", default=[])
    parser.add_argument("--json-errors", action="store_true", help="for who reads the JSON: also what is refused")


def refused(error: UserError, *, as_json: bool) -> int:
    """Tell why the request is refused, as JSON to a program. Returns the exit status."""
    if as_json:
        sys.stdout.write(json.dumps({"message": error.message, "fix": error.fix}) + "\n")
    else:
        _log.error(f"{error}")
    return exits.BAD_REQUEST


def judged(options: argparse.Namespace) -> Judged:
    """The run that the arguments choose."""
    choice = DataChoice(options.dataset, options.dataset_root)
    folder = RunFolder.open(options.run_folder)
    return open_run(folder, options.weights, choice, trusted=options.trust, device=options.device)


def open_run(
    folder: RunFolder,
    which: Which,
    choice: DataChoice = DATA_OF_THE_RUN,
    *,
    trusted: Sequence[str] = (),
    device: str | None = None,
) -> Judged:
    """The task of a run with its weights, in this process. `device`: cpu or cuda; None: as it was planned for."""
    plan = folder.read_plan(trusted=trusted)
    refuse_foreign_code(plan.model_dump(mode="json"))
    plan = plan_over(plan, choice, os.environ)
    if device is not None:
        plan = plan.model_copy(update={"device": device})
    used = device_of(plan, local_rank=0, instead="use its weights on the CPU: --device cpu")
    torch.set_num_threads(machine_info().num_cores)
    weights = Weights.of_run(folder, which, warn_of_damage)
    task = build_task(plan, Group(rank=0, world_size=1, device=used))
    weights.load_all_into(task.model, name=f"the model of {plan.run_id}")
    return Judged(plan, task, which, 0 if weights.origin is None else weights.origin.step)


def measured(run: Judged, split: Split, folder: RunFolder) -> Facts:
    """The measures of a split, which weights and data they belong to, and what baselines score in the first measure."""
    beside = _baselines(run, split, folder.logs_root(run.plan.run_id))
    measures = run.task.evaluate(split, never_pause).facts()
    facts: Facts = {}
    for name, values in beside.items():
        shown = run.plan.kind.primary.name  # a user's own measure is not taken of baselines: then the task's first is
        shown = shown if shown in values else find_kind(run.plan.kind.name).primary.name
        facts[f"{name}_{shown}"] = values[shown]
    lost = lost_to(run.plan.kind, measures, beside)
    return {**run.facts(split), **measures, **facts, **({"judged": f"the run {lost}"} if lost else {})}


def _baselines(run: Judged, split: Split, logs_root: Path) -> dict[str, dict[str, float]]:
    """Baseline → measure → value."""
    kind, task_plan = run.plan.kind, run.plan.task
    names = [each.name for each in kind.baselines.methods if each.scored == "start"]
    found = score_baselines(task_plan, names, (split,), bounded=True)
    beside = {score.baseline: score.values for score in found if score.values is not None}
    for each in kind.baselines.methods:
        scores = costly_scores(logs_root, task_plan, each, _log.info) if each.scored == "end" else {}
        if split in scores:
            beside[each.name] = scores[split]
    return beside


def evaluate(folder: RunFolder, *, split: Split, which: Which) -> Facts:
    """The measures of a split of the data that a run was trained on."""
    return measured(open_run(folder, which), split, folder)


if __name__ == "__main__":
    sys.exit(main())
