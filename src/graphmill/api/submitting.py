"""`graphmill.submit`: a run as a job of Slurm, and the wait for its end."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.api.planning import Overrides, experiment_of, overrides_of, root_of
from graphmill.api.run import EndedError, Run
from graphmill.api.training import Agree, agreeing
from graphmill.base.arguments import path_of
from graphmill.base.errors import UserError
from graphmill.base.messages import messages_shown

if TYPE_CHECKING:
    from graphmill.api.planning import Asked
    from graphmill.cluster.jobs.submit import JobRequest, RunRequest
    from graphmill.cluster.status import RunView
    from graphmill.record.documents import SubmittedJob
    from graphmill.record.run_folder import RunFolder

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunJob:
    """A run that waits or runs as a job of Slurm."""

    id: str  # of the job, as Slurm says it; those that follow it at a time limit are in jobs.jsonl
    path: Path  # of the run folder

    @messages_shown()
    def wait(self, interval_s: float = 5.0) -> Run:
        """Look at the run until it has ended, as `graphmill watch`; jobs that follow it at a time limit count as it.

        Slurm is queried once per look. Ctrl-C ends the waiting, not the run.

        Args:
            interval_s: seconds between two looks.

        Returns:
            The run, with all its steps done.

        Raises:
            EndedError: it ended otherwise; `exit_status` is that of `graphmill watch`.
            UserError: the job will never start, and why.
        """
        from graphmill.cluster.follow import exit_status, looks
        from graphmill.cluster.status import Watcher
        from graphmill.record.run_folder import RunFolder

        folder, show = RunFolder(self.path), _shown()
        for (view,) in looks(Watcher([folder], root=folder.path.parent), interval_s):
            show(view)
            if view.is_hopeless:
                raise UserError(f"job {view.job_id} will never start: {view.detail}", fix=view.advice)
        if view.state == "done":
            return Run(self.path)
        raise EndedError(
            f"{self.path} is {view.state}: {view.detail}",
            fix=view.advice or f"`graphmill watch {self.path}` shows it",
            exit_status=exit_status([view.state]),
            path=self.path,
        )


@messages_shown()
def submit(
    experiment: "Asked" = None,
    overrides: Overrides = (),
    *,
    ranks: int | None = None,
    after: str | os.PathLike[str] | RunJob | None = None,
    resume: bool = False,
    run_id: str | None = None,
    dataset_root: str | os.PathLike[str] | None = None,
    logs_root: str | os.PathLike[str] = "logs",
    code_snapshot: bool | None = None,
    trust: str | Iterable[str] = (),
    **values: Any,  # noqa: ANN401  # whatever a key takes
) -> "RunJob":
    """Submit an experiment as a job of Slurm, as `graphmill submit`: the same plan, script and run folder.

    Args:
        experiment: as of `graphmill.plan`; with `resume` a run folder, or the id of a run.
        overrides: as of `graphmill.plan`; what Slurm is asked for has keys of their own, such as
            `{"slurm.hosts": 2, "slurm.time": "02:00:00"}`.
        ranks: processes in all, as `{"train.ranks": ranks}`.
        after: start only when this job (or its number), or run, has succeeded.
        resume: continue an ended run.
        run_id: the name of the run; else the experiment's name and the time.
        dataset_root: where prepared data are; else $GRAPHMILL_DATA_ROOT, ….
        logs_root: where run folders are.
        code_snapshot: True: the job imports a copy of your own code as it is now; False: none; None: a new run has one,
            and others keep theirs.
        trust: dotted paths of code of the run that may be run although you have not run it on this machine.
        values: as of `graphmill.plan`.

    Returns:
        The job; `.wait()` returns its run.

    Raises:
        UserError: the request cannot be met, or Slurm refuses it; nothing was written.

    Example:
        run = graphmill.submit("cora-sage", {"slurm.time": 30, "slurm.site": "perlmutter"}).wait()
    """
    from graphmill.record.run_folder import RunFolder

    texts = overrides_of(overrides, values) + ([] if ranks is None else [f"train.ranks={ranks}"])
    agree, logs = agreeing(trust), path_of("logs_root", logs_root)
    waited = after.id if isinstance(after, RunJob) else str(after)
    found = to_submit(
        experiment,
        texts,
        agree,
        resume=resume,
        root=root_of(dataset_root),
        logs_root=logs,
        run_id=None if run_id is None else str(run_id),
        dependency="" if after is None else dependency_of(waited, logs),
        code_snapshot=code_snapshot,
    )
    if isinstance(found, RunFolder):
        _log.info(f"{found.path} is done already")
        return RunJob(found.jobs()[-1].job_id if found.jobs() else "", found.path)
    return RunJob(sent(found, is_new=not resume).job_id, found.folder.path)


def to_submit(
    experiment: "Asked",
    overrides: Sequence[str],
    agree: Agree,
    *,
    resume: bool,
    root: Path | None,
    logs_root: Path,
    run_id: str | None,
    dependency: str,
    code_snapshot: bool | None,
    prepare: bool = True,
) -> "RunRequest | RunFolder":
    """What would be submitted: every choice made, nothing written. A folder: the run to continue is done already.

    `prepare`: the data of a new run, if they come with the package.
    """
    from graphmill.cluster.jobs.copy_code import refuse_unfit_request, with_code
    from graphmill.record.run_folder import RunFolder

    found: RunRequest | RunFolder
    if resume:
        found = _continued(experiment, overrides, agree, root, logs_root, run_id, dependency)
    else:
        found = _new(experiment, overrides, root, logs_root, run_id, dependency, to_train=prepare)
    if isinstance(found, RunFolder):
        return found
    (made,) = with_code([found], copies=code_snapshot, environ=os.environ)
    if not resume:
        refuse_unfit_request(made)
    return made


def sent(request: "RunRequest", *, is_new: bool) -> "SubmittedJob":
    """Submit it, after what there is to say of it."""
    from graphmill.cluster.jobs.submit import resubmit, submit_new

    say_what_counts(request)
    if request.changes:
        _log.info(f"asked for otherwise than before: {'; '.join(request.changes)}")
    return submit_new(request, os.environ) if is_new else resubmit(request, os.environ)


def _new(
    experiment: "Asked",
    overrides: Sequence[str],
    root: Path | None,
    logs_root: Path,
    run_id: str | None,
    dependency: str,
    *,
    to_train: bool,
) -> "RunRequest":
    from graphmill.cluster.jobs.sites import find_site
    from graphmill.cluster.jobs.submit import folder_for, plan_request
    from graphmill.record.run_folder import default_run_id
    from graphmill.runtime.roots import dataset_root

    loaded = experiment_of(experiment, overrides)
    name = run_id or default_run_id(loaded.name, logs_root)
    request = plan_request(
        loaded,
        find_site(loaded.slurm.site),
        dataset_root=dataset_root(root, os.environ),
        folder=folder_for(name, logs_root),
        logs_root=logs_root.absolute(),
        dependency=dependency,
        to_train=to_train,
    )
    request.refuse_taken()
    return request


def _continued(
    experiment: "Asked",
    overrides: Sequence[str],
    agree: Agree,
    root: Path | None,
    logs_root: Path,
    run_id: str | None,
    dependency: str,
) -> "RunRequest | RunFolder":
    """The request that continues a run; its folder if it is done.

    Options for the number of hosts and ranks are no part of the comparison with its plan: they say how many continue.
    """
    from graphmill.cluster.jobs.sites import find_site
    from graphmill.cluster.jobs.submit import plan_request, read_job, refuse_alive, request_of, resized
    from graphmill.record.find_run import run_to_resume
    from graphmill.record.run_folder import RunFolder, refuse_other_plan
    from graphmill.runtime.roots import dataset_root
    from graphmill.spec.job.change import HOW_MANY, differences

    named = None if experiment is None else str(path_of("experiment", experiment))
    run, is_named = run_to_resume(named, run_id, logs_root, changes=False, verb="submit")
    folder = RunFolder(run.path.absolute())
    if folder.is_done():
        return folder
    refuse_alive(folder)
    if is_named:
        agree(folder)
        return request_of(folder, dependency=dependency, options=overrides)
    planned = folder.read_plan()
    top = folder.logs_root(planned.run_id)
    sizes = [text for text in overrides if text.partition("=")[0] in HOW_MANY]
    as_planned = [f"train.ranks={planned.ranks}", f"slurm.hosts={planned.hosts}"] if sizes else []
    loaded = experiment_of(experiment, [*(text for text in overrides if text not in sizes), *as_planned])
    request = plan_request(
        loaded,
        find_site(loaded.slurm.site),
        dataset_root=dataset_root(root, os.environ),
        folder=folder,
        logs_root=top,
        dependency=dependency,
    )
    with_others = f"--resume --run-id {planned.run_id} --hosts {request.plan.hosts} --ranks {request.plan.ranks}"
    refuse_other_plan(folder, planned, request.plan, with_others=with_others)
    if sizes:
        request = resized(request, sizes)
    if folder.job_path.exists():
        return replace(request, changes=differences(read_job(folder), request.job))
    return request


def dependency_of(text: str, logs_root: Path) -> str:
    """The dependency for sbatch that `--after` means."""
    from graphmill.cluster.jobs.submit import after
    from graphmill.record.find_run import find_run
    from graphmill.slurm.commands import is_job_id

    return after(text, None if is_job_id(text) else find_run(text, logs_root))


def say_what_counts(request: "JobRequest") -> None:
    """Log the user's own defaults for sbatch that fill what the script leaves open, and the job's remarks."""
    from graphmill.cluster.jobs.sbatch import sbatch_environment

    for name in sbatch_environment(request.script, os.environ)[1]:
        _log.info(f"{name}={os.environ[name]} is used, because the script leaves it open")
    for remark in request.job.remarks:
        _log.info(remark)


def _shown() -> "Callable[[RunView], None]":
    """Shows a run while it is waited for: a bar in a notebook, elsewhere a message when something has changed."""
    from graphmill.api.shown import bar
    from graphmill.cluster.follow import plain_line, what_counts

    told = ""

    def tell(view: "RunView") -> None:
        nonlocal told
        if told != what_counts(view):
            told = what_counts(view)
            _log.info(plain_line(view))

    return bar() or tell
