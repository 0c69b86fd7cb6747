"""Try the user-defined models of jobs where they are submitted, if what the ranks will import is here, too."""

import logging
from collections.abc import Iterator, Sequence

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.submit import Request, python_here
from graphmill.cluster.launch.check_model import unfit_models, unfit_problems
from graphmill.config.problems import Problem
from graphmill.spec.job.resolve import Job, NoContainerSpec
from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)


def refuse_unfit_request(request: Request) -> None:
    """`UserError` if the job's plan names code of the user's that cannot be trained with; tried on a CPU."""
    for problem in unfit_models(_plans([request])):
        if problem is not None:
            raise UserError(problem.message, fix=problem.fix)


def unfit_requests(where: Sequence[str], requests: Sequence[Request]) -> Iterator[Problem]:
    """The same of several jobs, as problems; each told once."""
    named = [(name, request) for name, request in zip(where, requests, strict=True) if _plans([request])]
    yield from unfit_problems([name for name, _ in named], _plans([request for _, request in named]))


def _plans(requests: Sequence[Request]) -> list[Plan]:
    """Those that can be tried here, with a message for one that has to wait for its job."""
    tried = []
    for request in requests:
        if not request.plan.own_code:
            continue
        elsewhere = _elsewhere(request.job)
        if elsewhere:
            _log.info(f"{request.plan.own_code[0][1]} is not tried here: the job imports it elsewhere ({elsewhere})")
            continue
        tried.append(request.plan.model_copy(update={"device": "cpu"}))
    return tried


def _elsewhere(job: Job) -> str:
    """What makes the job's Python another one than this; "": nothing."""
    if not isinstance(job.container, NoContainerSpec):
        return "slurm.container"
    if job.python != python_here():
        return "slurm.python"
    if job.modules or job.setup_lines:
        return "modules or setup lines"
    return "slurm.env.PYTHONPATH" if "PYTHONPATH" in job.env else ""
