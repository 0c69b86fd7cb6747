"""Judge a checkpoint: `python -m graphmill.train.evaluate RUN_FOLDER [--split val|test] [--checkpoint best|latest]`.

Exact, with all neighbours, in one process, whatever the number of ranks that trained: they have one model in common.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console
from rich.table import Table

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.record.manifest import hash_text
from graphmill.record.run_folder import RunFolder, plan_text
from graphmill.runtime.machine import machine_facts
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.task import Split, never_pause
from graphmill.train.checkpoint import CheckpointStore
from graphmill.train.device import rank_device

Which = Literal["best", "latest"]
Facts = dict[str, str | int | float | bool]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the measures, as a table or as JSON."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.evaluate", description=__doc__)
    parser.add_argument("run_folder", type=Path)
    parser.add_argument("--split", choices=("train", "val", "test"), default="test")
    parser.add_argument("--checkpoint", choices=("best", "latest"), default="best")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args(arguments)
    try:
        facts = evaluate(RunFolder.open(options.run_folder), split=options.split, which=options.checkpoint)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        return exits.BAD_REQUEST
    if options.json:
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    else:
        Console().print(_table(facts))
    return exits.DONE


def evaluate(folder: RunFolder, *, split: Split, which: Which) -> Facts:
    """The measures of a split, and which checkpoint they are of."""
    plan = folder.read_plan()
    device = rank_device(plan.device, local_rank=0)
    torch.set_num_threads(machine_facts().num_cores)
    group = Group(rank=0, world_size=1, device=device)
    store = CheckpointStore(folder.checkpoints_dir, hash_text(plan_text(plan)), group)
    latest = store.latest(lambda name, problem: _warn(f"{name} is damaged and passed over: {problem}"))
    if latest is None:
        raise UserError(f"{folder.path} holds no whole checkpoint", fix=f"graphmill train --resume {folder.path}")
    best = latest.positions[0].best
    if which == "best" and best is None:
        raise UserError(
            f"{folder.path} has not been evaluated yet, so no checkpoint is the best",
            fix=f"give --checkpoint latest, or continue it with `graphmill train --resume {folder.path}`",
        )
    steps_done = best.step if which == "best" and best is not None else latest.steps_done
    task = build_task(plan, group)
    task.model.load_state_dict(store.load_model(steps_done))
    return {
        "run": plan.run_id,
        "dataset": plan.dataset.name,
        "synthetic": plan.dataset.synthetic,
        "split": split,
        "checkpoint": which,
        "steps_per_rank": steps_done,
        **task.evaluate(split, never_pause).facts(),
    }


def _warn(text: str) -> None:
    sys.stderr.write(f"warning: {text}\n")


def _table(facts: Facts) -> Table:
    table = Table("measure", "value")
    for name, value in facts.items():
        table.add_row(name, f"{value:.4f}" if isinstance(value, float) else str(value))
    return table


if __name__ == "__main__":
    sys.exit(main())
