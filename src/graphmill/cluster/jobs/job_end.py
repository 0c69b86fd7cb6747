"""The end of an attempt inside a job: what Slurm means by a SIGTERM, the job's log and epilog, what follows."""

import logging
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.foreign import printable
from graphmill.cluster.launch.attempt import AttemptEnd, Decision
from graphmill.cluster.launch.judge import TAIL_LINES, Judgement
from graphmill.record.endings import EndingName
from graphmill.record.events import DamagedCheckpoint, E, Start, events_in
from graphmill.record.lines import last_lines
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.deadline import Reserve
from graphmill.runtime.job_environment import JobEnvironment
from graphmill.slurm.commands import SlurmError
from graphmill.slurm.job import job_deadline, kill_wait_s, show_job

_log = logging.getLogger(__name__)

_EPILOG_NEEDS_S: Final = 20.0  # sacct may be slow, and what follows is worth more than a summary
SAVE_WITHIN: Final = 0.6  # of the time between SIGTERM and SIGKILL; the rest is for the requeue, or the next job
_PATIENCE_S: Final = 900.0  # with a controller that is away: it does not end the job meanwhile, either


@dataclass(frozen=True, slots=True)
class Cause:
    """Why Slurm asks the ranks to leave."""

    ending: EndingName
    is_requeued: bool = False  # by Slurm itself: nothing is left to do here
    is_known: bool = True  # False: the controller did not say; a successor asks again when it starts
    is_cancelled: bool = False  # by Slurm's own word, whoever got a signal


def why_terminated(environ: Mapping[str, str]) -> Cause:
    """Why Slurm ends this job, by its controller. If it gives no reason, the job was cancelled, and nothing follows.

    Of a job that runs, and is to run on, it gives none either.
    """
    own = JobEnvironment(environ)
    try:
        shown = show_job(own.queue_id)
    except SlurmError as error:
        _log.info(f"Slurm does not say why it ends the ranks, if it does: {error.message}")
        return Cause("stopped", is_known=False)
    if shown.restarts > own.num_restarts:
        return Cause("preempted", is_requeued=True)
    if shown.is_out_of_time:
        return Cause("out_of_time")
    if shown.is_preempted:
        return Cause("preempted")
    return Cause("stopped", is_known=bool(shown.fields), is_cancelled=shown.is_cancelled)


def retries_left(folder: RunFolder, retries: int) -> int:
    """How many of the retries are left, since a person has submitted the run."""
    submitted = max((job.time for job in folder.jobs() if job.how == "submit"), default=0.0)
    attempts = [attempt for attempt in folder.attempts() if attempt.time >= submitted]
    return max(0, retries - sum(attempt.is_retry for attempt in attempts[1:]))


def attempt_end(folder: RunFolder, judgement: Judgement, *, tries_left: int, retries: int) -> AttemptEnd:
    """What the latest attempt achieved, from the run folder."""
    attempts = folder.attempts()
    before = attempts[-1].steps_saved
    saved: int | None = None
    with suppress(UnreadableError):
        saved = folder.steps_saved()
    return AttemptEnd(
        ending=judgement.ending,
        number=len(attempts),
        steps_before=before,
        steps_saved=saved,
        after_idle=len(attempts) > 1 and _is_idle(attempts[-2].steps_saved, before),
        tries_left=tries_left,
        is_second_in_job=attempts[-1].is_second_in_job,
        retries_left=retries_left(folder, retries) if judgement.may_pass else 0,
    )


def _is_idle(before: int | None, after: int | None) -> bool:
    """Whether an attempt saved nothing, or nothing was known before and after it. One that is not known is no sign."""
    if before is None or after is None:
        return before is after
    return after <= before


def least_of_attempt(folder: RunFolder) -> float:
    """What starting the ranks of the latest attempt took, and what they kept back to end in good order, in seconds.

    With less, an attempt saves nothing. 0: they did not get that far.
    """
    starts = _of_latest_attempt(folder, Start)
    if not starts:
        return 0.0
    return starts[-1].time - folder.attempts()[-1].time + Reserve(start_s=starts[-1].process_s or 0.0).needed_s


def _of_latest_attempt(folder: RunFolder, kind: type[E]) -> list[E]:
    """Events of rank 0; none where there is no such file, or a damaged one: `graphmill verify` says so."""
    try:
        began = folder.attempts()[-1].time
        return [event for event in events_in(folder.events_path(0), kind) if event.time >= began]
    except (OSError, UserError, UnreadableError):
        return []


def report_failure(folder: RunFolder, judgement: Judgement) -> None:
    """Write the first error to the job's log, before anything else."""
    if judgement.is_saved:
        return
    first = judgement.first
    said: list[str] = []
    if folder.is_command():
        said = last_lines(folder.log_path(0), TAIL_LINES)
    elif first is not None and first.process is not None:
        said = last_lines(folder.log_path_of(folder.world().role_rank(first.process)), TAIL_LINES)
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
    for damaged in _of_latest_attempt(folder, DamagedCheckpoint):
        _log.warning(f"{damaged.checkpoint} was damaged, and passed over at the start: {damaged.problem}")
    outcome = folder.read_outcome()
    if outcome is None:
        _log.warning(f"{folder.outcome_path} could not be written")
    # An error stands above the epilog with what its rank printed, and here in one line: it is the end that is read.
    why = f" ({outcome.message})" if outcome and outcome.message else ""
    follows = f"{decision.step.replace('_', ' ')}: {decision.reason}"
    _log.info(f"attempt {end.number} ended: {judgement.ending.name}{why}; {follows}")
    if decision.step == "give_up" and judgement.ending.name != "bad_request":
        verb = "run it again" if folder.is_command() else "continue"
        sys.stderr.write(f"  → {verb} with `graphmill submit --resume {folder.path}`\n")
        sys.stderr.flush()


def _epilog(folder: RunFolder, environ: Mapping[str, str]) -> None:
    """Summaries must not cost the job its outcome: any error here is logged and ignored."""
    try:
        from graphmill.diagnose.epilog import epilog_text, write_epilog

        text = epilog_text(write_epilog(folder, JobEnvironment(environ).job_id or None)).rstrip("\n")
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()
    except Exception as error:  # noqa: BLE001  # see above
        _log.info(f"no epilog: {type(error).__name__}: {error}")


def patience_until(environ: Mapping[str, str], *, in_haste: bool) -> float:
    """Time (Unix, s) until which to ask a controller that does not answer. `in_haste`: SIGKILL is near."""
    if in_haste:
        return time.time() + (1 - SAVE_WITHIN) * kill_wait_s()
    return time.time() + max(_PATIENCE_S, min(job_deadline(environ).remaining_s(), 4 * _PATIENCE_S))
