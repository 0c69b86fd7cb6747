"""The job that continues a run: this one again, requeued, or its successor (slurm.on_time_limit: resubmit).

A successor is submitted as soon as the attempt has begun and waits for the end of this job, whatever that is
(afterany): a job that is cancelled to make room for another, a host that dies with its driver and a power cut take
nothing with them. It looks before it begins. A run has one at a time: it is the only waiting job
that has the run's own script, so one whose number did not reach jobs.jsonl, because sbatch gave no answer or the driver
died in between, is found in the queue and not submitted twice.

Whether a job that was submitted in advance has anything to do, by what became of the job before it:

    what the run folder says    what Slurm says            the attempt before ended as    this job
    done                        anything                   done                           leaves
    out_of_time, preempted …    anything                   the same                       goes on
    failed, bad_request …       PREEMPTED, NODE_FAIL …     preempted, lost                goes on
    failed, bad_request …       anything else              the same                       leaves, or goes on
                                                                                          by slurm.retries
    stopped                     CANCELLED, or nothing      the same                       leaves
    stopped                     anything else              as if the run folder said      goes on
                                                           nothing: Slurm ended the ranks
    nothing                     PREEMPTED, NODE_FAIL …     preempted, lost                goes on
    nothing                     TIMEOUT                    out_of_time                    goes on
    nothing                     CANCELLED                  stopped: by a person           leaves
    nothing                     OUT_OF_MEMORY              failed                         leaves
    nothing                     FAILED, or nothing         lost: its driver is gone       goes on

A driver that has its say cancels its successor where nothing is to follow, or leaves word that a stop was requested.
What goes on is bounded as in any other job (`launch/attempt.py`): by `slurm.max_attempts` and by progress.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from graphmill.base.errors import UnreadableError, UserError
from graphmill.cluster.jobs.job_end import attempt_end
from graphmill.cluster.jobs.sbatch import sbatch_environment
from graphmill.cluster.launch.attempt import Follow, decide
from graphmill.cluster.launch.judge import Judgement, note_outcome
from graphmill.record.attempts import is_ours
from graphmill.record.documents import SubmittedJob
from graphmill.record.endings import ENDINGS, FAILED, Ending, EndingName
from graphmill.record.run_folder import RunFolder, best_effort_write
from graphmill.runtime.job_environment import JobEnvironment
from graphmill.slurm.commands import QueuedJob, SlurmError, SlurmSilentError, sbatch, sbatch_test_only, scancel
from graphmill.slurm.job import exclude_hosts, requeue, show_job
from graphmill.slurm.queue import Queue, jobs_of_script

_log = logging.getLogger(__name__)
T = TypeVar("T")

RUN_VARIABLE: Final = "GRAPHMILL_RUN"  # the next job of a script without a run folder of its own finds it here
_AFTER: Final = "afterany:"
_ANSWER_WITHIN_S: Final = 20.0  # of sbatch: a driver that waits for it takes no signals meanwhile
_TRY_EVERY_S: Final = 5.0
_MOST_LEFT_OUT: Final = 4
_TAKEN_AWAY: Final[Mapping[str, EndingName]] = {"PREEMPTED": "preempted", "NODE_FAIL": "lost", "BOOT_FAIL": "lost"}
_BY_SLURM: Final[Mapping[str, EndingName]] = {
    **_TAKEN_AWAY,
    "TIMEOUT": "out_of_time",
    "CANCELLED": "stopped",
    "DEADLINE": "stopped",
    "OUT_OF_MEMORY": "failed",
}
_ASK_FOR_S: Final = 60.0
_ASK_EVERY_S: Final = 3.0


def predecessor(jobs: Sequence[SubmittedJob], environ: Mapping[str, str]) -> str | None:
    """The job that this one was submitted in advance to continue; None if a person submitted this one."""
    own = JobEnvironment(environ).queue_id
    known = next((job for job in reversed(jobs) if job.job_id == own), None)
    dependency = JobEnvironment(environ).dependency if known is None else known.dependency
    is_successor = known is None or known.how == "resubmit"
    before = dependency.removeprefix(_AFTER).partition("(")[0]
    ran = any(job.job_id == before for job in jobs)
    return before if is_successor and dependency.startswith(_AFTER) and ran else None


def successor_of(job: str, jobs: Sequence[SubmittedJob]) -> SubmittedJob | None:
    """The recorded job that waits for the end of `job`."""
    mine = (known for known in reversed(jobs) if known.how == "resubmit" and known.dependency == f"{_AFTER}{job}")
    return next(mine, None)


def note_itself(folder: RunFolder, environ: Mapping[str, str]) -> None:
    """Record this job, if nothing has: it was submitted by hand, or by a driver that died before it could record it."""
    own, jobs = JobEnvironment(environ).queue_id, folder.jobs()
    if not own or any(job.job_id == own for job in jobs):
        return
    before = predecessor(jobs, environ)
    how = {} if before is None else {"how": "resubmit", "dependency": f"{_AFTER}{before}"}
    with best_effort_write():
        folder.note_job(SubmittedJob.model_validate({"job_id": own, "time": time.time(), **how}))


def prepare(folder: RunFolder, environ: Mapping[str, str]) -> SubmittedJob:
    """The successor of this job: as recorded, as found in the queue, or submitted now. Raises `SlurmError`."""
    own = JobEnvironment(environ).queue_id
    known = successor_of(own, folder.jobs())
    if known is not None:
        return known
    waiting = _waiting(folder, own)
    if waiting[1:]:  # sbatch gave no answer, and was heard later
        scancel([job.job_id for job in waiting[1:]])
    dependency, began = f"{_AFTER}{own}", time.time()
    if not waiting:
        script = folder.script_path.read_text(encoding="utf-8")
        environment = {**sbatch_environment(script, environ)[0], RUN_VARIABLE: str(folder.path)}
        options = [f"--dependency={dependency}"]
        new = sbatch(folder.script_path, options=options, environ=environment, timeout_s=_ANSWER_WITHIN_S)
        number, cluster = new.job_id, new.cluster
    else:
        number, cluster = waiting[0].job_id, ""
    job = SubmittedJob(job_id=number, time=began, cluster=cluster, how="resubmit", dependency=dependency)
    with best_effort_write():  # it is found in the queue all the same
        folder.note_job(job)
    return job


def cancel(folder: RunFolder, environ: Mapping[str, str]) -> None:
    """Cancel the successors of this job. One that cannot be cancelled now leaves by itself when it starts."""
    own = JobEnvironment(environ).queue_id
    known = successor_of(own, folder.jobs())
    try:
        numbers = {job.job_id for job in _waiting(folder, own)} | ({known.job_id} if known else set())
        if numbers:
            scancel(sorted(numbers))
    except SlurmError as error:
        if known is not None:
            _log.info(f"job {known.job_id} will find nothing to do; it could not be cancelled: {error.message}")
        if not folder.is_done():
            with best_effort_write():
                folder.ask_to_stop()  # it reads this when it starts


def cancelled_successor(folder: RunFolder, environ: Mapping[str, str]) -> str:
    """The successor, if someone cancelled it: nothing is to follow this job. "": it waits, or that is not known."""
    known = successor_of(JobEnvironment(environ).queue_id, folder.jobs())
    reading = None if known is None else Queue().read([known]).get(known.job_id)
    return reading.job_id if reading is not None and reading.is_cancelled else ""


def retry(
    folder: RunFolder, way: Follow, environ: Mapping[str, str], *, until: float, lost_hosts: Sequence[str] = ()
) -> None:
    """Requeue this job, or see to its successor. Slurm ends this job at a requeue: little runs after it.

    A controller that is away is asked again until `until` (Unix time, s). Then, or where Slurm refuses, a `UserError`,
    which the outcome of the run keeps, too. `lost_hosts` are left out if Slurm can do without them.
    """
    if way == "next_job":
        _log.info("the next job of the chain continues")
        return
    job = JobEnvironment(environ)
    own = job.queue_id
    left_out = _to_leave_out(folder, own, lost_hosts, environ)
    try:
        if way == "requeue":
            note_requeue(folder, own)
            _persist(lambda: requeue(own, restarts=job.num_restarts), until)
            follows = own
        else:
            follows = _persist(lambda: prepare(folder, environ), until).job_id
            _log.info(f"job {follows} follows")
    except (SlurmError, OSError) as error:
        what = error.message if isinstance(error, SlurmError) else str(error)
        problem = f"no job continues the run: {what}"
        _note_problem(folder, problem, environ)
        raise UserError(problem, fix=f"graphmill submit --resume {folder.path}") from None
    if left_out:
        _leave_out(follows, left_out)


def note_requeue(folder: RunFolder, job_id: str) -> None:
    """Record that this job is to begin again, with the runs that it holds."""
    together = next((job.side_by_side for job in reversed(folder.jobs()) if job.job_id == job_id), 1)
    folder.note_job(SubmittedJob(job_id=job_id, time=time.time(), how="requeue", side_by_side=together))


def _to_leave_out(folder: RunFolder, job_id: str, lost: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Hosts that the next attempt is to leave out: those that were lost, besides what the job leaves out already.

    None where Slurm could then never start it: it would wait for ever.
    """
    if not lost:
        return []
    try:
        names = list(dict.fromkeys([*show_job(job_id).excluded_hosts, *lost]))
        if len(names) > _MOST_LEFT_OUT:
            _log.info(f"{', '.join(lost)} may be used again: {_MOST_LEFT_OUT} hosts at most are left out")
            return []
        script = folder.script_path.read_text(encoding="utf-8")
        environment = sbatch_environment(script, environ)[0]
        sbatch_test_only(script, options=[f"--exclude={','.join(names)}"], environ=environment)
    except (SlurmError, OSError) as error:
        _log.info(f"{', '.join(lost)} may be used again: {error}")
        return []
    return names


def _leave_out(job: str, hosts: Sequence[str]) -> None:
    try:
        _persist(lambda: exclude_hosts(job, hosts), time.time() + 4, 1.0)
    except SlurmError as error:
        _log.info(f"{', '.join(hosts)} may be used again: {error.message}")
        return
    _log.info(f"job {job} leaves out {', '.join(hosts)}")


def _persist(act: Callable[[], T], until: float, every_s: float = _TRY_EVERY_S) -> T:
    """Call it until it is answered."""
    is_told = False
    while True:
        try:
            return act()
        except SlurmSilentError as error:
            if time.time() + every_s >= until:
                raise
            if not is_told:
                _log.warning(f"Slurm does not answer; asked again for {until - time.time():.0f} s: {error.message}")
            is_told = True
            time.sleep(every_s)


def _note_problem(folder: RunFolder, problem: str, environ: Mapping[str, str]) -> None:
    """Note the problem in the outcome, unless the run was meanwhile started again elsewhere."""
    with best_effort_write(), suppress(UnreadableError):
        attempts = folder.attempts()
        if attempts and not is_ours(attempts[-1], JobEnvironment(environ).job_id):
            return
        outcome = folder.read_outcome() if folder.plan_path.exists() else None  # a pipeline's folder has none
        if outcome is not None:
            message = f"{outcome.message}; {problem}" if outcome.message else problem
            folder.write_outcome(outcome.model_copy(update={"message": message}))


def _waiting(folder: RunFolder, job_id: str) -> list[QueuedJob]:
    """Our other jobs that wait with this run's script, the first submitted first."""
    return [job for job in jobs_of_script(folder.script_path) if job.job_id != job_id and job.phase == "waits"]


def ending_before(recorded: EndingName | None, state: str) -> Ending:
    """How the attempt before ended, by the run folder and by Slurm's word for its job; "": Slurm does not know it.

    >>> ending_before(None, "CANCELLED").name, ending_before("stopped", "PREEMPTED").name, ending_before(None, "").name
    ('stopped', 'preempted', 'lost')
    """
    if recorded is None or (recorded == "stopped" and state):  # SIGTERM came to the ranks: it says not from whom
        return ENDINGS[_BY_SLURM.get(state, "lost")]
    if recorded == "done" or ENDINGS[recorded].retried:
        return ENDINGS[recorded]
    return ENDINGS[_TAKEN_AWAY.get(state, recorded)]


def why_leave(folder: RunFolder, environ: Mapping[str, str], *, max_attempts: int, retries: int) -> str:
    """Why this job has nothing to do; "" if it goes on, as one does that a person has submitted."""
    before, attempts = predecessor(folder.jobs(), environ), folder.attempts()
    if before is None or not attempts:
        return ""
    if folder.is_asked_to_stop():
        return "a stop was requested (graphmill stop)"
    told: EndingName | None = None
    may_pass = False
    with suppress(UserError):  # damaged: Slurm's word is left
        outcome = folder.read_outcome()
        told, may_pass = (None, False) if outcome is None else (outcome.status, outcome.may_pass)
    if told == "done":
        return "the run is done"
    state = "" if told is not None and ENDINGS[told].retried else _state(before)
    ending = ending_before(told, state)
    judgement = Judgement(ending, None, may_pass=may_pass and ending is FAILED)
    end = attempt_end(folder, judgement, tries_left=0, retries=retries)
    decision = decide(end, on_time_limit="resubmit", max_attempts=max_attempts)
    if decision.step == "retry":
        return ""
    why = f"job {before} ended{f' as {state}' if state else ''}; {decision.reason}"
    if told is None:
        note_outcome(folder, judgement, attempts[-1].time, message=why)
    return why


def _state(job: str) -> str:
    """Slurm's word for an ended job; "" if it does not know it, or does not answer for a minute."""
    queue, known = Queue(), SubmittedJob(job_id=job, time=0.0)
    until = time.monotonic() + _ASK_FOR_S
    while True:
        reading = queue.read([known]).get(job)
        if reading is not None or not queue.is_silent or time.monotonic() >= until:
            return "" if reading is None else reading.state
        time.sleep(_ASK_EVERY_S)
