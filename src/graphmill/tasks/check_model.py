"""`python -m graphmill.tasks.check_model PLAN…`: does the user-defined code that plans name fit them?

The launcher asks before anything is made or submitted (`cluster/launch/check_model.py`), in a process of its own, since
that imports torch and the code. The answer is the last line of standard output: a JSON list with null, or what does not
fit, of each plan in order; the exit status is 2 if something does not.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.messages import show_messages
from graphmill.runtime.snapshot import import_from_snapshot
from graphmill.spec.plan import Plan
from graphmill.tasks.build import task_class
from graphmill.tasks.task import ChecksModel

_CALLED: Final = ("batches", "weights", "loss_sum", "evaluate")
"""The methods of a task (`tasks.task.Task`)."""


def main(paths: Sequence[str]) -> int:
    """Check the models of the plans in these files."""
    show_messages()  # on standard error, which is the command's
    try:
        import_from_snapshot(os.environ)
    except UserError as error:
        sys.stdout.write("\n" + json.dumps([{"message": error.message, "fix": error.fix}] * len(paths)) + "\n")
        return exits.BAD_REQUEST
    found = [_problem(path) for path in paths]
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    return exits.BAD_REQUEST if any(found) else exits.DONE


def _problem(path: str) -> dict[str, str] | None:
    try:
        plan = Plan.model_validate_json(Path(path).read_bytes())
        task = task_class(plan)
        _refuse_incomplete(task, plan.task.kind)
        if isinstance(task, ChecksModel):
            task.check_model(plan, plan.task)
    except UserError as error:
        return {"message": error.message, "fix": error.fix}
    return None


def _refuse_incomplete(task: type, kind: str) -> None:
    """`UserError` for a class that lacks what training calls; attributes set in __init__ are seen only there."""
    lacks = [name for name in _CALLED if not callable(getattr(task, name, None))]
    if lacks:
        raise UserError(
            f"task.kind {kind}: its class {task.__name__} has no {' and no '.join(lacks)}, which training calls",
            fix=f"define {', '.join(lacks)} as graphmill.tasks.task.Task says (docs/howto/own-task.md)",
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
