"""May code that a plan names be run? A plan may name a model, a loss or a task by dotted path; its reader imports that.

Your own plans name what you named. A plan that another user wrote may name anything that this machine can import, with
any arguments; so it runs only if you name it yourself.
"""

import os
import pwd
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from graphmill.base.errors import UserError
from graphmill.spec.plan import Plan

if TYPE_CHECKING:
    from graphmill.record.run_folder import RunFolder

TRUST_VARIABLE: Final = "GRAPHMILL_TRUST_MODELS"  # dotted paths, separated by commas: reaches ranks on any host


def refuse_foreign_model(folder: "RunFolder", plan: Plan, trusted: Iterable[str], environ: Mapping[str, str]) -> None:
    """Raise a `UserError` if another user's plan names code by dotted path that is not among `trusted`."""
    named = dict.fromkeys(target for _, target in plan.own_code)
    unknown = [target for target in named if not _is_trusted(folder.plan_path, target, trusted, environ)]
    if not unknown:
        return
    raise UserError(
        f"{_whose(folder.plan_path)} and names {' and '.join(unknown)}: to use the run is to import and call that, with"
        " the arguments in the plan",
        fix=f"read the plan and that code; then name it: {' '.join(f'--trust {target}' for target in unknown)},"
        f" trust={unknown!r} in Python, or {TRUST_VARIABLE}={','.join(unknown)}",
    )


def refuse_foreign_kind(plan_path: Path, kind: object, environ: Mapping[str, str]) -> None:
    """Raise a `UserError` if another user's plan is of a task outside graphmill. Call it before the plan is parsed.

    `kind`: `task.kind` as it is in the file.
    """
    if not isinstance(kind, str) or ":" not in kind or _is_trusted(plan_path, kind, (), environ):
        return
    raise UserError(
        f"{_whose(plan_path)} and is of the task {kind}: to read the plan is to import that",
        fix=f"read that code; then name it: {TRUST_VARIABLE}={kind}",
    )


def _is_trusted(plan_path: Path, name: str, trusted: Iterable[str], environ: Mapping[str, str]) -> bool:
    named = {*trusted, *filter(None, environ.get(TRUST_VARIABLE, "").split(","))}
    return plan_path.stat().st_uid == os.geteuid() or name in named


def _whose(plan_path: Path) -> str:
    return f"{plan_path} belongs to {_user(plan_path.stat().st_uid)}, not to you,"


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
