"""`graphmill doctor --hosts N`: a job that looks at the hosts it is given, from its request to its report."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.cluster.jobs.examine_in_job import REPORT, SEEN_WITHIN_S
from graphmill.cluster.jobs.sbatch import Submission, check_with_slurm, submit_script
from graphmill.cluster.jobs.script import render_script
from graphmill.cluster.jobs.sites import find_site
from graphmill.cluster.jobs.submit import python_here
from graphmill.diagnose.job_hosts import JOB_SCRIPT, HostReport
from graphmill.record.documents import SubmittedJob, read_document
from graphmill.slurm.commands import SlurmError, scancel
from graphmill.slurm.queue import JobReading, Queue
from graphmill.slurm.states import explain_reason
from graphmill.spec.job.resolve import Job, resolve_job
from graphmill.spec.job.work import ExamineHosts
from graphmill.spec.load import DEFAULT_RECIPE, load_experiment

_LOOK_EVERY_S: Final = 1.0
_LINES: Final = 5  # of the job's output, in an error
# What it is asked for, unless the user names it: one process on each host, for a few minutes.
_OWN: Final = (
    *("slurm.job_name_prefix=graphmill-doctor", "slurm.time=10", "slurm.ranks_per_host=1"),
    *("slurm.on_time_limit=stop", "slurm.launcher=srun"),
)


@dataclass(frozen=True, slots=True)
class Examination:
    """A job that could be submitted; nothing is written."""

    job: Job
    folder: Path
    submission: Submission


def plan_examination(overrides: Sequence[str], folder: Path) -> Examination:
    """The job for hosts as `overrides` of the section `slurm` ask for them. What it finds is written to `folder`."""
    experiment = load_experiment(DEFAULT_RECIPE, [*_OWN, *overrides])
    site = find_site(experiment.slurm.site)
    resolved = resolve_job(experiment, site, run_folders=[str(folder)], python=python_here(), called_in=str(Path.cwd()))
    job = resolved.model_copy(update={"work": ExamineHosts(folder=str(folder))})
    return Examination(job, folder, Submission(folder / JOB_SCRIPT, render_script(job)))


def examine_hosts(examination: Examination, environ: Mapping[str, str], tell: Callable[[str], None]) -> HostReport:
    """Submit the job, wait for its end and return what it found. Whatever ends this before ends the job as well.

    `tell` is called with a sentence whenever the job's state has changed.
    """
    check_with_slurm(examination.submission, environ)
    examination.folder.mkdir(parents=True)
    write_text(examination.submission.script_path, examination.submission.script)
    job = submit_script(examination.submission, environ)
    tell(f"job {job.job_id}: {examination.folder}")
    try:
        last = _wait(job, tell)
    except BaseException:
        with suppress(SlurmError):
            scancel([job.job_id], cluster=job.cluster)
            tell(f"job {job.job_id} was cancelled")
        raise
    return _report(examination, job, last)


def _wait(job: SubmittedJob, tell: Callable[[str], None]) -> JobReading | None:
    """Wait until the job has ended. Returns the last state that Slurm reported; None: Slurm has forgotten the job."""
    queue, told = Queue(), ""
    while True:
        reading = queue.read([job]).get(job.job_id)
        if reading is None and not queue.troubles:
            return None
        if reading is not None and not reading.is_alive:
            return reading
        now = "Slurm does not answer" if reading is None else _state(reading)
        if now != told:
            tell(f"job {job.job_id} {now}" if reading is not None else now)
            told = now
        time.sleep(_LOOK_EVERY_S)


def _state(reading: JobReading) -> str:
    if reading.phase != "waits":
        return f"runs on {reading.hosts}"
    reason = explain_reason(reading.reason)
    if reason.is_hopeless:
        raise UserError(f"as asked for, the job will never start: {reason.meaning}", fix=reason.advice)
    return f"waits: {reason.meaning}"


def _report(examination: Examination, job: SubmittedJob, last: JobReading | None) -> HostReport:
    path = examination.folder / REPORT
    until = time.monotonic() + SEEN_WITHIN_S
    has_succeeded = last is None or last.has_succeeded
    while not path.exists() and has_succeeded and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
    if path.exists():
        return read_document(path, HostReport, "look again")
    outputs = sorted(examination.folder.glob("*.out"))
    said = outputs[-1].read_text(encoding="utf-8", errors="replace").splitlines()[-_LINES:] if outputs else []
    raise UserError(
        f"job {job.job_id} left no report; it ended as {last.state if last else 'unknown to Slurm'}"
        + "".join(f"\n  {line}" for line in said),
        fix=f"read what is in {examination.folder}",
    )
