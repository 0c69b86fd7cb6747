"""Score the baselines of a task on prepared data: `python -m graphmill.train.baseline PLAN_SECTION [--all]`.

PLAN_SECTION: a JSON file with the task's section of a plan. Prints JSON lines: `{"baseline": …}` before each, then
`{"scores": {SPLIT: {MEASURE: …}}, "why_not": …}`; `graphmill baseline` makes a table of them.
"""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.base.messages import show_messages
from graphmill.runtime.machine import machine_info
from graphmill.spec.kinds import find_kind
from graphmill.tasks.baselines import score_baselines

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the lines."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.baseline", description=__doc__)
    parser.add_argument("section", type=Path)
    parser.add_argument("--all", action="store_true", help="also what takes minutes or much memory")
    options = parser.parse_args(arguments)
    show_messages()
    torch.set_num_threads(machine_info().num_cores)
    section = parse_json(options.section.read_bytes())
    kind = find_kind(section["kind"])
    task_plan = kind.plan.model_validate(section)
    try:
        for baseline in kind.baselines.methods:
            _print({"baseline": baseline.name})
            found = list(score_baselines(task_plan, [baseline.name], ("val", "test"), bounded=not options.all))
            scores = {score.split: score.values for score in found if score.values is not None}
            _print({"scores": scores, "why_not": next((score.why_not for score in found if score.why_not), "")})
    except UserError as error:
        _log.error(f"{error}")
        return exits.BAD_REQUEST
    return exits.DONE


def _print(line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
