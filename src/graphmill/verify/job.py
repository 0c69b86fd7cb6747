"""How did the run end, and what does Slurm say of its job? Which run is a job's?"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from graphmill.base.amounts import shown_clock
from graphmill.base.errors import UnreadableError, UserError
from graphmill.record.attempts import code_changes
from graphmill.record.documents import Outcome
from graphmill.record.endings import DONE, ENDINGS
from graphmill.record.judged import can_be_best
from graphmill.record.run_folder import RunFolder, find_runs
from graphmill.slurm.accounting import Accounted
from graphmill.slurm.job import folders_of
from graphmill.spec.early_stopping import Patience
from graphmill.verify.accounting import Accounts, accounts_of
from graphmill.verify.check import Check, NotYet, in_a_line, judged
from graphmill.verify.evidence import Evidence

_WHY = {
    "FAILED": "the script or a step of it ended with an error; the job's log says which",
    "TIMEOUT": "time limit reached; `graphmill submit --resume` continues",
    "CANCELLED": "cancelled, or a job it depended on failed",
    "NODE_FAIL": "a host was lost",
    "OUT_OF_MEMORY": "it used more memory than it had asked for",
    "PREEMPTED": "another job took its hosts",
    "DEADLINE": "its deadline has passed",
    "BOOT_FAIL": "a host did not boot",
    "REQUEUED": "it waits to run again",
    "PENDING": "it waits to run",
    "RUNNING": "it is still running",
    "COMPLETING": "it is just ending",
    "SUSPENDED": "it is suspended",
}
_ENDED_BADLY = ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL")
_ENDING = ("RUNNING", "COMPLETING")


def checks(evidence: Evidence) -> Iterator[Check]:
    """The outcome, the attempts; the accounting if the run was a Slurm job."""
    outcome = evidence.outcome
    took = f"done in {outcome.wall_s:.1f} s" if isinstance(outcome, Outcome) else ""
    attempts = evidence.attempts if isinstance(evidence.attempts, list) else []
    counted = f"{len(attempts)} start{'s' if len(attempts) > 1 else ''}"
    yield judged("job", "outcome", lambda: _outcome(evidence), took)
    yield judged("job", "attempts", lambda: _attempts(evidence), counted)
    changed = code_changes(attempts)
    if changed:
        yield Check("job", "code", "warn", f"{'; '.join(changed.values())}: the run is not one program's")
    if evidence.folder.jobs_path.exists() or evidence.folder.job_path.exists():
        yield from _slurm(evidence)


def _outcome(evidence: Evidence) -> Iterator[str]:
    outcome, plan = evidence.outcome, evidence.plan
    if outcome is None:
        yield NotYet("none: running, or killed before it could write an outcome; --resume continues it")
        return
    if isinstance(outcome, str):
        yield outcome
        return
    if outcome.status != "done":
        ended = f"{outcome.status} after {outcome.epochs} epochs: {outcome.message or 'no reason'}"
        yield NotYet(ended) if ENDINGS[outcome.status].resumable else ended
        return
    if outcome.exit_code != 0:
        yield f"done, but its exit code is {outcome.exit_code}"
    if outcome.epochs != plan.calendar.num_epochs:
        yield f"done after {outcome.epochs} epochs, but {plan.calendar.num_epochs} were planned"
    if outcome.steps_per_rank != plan.last_step:
        yield f"done after {outcome.steps_per_rank} steps of each rank, but {plan.last_step} were planned"
    if not outcome.test:
        yield "done, but the test split was not evaluated"
    if not outcome.best:
        yield "done, but no checkpoint was the best"
    yield from _stopped_early(evidence, outcome)
    yield from _time(evidence, outcome)


def _stopped_early(evidence: Evidence, outcome: Outcome) -> Iterator[str]:
    """Whether the run ended at the evaluation at which its rule says so, by what the ranks measured."""
    planned, measure = evidence.planned, evidence.plan.kind.measures[0]
    for log in evidence.throughout if planned.early_stopping.patience else []:
        patience, due = Patience(), None
        for epoch in sorted(filter(can_be_best, log.val)):
            patience = patience.after(log.val[epoch].measures[measure.name], measure, planned.early_stopping)
            if due is None and patience.is_over(planned.early_stopping) and epoch < planned.calendar.num_epochs:
                due = epoch
        if due != (outcome.epochs if outcome.stopped_early else None):
            ended = f"after epoch {outcome.epochs}" if outcome.stopped_early else "at the planned end"
            yield f"done {ended}, but rank {log.rank}'s evaluations are due to stop it {_after(due)}"
    if outcome.stopped_early and not planned.early_stopping.patience:
        yield "done before the planned end, but early_stopping.patience is 0"


def _after(epoch: int | None) -> str:
    return "at the planned end" if epoch is None else f"after epoch {epoch}"


def _time(evidence: Evidence, outcome: Outcome) -> Iterator[str]:
    first = evidence.logs[0] if evidence.logs and evidence.logs[0].rank == 0 else None
    if first is None or first.finish is None or not first.starts:
        return
    worked_s = first.finish.time - first.starts[-1].time
    if not outcome.wall_s >= max(0.0, worked_s - 1.0):  # the clock may be set a little while the run continues
        yield f"done in {outcome.wall_s:.1f} s, but rank 0 worked for {worked_s:.1f} s by its events"


def _attempts(evidence: Evidence) -> Iterator[str]:
    if isinstance(evidence.attempts, str):
        yield evidence.attempts
        return
    if not evidence.attempts:
        yield "attempts.jsonl has no start"
        return
    told = max((len(log.starts) for log in evidence.logs), default=0)
    if told > len(evidence.attempts):
        yield f"attempts.jsonl has {len(evidence.attempts)} starts, but a rank started {told} times"


def _slurm(evidence: Evidence) -> Iterator[Check]:
    try:
        accounts = accounts_of(evidence.folder)
    except (UserError, UnreadableError, OSError) as error:
        is_there = evidence.folder.sacct_path.exists()
        yield Check("job", "state", "fail" if is_there else "warn", f"unknown: {in_a_line(error)}")
        return
    job = accounts.last
    if job is None:
        yield Check("job", "state", "fail", f"no job in the accounts ({accounts.source})")
        return
    outcome = evidence.outcome
    yield _state(accounts, job, is_done=isinstance(outcome, Outcome) and outcome.status == DONE.name)
    yield judged("job", "hosts", lambda: _hosts(evidence, job), f"{job.num_hosts}: {job.hosts}")
    limit = "no limit" if job.limit_s is None else f"a limit of {shown_clock(job.limit_s)}"
    yield judged("job", "elapsed", lambda: _elapsed(job), f"{shown_clock(job.elapsed_s or 0)} of {limit}")


def _state(accounts: Accounts, job: Accounted, *, is_done: bool) -> Check:
    """COMPLETED, and no step of it otherwise.

    A job may be preempted when its run is done already, and Slurm 24.11 remembers a preemption through a requeue.
    """
    by = f"job {job.job_id}, by {accounts.source}"
    bad_steps = [step for step in accounts.steps_of(job) if step.state in _ENDED_BADLY]
    ended = job.state not in _ENDING or not accounts.is_record
    if job.state == "PREEMPTED" and is_done:
        return Check("job", "state", "warn", f"PREEMPTED ({by}), and the run is done all the same")
    if (job.state != "COMPLETED" or job.exit_code) and ended:
        why = _WHY.get(job.state, "Slurm gives no other reason")
        code = f", exit status {job.exit_code}" if job.exit_code else ""
        return Check("job", "state", "fail", f"{job.state}{code}: {why} ({by})")
    if bad_steps:
        step = bad_steps[0]
        return Check("job", "state", "fail", f"{job.state}, but its step {step.step} is {step.state} ({by})")
    if job.state != "COMPLETED":
        wrote = "the job itself wrote its accounts, just before its end"
        return Check("job", "state", "warn", f"how it ended is known on the cluster only: {wrote} ({by})")
    return Check("job", "state", "ok", f"COMPLETED ({by})")


def _hosts(evidence: Evidence, job: Accounted) -> Iterator[str]:
    planned = evidence.last_world.hosts
    if job.num_hosts != planned:
        yield f"job {job.job_id} had {job.num_hosts} hosts ({job.hosts}), but {planned} were planned"


def _elapsed(job: Accounted) -> Iterator[str]:
    if job.elapsed_s is None:
        yield "the accounts do not say how long it ran"
    elif job.limit_s is not None and job.elapsed_s > job.limit_s + 60:  # Slurm looks every 30 s
        yield f"ran {shown_clock(job.elapsed_s)}, longer than its limit of {shown_clock(job.limit_s)}"


def find_job(job_id: str, logs_root: Path) -> RunFolder | None:
    """The run that `job_id` ran: by jobs.jsonl below the logs root, else below the folder that the job worked in."""
    for run in find_runs(logs_root) if logs_root.is_dir() else []:
        if _ran(run, job_id):
            return run
    for folder in folders_of(job_id):
        if RunFolder(folder).plan_path.is_file():
            return RunFolder(folder)
        below = folder / logs_root.name
        for run in find_runs(below) if below.is_dir() else []:
            if _ran(run, job_id):
                return run
    return None


def _ran(run: RunFolder, job_id: str) -> bool:
    with suppress(UserError, OSError):
        return any(job.job_id == job_id for job in run.jobs())
    return False
