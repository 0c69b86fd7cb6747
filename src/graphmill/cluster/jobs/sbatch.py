"""The one call of sbatch: what is passed to it, its answer, and the job whose answer got lost.

A job is looked for in the queue by its script then, so that no run is ever submitted twice.
"""

import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.record.documents import SubmittedJob
from graphmill.record.run_folder import RunFolder
from graphmill.slurm.commands import (
    QueuedJob,
    SlurmError,
    SlurmMissingError,
    SlurmSilentError,
    sbatch,
    sbatch_test_only,
    scancel,
)
from graphmill.slurm.queue import JobReading, Queue, jobs_of_script

_LOOKS: Final = 3  # for a job whose sbatch gave no answer
_LOOK_EVERY_S: Final = 0.25

# Variables that set an option of sbatch, and override the script's own lines: a user's default may fill what the
# script leaves open, but it changes no choice that was made, and no other SBATCH_ variable is passed on.
_OPTION_OF: Final[Mapping[str, str]] = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_CLUSTERS": "clusters",
}
_TAKEN: Final = re.compile(r'^: "\$\{(\w+):\?is not set', re.MULTILINE)
_SBATCH_LINE: Final = re.compile(r"^#SBATCH\s+--([a-z-]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Submission:
    """What is passed to sbatch."""

    script_path: Path
    script: str
    dependency: str = ""  # in sbatch's syntax; overrides the script's

    @property
    def options(self) -> tuple[str, ...]:
        """Options of sbatch besides the script's own."""
        return (f"--dependency={self.dependency}",) if self.dependency else ()

    @property
    def command(self) -> tuple[str, ...]:
        """The command that will be run."""
        return ("sbatch", "--parsable", *self.options, str(self.script_path))


def sbatch_environment(script: str, environ: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The environment for sbatch, and which of the user's SBATCH_ variables count in it."""
    said = set(_SBATCH_LINE.findall(script))
    counts = tuple(sorted(name for name, option in _OPTION_OF.items() if environ.get(name) and option not in said))
    kept = {name: value for name, value in environ.items() if not name.startswith("SBATCH_") or name in counts}
    return kept, counts


def refuse_unset(script: str, environ: Mapping[str, str]) -> None:
    """`UserError` if a variable that the job takes from here is not set: it would end at its first line.

    sbatch passes on all that it is called with, to the job, to the same job requeued, and by the job to its successor.
    """
    missing = [name for name in _TAKEN.findall(script) if not environ.get(name)]
    if missing:
        raise UserError(
            f"the job takes {', '.join(missing)} from here, where it is not set",
            fix=f"export {' '.join(f'{name}=…' for name in missing)}, then give the same command once more",
        )


def check_with_slurm(submission: Submission, environ: Mapping[str, str]) -> str:
    """Ask sbatch whether it would accept the job. Returns its answer: when and where the job would start."""
    refuse_unset(submission.script, environ)
    environment, _ = sbatch_environment(submission.script, environ)
    return sbatch_test_only(submission.script, options=submission.options, environ=environment)


def submit_script(
    submission: Submission, environ: Mapping[str, str], *, earlier: Sequence[SubmittedJob] = ()
) -> SubmittedJob:
    """Call sbatch. A job whose answer got lost is looked for in the queue, `earlier` jobs of the script excluded."""
    refuse_unset(submission.script, environ)
    began = time.time()
    environment, _ = sbatch_environment(submission.script, environ)
    try:
        answer = sbatch(submission.script_path, options=submission.options, environ=environment)
    except (SlurmSilentError, KeyboardInterrupt):
        lost = find_lost(submission.script_path, looks=_LOOKS, not_in={_number(job) for job in earlier})
        if lost is None:
            raise
        return lost
    return SubmittedJob(job_id=answer.job_id, time=began, cluster=answer.cluster, dependency=submission.dependency)


def note(folders: Sequence[RunFolder], jobs: Sequence[SubmittedJob]) -> None:
    """Record the job ids in the run folders; a job whose id cannot be recorded is cancelled."""
    for folder, job in zip(folders, jobs, strict=True):
        try:
            folder.note_job(job)
        except OSError as error:
            with suppress(SlurmError):
                scancel([_number(job)], cluster=job.cluster)
            raise UserError(
                f"job {job.job_id} was submitted, but {folder.jobs_path} cannot be written ({error.strerror}), so it"
                " was cancelled again",
                fix="make room, or give another --logs-root",
            ) from None


def first_state(job: SubmittedJob, *, within_s: float) -> JobReading | None:
    """The state of a new job, once Slurm has considered it, or when the time is over.

    sbatch accepts many a job that can never start; the pending reason shows it a moment later.
    """
    until = time.monotonic() + within_s
    reading = None
    while True:
        with suppress(SlurmError):
            reading = Queue().read([job]).get(job.job_id)
        if (reading is not None and (reading.reason not in ("", "None"))) or time.monotonic() >= until:
            return reading
        if reading is not None and reading.phase != "waits":
            return reading
        time.sleep(_LOOK_EVERY_S)


def find_lost(script_path: Path, *, looks: int, not_in: Collection[str] = ()) -> SubmittedJob | None:
    """A job of ours whose id sbatch did not return: the one that has this script."""
    for _ in range(looks):
        try:
            jobs = jobs_of_script(script_path)
        except SlurmMissingError:
            return None
        except SlurmError:
            jobs = []
        numbers = {_number(job): job for job in jobs}
        found = [(number, job) for number, job in numbers.items() if number not in not_in]
        if found:
            number, job = max(found, key=lambda pair: int(pair[0]))
            return SubmittedJob(job_id=number, time=float(job.submitted or time.time()))
        time.sleep(_LOOK_EVERY_S)
    return None


def _number(job: SubmittedJob | QueuedJob) -> str:
    """The job id that sbatch reports; the tasks of an array share it."""
    return job.job_id.partition("_")[0]
