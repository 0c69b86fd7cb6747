"""The user's own code where jobs are submitted: which copy of it a job imports, and whether its models fit.

A new run gets a copy of the code as it is now. A run that is continued keeps the copy that it was submitted with, or
none if it had none, unless a person asks for another.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.own_code import OwnCode, find_own_code, search_path
from graphmill.cluster.jobs.script import render_script
from graphmill.cluster.jobs.submit import RunRequest, python_here, read_job
from graphmill.cluster.launch.check_model import unfit_problems
from graphmill.config.problems import Problem
from graphmill.runtime.snapshot import Snapshot, damage, put_into, snapshot_in, write_snapshot
from graphmill.spec.job.change import differences
from graphmill.spec.job.resolve import Job, NoContainerSpec
from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)

_SHOWN = 3  # names of files in a message


def with_code(requests: Sequence[RunRequest], *, copies: bool | None, environ: Mapping[str, str]) -> list[RunRequest]:
    """The requests, each with the copy that its job imports; what all new ones need is one copy. Writes nothing.

    `copies`: True takes a copy for all, False for none; None as above.
    """
    if copies is False:
        return [_importing(request, None, None) for request in requests]
    fresh = [request for request in requests if copies or not _was_submitted(request)]
    found = _code_by_path(fresh, environ)
    done = []
    for request in requests:
        if _was_submitted(request) and not copies:
            done.append(_continued(request, environ))
            continue
        own = found[tuple(search_path(request.job, environ))]
        root = request.folder.logs_root(request.plan.run_id)
        done.append(_importing(request, None if own is None else own.snapshot(root), own))
    for text in dict.fromkeys(filter(None, map(_copied_text, done))):
        _log.info(text)
    return done


@contextmanager
def tried_code(request: RunRequest, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment of a process that imports what the job will, before that is written where the job finds it."""
    found = dict(environ)
    with TemporaryDirectory(prefix="graphmill-code-") as folder:
        snapshot = request.job.code
        if request.own_code is not None:
            snapshot = request.own_code.snapshot(Path(folder))
            write_snapshot(request.own_code.files, Path(snapshot.folder))
        put_into(found, snapshot)
        yield found


def _code_by_path(requests: Sequence[RunRequest], environ: Mapping[str, str]) -> dict[tuple[str, ...], OwnCode | None]:
    """The code of all requests that look for it in the same folders, by those."""
    alike: dict[tuple[str, ...], list[RunRequest]] = {}
    for request in requests:
        alike.setdefault(tuple(search_path(request.job, environ)), []).append(request)
    return {search: find_own_code([request.plan for request in group], search) for search, group in alike.items()}


def _continued(request: RunRequest, environ: Mapping[str, str]) -> RunRequest:
    """RunRequest with the copy of the code that the run was submitted with; warn if the code has changed since."""
    kept = read_job(request.folder).code
    if kept is None:
        return _importing(request, None, None)
    own = find_own_code([request.plan], search_path(request.job, environ))
    now = None if own is None else own.snapshot(request.folder.logs_root(request.plan.run_id)).sha256
    problem = damage(Path(kept.folder))
    if problem is not None and now != kept.sha256:
        raise UserError(
            f"{request.folder.path} was submitted with the copy of your code in {kept.folder}, which cannot be used:"
            f" {problem}",
            fix="restore it, or continue with the code as it is now: --code-snapshot",
        )
    if now is not None and now != kept.sha256:
        _log.warning(
            f"your own code has changed since {request.folder.path} was submitted; the run continues with its copy"
            " of then\n  → --code-snapshot continues it with the code as it is now"
        )
    return _importing(request, kept, own if problem is not None else None)


def _importing(request: RunRequest, code: Snapshot | None, own_code: OwnCode | None) -> RunRequest:
    if request.job.code == code:
        return replace(request, own_code=own_code)
    job = request.job.model_copy(update={"code": code})
    changes = differences(read_job(request.folder), job) if _was_submitted(request) else request.changes
    return replace(request, job=job, script=render_script(job), own_code=own_code, changes=changes)


def _was_submitted(request: RunRequest) -> bool:
    return request.folder.plan_path.exists() and request.folder.job_path.exists()


def _copied_text(request: RunRequest) -> str:
    if request.own_code is None or request.job.code is None:
        return ""
    names = request.own_code.names
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return f"your own code is imported from a copy of it as it is now: {shown}, in {request.job.code.folder}"


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
