"""Judge the weights of a run: `python -m graphmill.train.evaluate RUN_FOLDER [--split SPLIT] [--weights best|last]`.

Exact, with all neighbours, in one process, whatever the number of ranks that trained: they have one model in common.
Prints one JSON object; `graphmill evaluate` makes a table of it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.nn.weights import Weights
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import Which
from graphmill.runtime.machine import machine_facts
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.task import Split, never_pause
from graphmill.train.device import rank_device

Facts = dict[str, str | int | float | bool]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the measures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.evaluate", description=__doc__)
    parser.add_argument("run_folder", type=Path)
    parser.add_argument("--split", choices=("train", "val", "test"), default="test")
    parser.add_argument("--weights", choices=("best", "last"), default="best")
    options = parser.parse_args(arguments)
    try:
        facts = evaluate(RunFolder.open(options.run_folder), split=options.split, which=options.weights)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        return exits.BAD_REQUEST
    sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    return exits.DONE


def evaluate(folder: RunFolder, *, split: Split, which: Which) -> Facts:
    """The measures of a split, and which weights they are of."""
    plan = folder.read_plan()
    device = rank_device(plan.device, local_rank=0)
    torch.set_num_threads(machine_facts().num_cores)
    weights = Weights.of_run(folder, which, _warn)
    task = build_task(plan, Group(rank=0, world_size=1, device=device))
    weights.load_all_into(task.model, name=f"the model of {plan.run_id}")
    return {
        "run": plan.run_id,
        "dataset": plan.dataset.name,
        "synthetic": plan.dataset.synthetic,
        "split": split,
        "weights": which,
        "steps_per_rank": 0 if weights.origin is None else weights.origin.step,
        **task.evaluate(split, never_pause).facts(),
    }


def _warn(checkpoint: str, problem: str) -> None:
    sys.stderr.write(f"warning: {checkpoint} is damaged and passed over: {problem}\n")


if __name__ == "__main__":
    sys.exit(main())
