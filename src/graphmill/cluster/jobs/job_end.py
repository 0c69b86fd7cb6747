"""The end of an attempt inside a job: what Slurm means by a SIGTERM, the job's log and epilog, what follows."""

import logging
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from graphmill.base.errors import UnreadableError, UserError
from graphmill.cluster.launch.attempt import AttemptEnd, Decision, Follow
from graphmill.cluster.launch.judge import Judgement, tail
from graphmill.record.documents import SubmittedJob
from graphmill.record.endings import EndingName
from graphmill.record.manifest import saved_steps
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.deadline import job_deadline
from graphmill.slurm.commands import SlurmError, scontrol

_log = logging.getLogger(__name__)

_EPILOG_NEEDS_S: Final = 20.0  # sacct may be slow, and what follows is worth more than a summary
_REQUEUE_TIMEOUT_S: Final = 60.0
_FIELD: Final = re.compile(r"(?:^|\s)(JobState|Reason|Restarts|PreemptTime)=(\S+)")
_NOT_SET: Final = (None, "None", "N/A", "Unknown", "NONE")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why Slurm asks the ranks to leave."""

    ending: EndingName
    is_requeued: bool = False  # by Slurm itself: nothing is left to do here


def why_terminated(environ: Mapping[str, str]) -> Cause:
    """Why Slurm ends this job, by its controller. If it gives no reason, the job was cancelled, and nothing follows."""
    try:
        said = dict(_FIELD.findall(scontrol(["show", "job", environ.get("SLURM_JOB_ID", ""), "-o"])))
    except SlurmError as error:
        _log.info(f"SIGTERM received; Slurm does not say why, so the attempt is not retried: {error.message}")
        return Cause("stopped")
    restarts = int(environ.get("SLURM_RESTART_COUNT") or 0)
    if int(said.get("Restarts", "0")) > restarts:
        return Cause("preempted", is_requeued=True)
    if said.get("Reason") == "TimeLimit" or said.get("JobState") == "TIMEOUT":
        return Cause("out_of_time")
    if said.get("JobState") == "PREEMPTED" or said.get("PreemptTime") not in _NOT_SET:
        return Cause("preempted")
    return Cause("stopped")


def attempt_end(folder: RunFolder, judgement: Judgement, *, tries_left: int) -> AttemptEnd:
    """What the latest attempt achieved, from the run folder."""
    attempts = folder.attempts()
    before = attempts[-1].steps_saved
    try:
        saved = saved_steps(folder.checkpoints_dir)
    except UnreadableError:
        saved = before
    return AttemptEnd(
        ending=judgement.ending,
        number=len(attempts),
        steps_before=before,
        steps_saved=saved,
        after_idle=len(attempts) > 1 and attempts[-2].steps_saved >= before,
        tries_left=tries_left,
    )


def report_failure(folder: RunFolder, judgement: Judgement) -> None:
    """Write the first error to the job's log, before anything else."""
    if judgement.is_saved:
        return
    first = judgement.first
    said = [] if first is None or first.rank is None else tail(folder.log_path(first.rank))
    sys.stderr.write(judgement.report([] if judgement.ending.name == "lost" else said, log=None, resume=None))
    sys.stderr.flush()


def report_end(
    folder: RunFolder,
    judgement: Judgement,
    end: AttemptEnd,
    decision: Decision,
    environ: Mapping[str, str],
    *,
    in_haste: bool,
) -> None:
    """Write to the job's log: the epilog, then how the attempt ended and what follows. `in_haste`: SIGKILL is near."""
    left_s = 0.0 if in_haste else job_deadline(environ).remaining_s()
    if left_s < _EPILOG_NEEDS_S:  # Slurm would end the driver in the middle of it, and call a good job TIMEOUT
        _log.info(f"no epilog: {max(0.0, left_s):.0f} s are left of the job")
    else:
        _epilog(folder, environ)
    outcome = folder.read_outcome()
    if outcome is None:
        _log.warning(f"{folder.outcome_path} could not be written")
    why = f" ({outcome.message})" if outcome and outcome.message and judgement.is_saved else ""
    follows = f"{decision.step.replace('_', ' ')}: {decision.reason}"
    _log.info(f"attempt {end.number} ended: {judgement.ending.name}{why}; {follows}")
    if decision.step == "give_up" and judgement.ending.name != "bad_request":
        sys.stderr.write(f"  → continue with `graphmill submit --resume {folder.path}`\n")
        sys.stderr.flush()


def _epilog(folder: RunFolder, environ: Mapping[str, str]) -> None:
    """Summaries must not cost the job its outcome: any error here is logged and ignored."""
    try:
        from graphmill.diagnose.epilog import epilog_text, write_epilog

        sys.stderr.write(epilog_text(write_epilog(folder, environ.get("SLURM_JOB_ID"))).rstrip("\n") + "\n")
        sys.stderr.flush()
    except Exception as error:  # noqa: BLE001  # see above
        _log.info(f"no epilog: {type(error).__name__}: {error}")


def retry(folder: RunFolder, way: Follow, environ: Mapping[str, str]) -> None:
    """Requeue this job, or submit the next one. Slurm ends this job at a requeue: nothing runs after it."""
    if way == "next_job":
        _log.info("the next job of the chain continues")
        return
    job = environ.get("SLURM_JOB_ID", "")
    if way == "requeue":
        folder.note_job(SubmittedJob(job_id=job_name(environ), time=time.time(), how="requeue"))
        _run(["scontrol", "requeue", job], environ, f"graphmill submit --resume {folder.path}")
        return
    dependency = f"afterany:{job}"
    command = ["sbatch", "--parsable", f"--dependency={dependency}", str(folder.script_path)]
    inherited = {name: value for name, value in environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    kept = {name: environ[name] for name in ("SLURM_CONF",) if name in environ}
    answer = _run(command, {**inherited, **kept, RUN_VARIABLE: str(folder.path)}, f"sbatch {folder.script_path}")
    number, _, cluster = answer.strip().partition(";")
    folder.note_job(
        SubmittedJob(job_id=number, time=time.time(), cluster=cluster, how="resubmit", dependency=dependency)
    )
    _log.info(f"job {number} follows")


RUN_VARIABLE: Final = "GRAPHMILL_RUN"  # the next job of a script without a run folder of its own finds it here


def job_name(environ: Mapping[str, str]) -> str:
    """The job id as a user knows it: `17`, or `17_3` for a task of an array."""
    array = environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{environ['SLURM_ARRAY_TASK_ID']}" if array else environ.get("SLURM_JOB_ID", "")


def _run(command: list[str], environ: Mapping[str, str], instead: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_REQUEUE_TIMEOUT_S, check=True, env=dict(environ)
        )
    except subprocess.CalledProcessError as error:
        what = error.stderr.strip() or f"exit status {error.returncode}"
        raise UserError(f"{command[0]} {command[1]} was refused: {what}", fix=instead) from None
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{command[0]} cannot be run here: {error}", fix=instead) from None
    return done.stdout
