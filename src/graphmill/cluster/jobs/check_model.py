"""Try the user-defined models of jobs where they are submitted, if what the ranks will import is here, too."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.copy_code import tried_code
from graphmill.cluster.jobs.submit import RunRequest, python_here
from graphmill.cluster.launch.check_model import unfit_problems
from graphmill.config.problems import Problem
from graphmill.runtime.snapshot import Snapshot, snapshot_in
from graphmill.spec.job.resolve import Job, NoContainerSpec
from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)


def refuse_unfit_request(request: RunRequest) -> None:
    """`UserError` if the job's plan names code of the user's that cannot be trained with; tried on a CPU."""
    for problem in unfit_requests(["the job"], [request]):
        raise UserError(problem.what, fix=problem.fix)


def unfit_requests(where: Sequence[str], requests: Sequence[RunRequest]) -> Iterator[Problem]:
    """Problems of several jobs' user-defined code, each reported once. What is tried is what the job would import."""
    alike: dict[Snapshot | None, list[tuple[str, RunRequest]]] = {}
    for name, request in zip(where, requests, strict=True):
        if _can_be_tried(request):
            alike.setdefault(request.job.code, []).append((name, request))
    for group in alike.values():
        plans = [request.plan.model_copy(update={"device": "cpu"}) for _, request in group]
        with tried_code(group[0][1], os.environ) as environ:
            for problem in _unfit([name for name, _ in group], plans, environ):
                yield _of_the_copy(problem, snapshot_in(environ))


def _unfit(where: Sequence[str], plans: Sequence[Plan], environ: Mapping[str, str]) -> Iterator[Problem]:
    try:
        yield from unfit_problems(where, plans, environ)
    except UserError as error:  # of all: the code has ended the process that tried it
        yield Problem(where[0], error.message, error.fix)


def _of_the_copy(problem: Problem, snapshot: Snapshot | None) -> Problem:
    """Name the original files in a problem, not their copy; extend the fix where the copy may lack something."""
    if snapshot is None:
        return problem
    what, fix = problem.what, problem.fix
    if "--no-code-snapshot" not in fix and any(
        sign in what for sign in ("No module named", "could not be tried", snapshot.folder)
    ):
        fix += (
            "; what the job imports is a copy of your .py files, without data that lie beside them and without modules"
            " whose names are computed: --no-code-snapshot imports them where they lie"
        )
    for number, origin in enumerate(snapshot.origins):
        what = what.replace(f"{snapshot.folder}/{number}/", f"{origin}/")
    return Problem(problem.where, what, fix)


def _can_be_tried(request: RunRequest) -> bool:
    """Whether the job's code can be tried here; a message is logged where it has to wait for the job."""
    if not request.plan.own_code:
        return False
    elsewhere = _elsewhere(request.job)
    if elsewhere:
        _log.info(f"{request.plan.own_code[0][1]} is not tried here: the job imports it elsewhere ({elsewhere})")
    return not elsewhere


def _elsewhere(job: Job) -> str:
    """What makes the job's Python another one than this; "": nothing."""
    if not isinstance(job.container, NoContainerSpec):
        return "slurm.container"
    if job.python != python_here():
        return "slurm.python"
    if job.modules or job.setup_lines:
        return "modules or setup lines"
    return "slurm.env.PYTHONPATH" if "PYTHONPATH" in job.env else ""
