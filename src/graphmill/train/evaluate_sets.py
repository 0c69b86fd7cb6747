"""Evaluate the weights of a run on the data of several plans: `python -m graphmill.train.evaluate_sets RUN PLAN …`.

Prints one JSON list, an object for each plan: `{"epoch": …, "measures": {…}, "sets": {NAME: {…}}}`, or `{"refused": …}`
if the weights do not fit the plan's model. `sets`: the task's evaluation sets of its own (`EvaluatesSets`), which are
measured whenever the validation split is. Exact, in one process, as `graphmill.train.evaluate`.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from graphmill.base import exits
from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.messages import show_messages
from graphmill.graph.splits import Split
from graphmill.nn.weights import Weights
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import warn_of_damage
from graphmill.runtime.machine import machine_info
from graphmill.runtime.snapshot import import_from_snapshot
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import never_pause
from graphmill.tasks.build import build_task
from graphmill.tasks.task import EvaluatesSets
from graphmill.train.device import device_of

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the list."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.evaluate_sets", description=__doc__)
    parser.add_argument("run_folder", type=Path)
    parser.add_argument("plans", type=Path, nargs="+")
    parser.add_argument("--split", choices=("train", "val", "test"), default="val")
    options = parser.parse_args(arguments)
    show_messages()
    try:
        import_from_snapshot(os.environ)
        folder = RunFolder.open(options.run_folder)
        torch.set_num_threads(machine_info().num_cores)
        weights = Weights.of_run(folder, "best", warn_of_damage)
        plans = [Plan.model_validate_json(path.read_bytes()) for path in options.plans]
        found = [_evaluated(weights, plan, options.split) for plan in plans]
    except UserError as error:
        _log.error(f"{error}")
        return exits.BAD_REQUEST
    except UnreadableError as error:
        _log.error(f"{error}\n  → {error.fix}")
        return exits.IO_ERROR
    sys.stdout.write(json.dumps(found) + "\n")
    return exits.DONE


def _evaluated(weights: Weights, plan: Plan, split: Split) -> dict[str, Any]:
    device = device_of(plan, local_rank=0)
    task = build_task(plan, Group(rank=0, world_size=1, device=device))
    try:
        weights.load_all_into(task.model, name=f"the model of {plan.run_id}")
    except UserError as error:
        return {"refused": error.message}
    epoch = 0 if weights.origin is None else weights.origin.epoch
    measures = task.evaluate(split, never_pause).facts()
    return {"epoch": epoch, "measures": measures, "sets": _own_sets(task) if split == "val" else {}}


def _own_sets(task: object) -> dict[str, dict[str, Any]]:
    if not isinstance(task, EvaluatesSets):
        return {}
    return {name: task.evaluate_set(name, never_pause).facts() for name in task.evaluation_sets}


if __name__ == "__main__":
    sys.exit(main())
