"""Submit an experiment as a job: plan it, render its script, ask sbatch whether it would accept it, submit it.

Everything is decided before anything is written. A submission that fails leaves no run folder behind; one whose answer
got lost is looked for in the queue by its script, so that no run is ever submitted twice.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.base.retries import is_there, retried
from graphmill.cluster.jobs.own_code import OwnCode
from graphmill.cluster.jobs.sbatch import Submission, check_with_slurm, find_lost, note, submit_script
from graphmill.cluster.jobs.script import render_script
from graphmill.cluster.jobs.sites import find_site
from graphmill.config.yaml_text import parse_value
from graphmill.record.checksums import renew_checksums
from graphmill.record.documents import SubmittedJob, read_document
from graphmill.record.run_folder import RunFolder, checked_run_id
from graphmill.runtime.snapshot import write_snapshot
from graphmill.runtime.trust import TRUST_VARIABLE, Code, remember, unnamed
from graphmill.slurm.commands import (
    SlurmSilentError,
)
from graphmill.slurm.queue import Queue, alive
from graphmill.spec.experiment import Experiment
from graphmill.spec.job.change import changed_job, differences
from graphmill.spec.job.resolve import Job, resolve_job
from graphmill.spec.job.site import Site
from graphmill.spec.job.work import TrainRuns
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.spec.world import world_of

_SITE_OPTION: Final = "slurm.site="


@dataclass(frozen=True, slots=True)
class JobRequest(ABC):
    """A job that could be submitted: every choice made, nothing written."""

    job: Job
    script: str
    folder: RunFolder
    dependency: str = ""  # in sbatch's syntax; overrides the script's
    changes: tuple[str, ...] = ()  # to what the last job of this folder asked for

    @property
    def submission(self) -> Submission:
        """What is passed to sbatch."""
        return Submission(self.folder.script_path, self.script, self.dependency)

    def write(self) -> None:
        """Write job.json and job.sbatch."""
        write_text(self.folder.job_path, self.job.model_dump_json(indent=2) + "\n")
        write_text(self.folder.script_path, self.script)
        renew_checksums(self.folder, [self.folder.job_path.name, self.folder.script_path.name])
        remember(code_of_job(self.folder))

    @abstractmethod
    def refuse_taken(self) -> None:
        """Raise a `UserError` if a new folder cannot be made."""

    @abstractmethod
    def new_folder(self) -> AbstractContextManager[None]:
        """Make the folder and lock it; it is removed if the block fails, unless a job may be queued that needs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest(JobRequest):
    """The job of one run."""

    plan: Plan
    logs_root: Path
    own_code: OwnCode | None = None  # what is to be copied for `job.code`; None: nothing, or it is there

    def write(self) -> None:
        """Write the copy of the user's code, job.json and job.sbatch."""
        write_code(self)
        JobRequest.write(self)

    def refuse_taken(self) -> None:
        """Raise a `UserError` if the run folder holds a run already."""
        if not self.folder.plan_path.exists():
            return
        jobs = self.folder.jobs()
        what = f"was submitted already, as job {jobs[-1].job_id}" if jobs else "holds a run already"
        raise UserError(
            f"{self.folder.path} {what}",
            fix=f"`graphmill watch {self.folder.path}` shows it, `graphmill submit --resume {self.folder.path}`"
            " continues it; or give another --run-id",
        )

    @contextmanager
    def new_folder(self) -> Iterator[None]:
        """Make the run folder and lock it."""
        folder = RunFolder.create(self.plan, self.logs_root)
        sources = [folder.source_path(name) for name in self.plan.sources]
        made = [folder.script_path, folder.job_path, folder.plan_path, folder.initial_weights_path, *sources]
        with kept_for_a_job(folder, made), folder.lock():
            yield


def plan_request(
    experiment: Experiment,
    site: Site,
    *,
    dataset_root: Path,
    folder: RunFolder,
    logs_root: Path,
    dependency: str = "",
    to_train: bool = False,
) -> RunRequest:
    """Make every choice: the job's size first, then the plan for such hosts, not for this one, then the script.

    `to_train`: prepare the data first, if they come with the package; else nothing is written.
    """
    from graphmill.estimate.batch_size import BatchSizes
    from graphmill.tasks.planning import plan_experiment, prepare_embedded

    if to_train:
        prepare_embedded(experiment, dataset_root.absolute())
    size = resolve_job(experiment, site)
    train = experiment.train.model_copy(update={"ranks": size.ranks})
    machine = MachineInfo(num_cores=size.cpus_per_host, num_gpus=size.gpus_per_host)

    def plan_of(variant: Experiment) -> Plan:
        return plan_experiment(
            variant,
            dataset_root=dataset_root.absolute(),
            run_id=str(folder.path.relative_to(logs_root)),
            machine=machine,
            hosts=size.hosts,
        )

    sizes = BatchSizes(logs_root, may_try=False)
    plan = sizes.plan(experiment.model_copy(update={"train": train}), plan_of)
    job = resolve_job(
        experiment, site, plan, run_folders=[str(folder.path)], python=python_here(), called_in=str(Path.cwd())
    )
    return RunRequest(job, render_script(job), folder, dependency, plan=plan, logs_root=logs_root)


def submit_new(request: JobRequest, environ: Mapping[str, str]) -> SubmittedJob:
    """Make the folder and submit the job. If that fails, nothing is left behind."""
    request.refuse_taken()
    check_with_slurm(request.submission, environ)
    with request.new_folder():
        request.write()
        job = submit_script(request.submission, environ)
        note([request.folder], [job])
        return job


def resubmit(request: JobRequest, environ: Mapping[str, str]) -> SubmittedJob:
    """Submit a job that continues the run of an existing folder. Refused while another job, or a process, trains it."""
    folder = request.folder
    with folder.lock():
        refuse_alive(folder)
        lost = None if folder.jobs() else find_lost(folder.script_path, looks=1)
        if lost is not None:
            folder.note_job(lost)
            refuse_alive(folder)
        check_with_slurm(request.submission, environ)
        request.write()
        folder.stop_path.unlink(missing_ok=True)
        job = submit_script(request.submission, environ, earlier=folder.jobs())
        job = job.model_copy(update={"changes": request.changes})
        note([folder], [job])
        return job


@contextmanager
def kept_for_a_job(folder: RunFolder, made: Sequence[Path]) -> Iterator[None]:
    """Remove a new folder and what was `made` in it if the block fails, unless a job may be queued that needs it."""
    try:
        yield
    except SlurmSilentError as error:
        raise UserError(
            f"{error.message}: whether the job was queued is not known; {folder.path} is kept for it",
            fix=f"`graphmill submit --resume {folder.path}` finds the job, or submits it",
        ) from None
    except BaseException:
        if not folder.jobs():
            for path in (*made, folder.jobs_path, folder.path / ".lock"):
                path.unlink(missing_ok=True)
            with suppress(OSError):  # someone else put a file there: it is kept
                folder.path.rmdir()
        raise


def refuse_alive(folder: RunFolder) -> None:
    """Raise a `UserError` if a job of this run waits or runs, or if Slurm cannot be queried."""
    refuse_alive_jobs(folder.jobs(), folder.path)


def refuse_alive_jobs(jobs: Sequence[SubmittedJob], path: Path) -> None:
    """Raise a `UserError` if one of these jobs is alive, or Slurm cannot be queried; `path`: their run or pipeline."""
    troubles = refuse_jobs_known_alive(jobs, path)
    if troubles:
        raise UserError(
            f"cannot query Slurm for the state of the jobs of {path}: {'; '.join(troubles)}",
            fix="try again when Slurm answers",
        )


def refuse_jobs_known_alive(jobs: Sequence[SubmittedJob], path: Path) -> tuple[str, ...]:
    """Raise a `UserError` if one of these jobs is known to be alive. Returns why Slurm could not be queried, if so."""
    queue = Queue()
    living = alive(jobs, queue.read(jobs))
    if living:
        verb = "waits in the queue" if living[0].phase == "waits" else f"runs on {living[0].hosts}"
        raise UserError(
            f"job {living[0].job_id} of {path} {verb}",
            fix=f"watch it with `graphmill watch {path}`, or `graphmill stop {path}` first",
        )
    return queue.troubles if jobs else ()


def write_code(request: RunRequest) -> None:
    """Write the copy of the user's code that the job imports, unless it is there."""
    if request.own_code is not None and request.job.code is not None:
        try:
            write_snapshot(request.own_code.files, Path(request.job.code.folder))
        except PermissionError as error:
            raise UserError(
                f"the copy of your own code cannot be written: {error.filename}: {error.strerror}",
                fix="let its owner give write permission to the group that shares the logs root, give another"
                " --logs-root, or submit without a copy: --no-code-snapshot",
            ) from None


def after(text: str, folder: RunFolder | None) -> str:
    """The dependency that `--after` means: on a job, or on the last job of a run; empty if it has succeeded already.

    What can never succeed is refused here: sbatch accepts it, and the job waits for ever, or starts at once.
    """
    if folder is not None:
        if folder.is_done():
            return ""
        job = _job_to_wait_for(folder)
    else:
        job = SubmittedJob(job_id=text, time=0.0)
    queue = Queue()
    reading = queue.read([job]).get(job.job_id)
    if reading is None and not queue.troubles:
        raise UserError(
            f"Slurm does not know job {job.job_id}", fix="name a job that waits, runs or has just succeeded"
        )
    if reading is not None and not reading.is_alive and not reading.has_succeeded:
        raise UserError(
            f"job {job.job_id} has ended as {reading.state}, so a job that waits for its success would never start",
            fix="correct it and submit it again first, or leave out --after",
        )
    return f"afterok:{job.job_id}"


def _job_to_wait_for(folder: RunFolder) -> SubmittedJob:
    jobs = folder.jobs()
    if not jobs:
        raise UserError(f"{folder.path} was never submitted, so no job can wait for it", fix="name a job, or submit it")
    if read_job(folder).on_time_limit == "resubmit":
        raise UserError(
            f"{folder.path} submits another job at its time limit, and the last one's id is not known yet",
            fix="give slurm.on_time_limit=requeue to the first run, or submit when it is done",
        )
    return jobs[-1]


def code_of_job(folder: RunFolder) -> list[Code]:
    """What a job of this folder runs before, and beside, the run's own code: its script, and what that is made of.

    Setup lines, a container and the interpreter are chosen in job.json, and a shell reads them.
    """
    paths = [path for path in (folder.script_path, folder.job_path) if is_there(path)]
    return [Code.of(path.name, retried(path, Path.read_bytes).decode(errors="replace")) for path in paths]


def refuse_foreign_job(folder: RunFolder) -> None:
    """Raise a `UserError` if the job that would be submitted again is not one that this person has submitted here."""
    foreign = unnamed(code_of_job(folder))
    if foreign:
        names = [code.target for code in foreign]
        raise UserError(
            f"{' and '.join(str(folder.path / name) for name in names)} was not submitted by you on this machine, or"
            " was changed since: to submit it is to run what it says in a shell",
            fix=f"read it; then {TRUST_VARIABLE}={','.join(names)} before the command, or submit anew from the"
            " experiment: `graphmill submit EXPERIMENT`",
        )


def read_job(folder: RunFolder) -> Job:
    """The job that a run was submitted with."""
    fix = "name the experiment as well: `graphmill submit EXPERIMENT --resume --run-id ID`"
    if not folder.job_path.exists():
        raise UserError(f"{folder.path} was not made by `graphmill submit`: it has no job.json", fix=fix)
    return read_document(folder.job_path, Job, fix)


def request_of(folder: RunFolder, *, dependency: str = "", options: Sequence[str] = ()) -> RunRequest:
    """The request that continues a run as it was submitted before: the same plan, job and script.

    `options`: overrides of what Slurm is asked for, such as `slurm.mem=8G`, and of how many hosts and ranks continue;
    the rest of the job stays.
    """
    refuse_foreign_job(folder)
    try:
        script = folder.script_path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{folder.script_path} cannot be read: {error.strerror}",
            fix="name the experiment: `graphmill submit EXPERIMENT --resume --run-id ID`",
        ) from None
    plan = folder.read_plan()
    logs_root = folder.logs_root(plan.run_id)
    request = RunRequest(read_job(folder), script, folder, dependency, plan=plan, logs_root=logs_root)
    return resized(request, options)


def resized(request: RunRequest, options: Sequence[str]) -> RunRequest:
    """The request with `options` as in `request_of`; `UserError` if its plan does not allow for so many ranks."""
    job = with_options(request.job, options) if options else request.job
    script = render_script(job) if options else request.script
    if isinstance(job.work, TrainRuns):
        world_of(request.plan, ranks=job.ranks, hosts=job.hosts)
    return replace(request, job=job, script=script, changes=differences(request.job, job))


def with_options(job: Job, options: Sequence[str]) -> Job:
    """The job with overrides of what Slurm is asked for, which may name another site."""
    sites = [text.partition("=")[2] for text in options if text.startswith(_SITE_OPTION)]
    others = [text for text in options if not text.startswith(_SITE_OPTION)]
    site = find_site(str(parse_value(sites[-1], source=_SITE_OPTION)) if sites else job.site)
    return changed_job(job, site, others)


def folder_for(run_id: str, logs_root: Path) -> RunFolder:
    """The folder of a new run; absolute, since the job starts in another directory."""
    return RunFolder(logs_root.absolute() / checked_run_id(run_id))


def python_here() -> str:
    """The interpreter for the job: the one that submits, by its absolute path."""
    return sys.executable or "python3"
