"""Try a user's model or loss on a made-up batch, before a run folder is made: in a process that may import torch."""

import json
import subprocess
import sys
import tempfile

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.record.run_folder import plan_text
from graphmill.spec.plan import Plan


def refuse_unfit_model(plan: Plan) -> None:
    """`UserError` if the plan names a model or a loss by dotted path, and it cannot be trained with as planned."""
    if not plan.own_code:
        return
    with tempfile.NamedTemporaryFile("w", prefix="graphmill-plan-", suffix=".json", encoding="utf-8") as file:
        file.write(plan_text(plan))
        file.flush()
        command = [sys.executable, "-m", "graphmill.tasks.check_model", file.name]
        child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if child.returncode == exits.BAD_REQUEST and child.stdout:
        last = child.stdout.splitlines()[-1]  # the model's own code may print, too
        raise UserError(**json.loads(last))
    if child.returncode != exits.DONE:
        raise UserError(
            f"{', '.join(target for _, target in plan.own_code)} could not be tried (exit status {child.returncode});"
            " the error is above",
            fix="correct the code",
        )
