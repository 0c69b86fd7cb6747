"""Slurm's own programs, called with lists of arguments: never a shell, never without a time limit.

Tested with 22.05 and 24.11. The output format is always given explicitly, and nothing in the user's environment may
change it: SQUEUE_FORMAT and the like are left out, times come as seconds.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from graphmill.base.amounts import span_of
from graphmill.base.errors import UserError
from graphmill.slurm.states import Phase, phase

QUERY_TIMEOUT_S: Final = 20.0  # squeue itself tries for a minute when the controller is away
SUBMIT_TIMEOUT_S: Final = 120.0
MAX_IDS: Final = 8000  # of one query: 128 KiB is the longest single argument that Linux passes on

# Slurm's address, our identity and its verbosity; all other SLURM_* variables belong to a job we may be running in.
_KEPT: Final = re.compile(r"SLURM_(CONF|CONF_SERVER|CLUSTERS|JWT|DEBUG.*)")
_OUR_FORMAT: Final = {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
_JOB_ID: Final = re.compile(r"[0-9]+(_[0-9]+)?")
_START: Final = re.compile(r"(to start at )(\d{9,})")
_SUBMITTED: Final = re.compile(r"([0-9]+)(?:;(\S+))?")
_UNREACHABLE: Final = re.compile(
    r"[Uu]nable to contact|[Cc]onnect(ion)? (failure|refused|timed out)|[Ss]ocket timed out|[Tt]imed out|"
    r"[Tt]ransport endpoint|[Zz]ero [Bb]ytes|in standby|Protocol authentication error|[Mm]unge|slurmdbd"
)
_OF_NO_CLUSTER: Final = re.compile(r"Could not establish a configuration source|Unable to process configuration file")
_GO_THERE: Final = "go to a login node of the cluster, or `module load slurm`"


class SlurmError(UserError):
    """One of Slurm's programs gave no useful answer."""


class SlurmMissingError(SlurmError):
    """The program is not on this machine, or the service behind it was never set up."""


class SlurmSilentError(SlurmError):
    """The program got no answer in time: the service behind it may be back in a moment."""


class SlurmKilledError(SlurmSilentError):
    """The program was ended by a signal, as all processes of a job are when Slurm ends it: it was heard, or was not."""


class SlurmRefusedError(SlurmError):
    """The request was answered, and refused."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What sbatch reported about a new job."""

    job_id: str
    cluster: str  # empty if sbatch named none, as is usual


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A line of squeue. Times are Unix times in seconds; None: not known to Slurm yet."""

    job_id: str  # 17, or 17_3
    state: str  # PENDING, RUNNING, COMPLETING, …
    reason: str
    elapsed_s: int | None
    limit_s: int | None
    num_hosts: int
    hosts: str  # as Slurm writes them: node[1-2]
    submitted: int | None
    start: int | None  # of a pending job: when Slurm expects it to start
    end: int | None
    slurm_partition: str
    command: str  # the path of the script, as sbatch was given it

    @property
    def phase(self) -> Phase:
        """Whether it waits, runs or has ended."""
        return phase(self.state)


def is_job_id(text: str) -> bool:
    """Whether `text` is written as a job id is: 17, or 17_3 for a task of an array."""
    return _JOB_ID.fullmatch(text) is not None


def find_program(name: str) -> str:
    """The path of one of Slurm's programs. Raises `SlurmMissingError` if it is not on PATH."""
    path = shutil.which(name)
    if path is None:
        raise SlurmMissingError(f"{name} is not on PATH here", fix=_GO_THERE)
    return path


def call(
    program: str,
    arguments: Sequence[str],
    *,
    stdin: str | None = None,
    timeout_s: float = QUERY_TIMEOUT_S,
    environ: Mapping[str, str] | None = None,
) -> tuple[str, str]:
    """Run one of Slurm's programs. Returns what it wrote to standard output and to standard error.

    Raises `SlurmMissingError`, `SlurmSilentError` (or `SlurmKilledError`) or `SlurmRefusedError`; the message holds the
    program's own words.
    """
    path = find_program(program)
    try:
        done = subprocess.run(
            [path, *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env=environment(os.environ if environ is None else environ),
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SlurmSilentError(
            f"{program} gave no answer within {timeout_s:.0f} s",
            fix="try again in a moment; see `sinfo` for whether Slurm is up",
        ) from None
    except OSError as error:
        raise SlurmMissingError(
            f"{path} cannot be run: {error.strerror}", fix="ask the administrators of the cluster"
        ) from None
    if done.returncode == 0:
        return done.stdout, done.stderr
    raise _failure(program, done)


def _failure(program: str, done: subprocess.CompletedProcess[str]) -> SlurmError:
    """Which of the errors it is that a program ended with."""
    said = " ".join((done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").split())
    if re.search(r"accounting storage is disabled|[Ss]lurm_accounting_storage|AccountingStorageType", said):
        return SlurmMissingError(
            f"{program}: {said}", fix="this cluster keeps no accounts; squeue and the run folder are left"
        )
    if done.returncode < 0:
        return SlurmKilledError(f"{program}: {said}", fix="try again in a moment")
    if is_silence(said):
        return SlurmSilentError(f"{program}: {said}", fix="try again in a moment")
    if why := _OF_NO_CLUSTER.search(said):
        what = f"{program} finds no Slurm cluster from here, neither a slurm.conf nor a controller in the DNS"
        return SlurmMissingError(f"{what}: {why[0]}", fix=_GO_THERE)
    if "node configuration" in said:
        return SlurmRefusedError(
            f"{program}: {said}",
            fix="no host has as many cores, GPUs or as much memory as is asked for: `--dry-run` shows the request,"
            " which a site profile made; give --site, or write one: `graphmill site probe`",
        )
    return SlurmRefusedError(f"{program}: {said}", fix="change what it names; `--dry-run` shows the whole request")


def is_silence(message: str) -> bool:
    """Whether a program says that the service behind it did not answer.

    >>> is_silence("srun: error: Unable to confirm allocation for job 3: Unable to contact slurm controller")
    True
    """
    return _UNREACHABLE.search(message) is not None


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what changes the output of Slurm's programs, or what a new job would inherit from ours."""
    dropped = ("SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_")
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(dropped) and (not name.startswith("SLURM_") or _KEPT.fullmatch(name))
    }
    return {**kept, **_OUR_FORMAT}


def sbatch(
    script: Path,
    *,
    options: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    timeout_s: float = SUBMIT_TIMEOUT_S,
) -> Submitted:
    """Submit a script."""
    out, _ = call("sbatch", ["--parsable", *options, str(script)], timeout_s=timeout_s, environ=environ)
    answers = [match for line in out.splitlines() if (match := _SUBMITTED.fullmatch(line.strip()))]
    if not answers:
        raise SlurmRefusedError(
            f"sbatch returned no job id, but: {out.strip()!r}", fix="look with `squeue --me` for the job"
        )
    return Submitted(answers[-1][1], answers[-1][2] or "")


def sbatch_test_only(script_text: str, *, options: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> str:
    """Ask sbatch whether it would accept a script, which need not be a file yet. Returns its answer."""
    out, err = call("sbatch", ["--test-only", *options], stdin=script_text, timeout_s=SUBMIT_TIMEOUT_S, environ=environ)
    return _START.sub(_local_time, " ".join((err or out).split()).removeprefix("sbatch: "))


def _local_time(match: re.Match[str]) -> str:
    """Format a time for people: we ask Slurm for seconds."""
    return f"{match[1]}{datetime.fromtimestamp(int(match[2])).astimezone():%Y-%m-%d %H:%M:%S %Z}"


_SQUEUE_FIELDS: Final = "%i|%T|%M|%l|%D|%N|%V|%S|%e|%P|%r|%o"


def squeue(job_ids: Iterable[str], *, cluster: str = "", timeout_s: float = QUERY_TIMEOUT_S) -> list[QueuedJob]:
    """What the controller knows of these jobs, in one call; jobs it has forgotten are left out.

    Array jobs come one line per task. With no ids: all jobs of this user.
    """
    ids = sorted(set(job_ids))
    asked = ["--me"] if not ids or len(ids) > MAX_IDS else [f"--jobs={','.join(ids)}"]
    where = [f"--clusters={cluster}"] if cluster else []
    arguments = ["--noheader", "--array", "--states=all", f"--format={_SQUEUE_FIELDS}", *asked, *where]
    try:
        out, _ = call("squeue", arguments, timeout_s=timeout_s)
    except SlurmRefusedError as error:
        if "Invalid job id" in error.message:  # of one job, long ended
            return []
        raise
    return [job for line in out.splitlines() if (job := _queued(line)) is not None]


def _queued(line: str) -> QueuedJob | None:
    cells = line.split("|", 11)  # the command may hold anything, so it comes last
    if len(cells) < 12 or not is_job_id(cells[0]):
        return None
    return QueuedJob(
        job_id=cells[0],
        state=cells[1],
        reason=cells[10],
        elapsed_s=_int_or_none(span_of(cells[2])),
        limit_s=_int_or_none(span_of(cells[3])),
        num_hosts=int(cells[4]) if cells[4].isdecimal() else 0,
        hosts=cells[5],
        submitted=_moment(cells[6]),
        start=_moment(cells[7]),
        end=_moment(cells[8]),
        slurm_partition=cells[9],
        command=cells[11],
    )


def scontrol(arguments: Sequence[str]) -> str:
    """Run `scontrol`; returns what it printed."""
    return call("scontrol", arguments)[0]


def srun(arguments: Sequence[str], *, timeout_s: float) -> str:
    """Run `srun` to its end; returns what it printed."""
    return call("srun", arguments, timeout_s=timeout_s)[0]


def scancel(job_ids: Sequence[str], *, signal: str = "", cluster: str = "") -> None:
    """End jobs, or, with `signal`, send it to the steps of running ones. Ended and unknown jobs are not an error."""
    how = [f"--signal={signal}"] if signal else []
    where = [f"--clusters={cluster}"] if cluster else []
    try:
        call("scancel", [*how, *where, *job_ids])
    except SlurmRefusedError as error:
        if "Invalid job id" not in error.message and "already completing" not in error.message:
            raise


def _moment(text: str) -> int | None:
    """A time as SLURM_TIME_FORMAT=%s has it; Slurm writes N/A, Unknown or None for no time, or 0."""
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _int_or_none(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)
