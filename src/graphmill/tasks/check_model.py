"""`python -m graphmill.tasks.check_model PLAN`: does the user-defined code that a plan names fit it?

The launcher asks before it makes a run folder (`cluster/launch/check_model.py`), in a process of its own, since that
imports torch and the code. What does not fit is one JSON document on standard output, with exit status 2.
"""

import json
import sys
from pathlib import Path

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.spec.plan import Plan
from graphmill.tasks.build import task_class
from graphmill.tasks.task import ChecksModel


def main(path: str) -> int:
    """Check the model of the plan in a file."""
    plan = Plan.model_validate_json(Path(path).read_bytes())
    task = task_class(plan)
    try:
        if isinstance(task, ChecksModel):
            task.check_model(plan, plan.task)
    except UserError as error:
        sys.stdout.write("\n" + json.dumps({"message": error.message, "fix": error.fix}) + "\n")
        return exits.BAD_REQUEST
    return exits.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
