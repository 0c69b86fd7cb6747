"""Try user-defined models and losses on a made-up batch before anything is made or submitted, in another process."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.base.python import as_module
from graphmill.cluster.launch.local import WORKER, environment_of_ranks, imports_of
from graphmill.config.problems import Problem
from graphmill.record.run_folder import plan_text
from graphmill.runtime.fork_server import output_of
from graphmill.spec.kinds import TASKS
from graphmill.spec.plan import Plan


def refuse_unfit_model(plan: Plan) -> None:
    """`UserError` if the plan names a model or a loss by dotted path, and it cannot be trained with as planned."""
    for problem in unfit_models([plan]):
        if problem is not None:
            raise problem


def unfit_models(plans: Sequence[Plan], environ: Mapping[str, str] | None = None) -> list[UserError | None]:
    """What is wrong with the user-defined code of each plan; None of those that fit, have none, or lack their data.

    All are tried in one process, plans that differ in nothing but run id and rng seed once; `environ`: of that process,
    if not that of the ranks here, which are forked from what has torch by then. Raises `UserError` if it fails.
    """
    texts = [plan_text(plan.model_copy(update={"run_id": "a-trial", "seed": 0})) for plan in plans]
    can_be = [_is_of_the_user(plan) and plan.dataset.is_prepared for plan in plans]
    wanted = list(dict.fromkeys(text for text, each in zip(texts, can_be, strict=True) if each))
    if not wanted:
        return [None] * len(plans)
    targets = (target for plan in plans for target in (plan.task.kind, *(target for _, target in plan.own_code)))
    names = ", ".join(dict.fromkeys(target for target in targets if target not in TASKS))
    first = next(plan for plan, each in zip(plans, can_be, strict=True) if each)
    imports = (*imports_of(WORKER, first), "graphmill.tasks.check_model")
    environ = environment_of_ranks(os.environ, first) if environ is None else environ
    found = dict(zip(wanted, _tried(wanted, names, environ, imports), strict=True))
    return [found.get(text) for text in texts]


def _is_of_the_user(plan: Plan) -> bool:
    return bool(plan.own_code) or plan.task.kind not in TASKS


def unfit_problems(
    where: Sequence[str], plans: Sequence[Plan], environ: Mapping[str, str] | None = None
) -> Iterator[Problem]:
    """Problems that `unfit_models` finds, each reported once. `where`: of each plan, such as `cell a`."""
    told = set()
    for name, problem in zip(where, unfit_models(plans, environ), strict=True):
        if problem is not None and problem.message not in told:
            told.add(problem.message)
            yield Problem(name, problem.message, problem.fix)


def _tried(
    texts: Sequence[str], names: str, environ: Mapping[str, str], imports: Sequence[str]
) -> list[UserError | None]:
    with tempfile.TemporaryDirectory(prefix="graphmill-plans-") as folder:
        paths = [Path(folder) / f"{number}.json" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        program = [*as_module(imports[-1]), *map(str, paths)]
        status, said = output_of(program, environ, imports=imports)
    if status not in (exits.DONE, exits.BAD_REQUEST) or not said:
        raise UserError(
            f"{names} could not be tried (exit status {status}); the error is above", fix="correct the code"
        )
    last = said.splitlines()[-1]  # the model's own code may print, too
    return [None if problem is None else UserError(**problem) for problem in parse_json(last)]
