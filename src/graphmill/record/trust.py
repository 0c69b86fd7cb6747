"""May code that a plan names be run? A plan names a model by its dotted path, and whoever reads the plan imports it.

Your own plans name what you named. A plan that another user wrote may name anything that this machine can import, with
any arguments; so it runs only where you name the model yourself.
"""

import os
import pwd
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan

TRUST_VARIABLE: Final = "GRAPHMILL_TRUST_MODELS"  # dotted paths, separated by commas: reaches ranks on any host


def refuse_foreign_model(folder: RunFolder, plan: Plan, trusted: Iterable[str], environ: Mapping[str, str]) -> None:
    """Raise a `UserError` where another user's plan names a model by dotted path that is not among `trusted`."""
    target = getattr(getattr(plan.task, "model", None), "target", None)
    owner = folder.plan_path.stat().st_uid
    named = {*trusted, *filter(None, environ.get(TRUST_VARIABLE, "").split(","))}
    if target is None or owner == os.geteuid() or target in named:
        return
    raise UserError(
        f"{folder.plan_path} belongs to {_user(owner)}, not to you, and names the model {target}: to use the run is to"
        " import and call that, with the arguments in the plan",
        fix=f"read the plan and that code; then name it: --trust {target}, trust={target!r} in Python,"
        f" or {TRUST_VARIABLE}={target}",
    )


def refuse_code_in_run_folder(target: str, origin: Path) -> None:
    """Raise a `UserError` where the code of a model lies in a run folder: results are no place for code."""
    for folder in origin.resolve().parents:
        if RunFolder(folder).plan_path.is_file():
            raise UserError(
                f"model.target {target!r} would be imported from {origin}, inside the run folder {folder}",
                fix="keep the model outside run folders, and name it from there (PYTHONPATH, or install it)",
            )


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
