"""After the ranks of a job have ended: how did it go, who failed first, what is said, what is set going."""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.cluster.launch.attempt import AttemptEnd, Decision, Ending, Way, ending_of
from graphmill.record.events import read_events
from graphmill.record.manifest import saved_steps
from graphmill.record.run_folder import Attempt, Outcome, RunFolder, Status, SubmittedJob
from graphmill.runtime.deadline import job_deadline

Events = list[dict[str, Any]]

LOST_A_PEER: Final = re.compile(
    r"by peer|[Bb]roken pipe|remote (process|worker|rank)|ncclRemoteError|[Ss]ocket (closed|Timeout)|timed out|gloo"
)
_TAIL_LINES: Final = 30
_SAID_BY_SRUN: Final = re.compile(
    r"^srun: error: (?P<host>\S+): tasks? (?P<ranks>[\d,\- ]+): (?P<what>.+)$", re.MULTILINE
)
_EPILOG_NEEDS_S: Final = 20.0  # sacct may be slow, and what follows is worth more than a summary
_REQUEUE_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure that came first, as far as the ranks and srun have told."""

    rank: int
    host: str
    what: str
    log: Path
    code: int | None = None  # its exit status, by its own word

    def in_words(self) -> str:
        """For a message."""
        if self.code == exits.LOST_A_RANK:  # it says that another rank fell silent
            return f"{self.what}; so says rank {self.rank} on {self.host}"
        if self.code == exits.BAD_REQUEST:  # the plan, the dataset, the hosts: no matter which rank says so first
            return self.what
        return f"rank {self.rank}{f' on {self.host}' if self.host else ''} failed first: {self.what}"

    def tail(self) -> list[str]:
        """The last lines that the rank wrote; none where they only repeat what is said already."""
        if self.code == exits.LOST_A_RANK:
            return []
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        return lines[-_TAIL_LINES:]


def judge(
    folder: RunFolder, status: int, environ: Mapping[str, str], *, tries_left: int = 0, struck: bool = False
) -> AttemptEnd:
    """How the latest attempt ended; `status` is srun's. The ranks' own word counts, where they left one.

    `struck`: the time limit has struck, and the ranks are still in a round.
    """
    attempts = folder.attempts()
    attempt = attempts[-1]
    ending = _ending(folder, status, attempt)
    if struck and ending == "failed":
        ending = "out_of_time"
    if ending != "done" and not (ending == "port_busy" and tries_left):
        with suppress(OSError):  # no room, or read-only: perhaps what ended the ranks, and that is told first
            _note_outcome(folder, ending, status, attempt, environ)
    return AttemptEnd(
        ending=ending,
        number=len(attempts),
        steps_before=attempt.steps_saved,
        steps_saved=saved_steps(folder.checkpoints_dir),
        after_idle=len(attempts) > 1 and attempts[-2].steps_saved >= attempt.steps_saved,
        tries_left=tries_left,
    )


def is_ours(attempt: Attempt, environ: Mapping[str, str]) -> bool:
    """Whether it is this job, on this host, that began the attempt.

    A host that was cut off may outlive its job: Slurm has given it up, and the run goes on elsewhere.
    """
    return attempt.job_id == environ.get("SLURM_JOB_ID", "") and attempt.hostname == socket.gethostname()


def _ending(folder: RunFolder, status: int, attempt: Attempt) -> Ending:
    outcome = folder.read_outcome()
    word = None if outcome is None else outcome.status
    by_rank = _events_of(folder, attempt)
    codes = {event.get("exit_code") for events in by_rank for event in events if event["kind"] == "error"}
    started = any(event["kind"] == "start" for events in by_rank for event in events)
    ended_well = status in (exits.DONE, exits.OUT_OF_TIME) or all(_ended_well(events) for events in by_rank)
    ending = ending_of(status) if status not in (exits.DONE, exits.OUT_OF_TIME) else "failed"
    if word == "done":
        ending = "done"
    elif exits.PORT_BUSY in codes and not started:
        ending = "port_busy"
    elif exits.LOST_A_RANK in codes:
        ending = "lost"
    elif word == "out_of_time" and ended_well:  # torchrun makes 1 of every status but 0
        ending = "out_of_time"
    elif exits.BAD_REQUEST in codes:
        ending = "bad_request"
    return ending


def _ended_well(events: Events) -> bool:
    return bool(events) and events[-1]["kind"] in ("stop", "finish")


def _events_of(folder: RunFolder, attempt: Attempt) -> list[Events]:
    """By rank: what it told since the attempt began. A damaged file tells nothing."""
    found: list[Events] = []
    for rank in range(folder.read_plan().ranks):
        path = folder.events_path(rank)
        try:
            events = read_events(path) if path.exists() else []
        except UserError:
            events = []
        found.append([event for event in events if event["time"] >= attempt.time])
    return found


def first_failure(folder: RunFolder, attempt: Attempt, environ: Mapping[str, str]) -> Failure | None:
    """A rank's own error first, unless it only says that it lost another; then what srun saw; then the silent rank."""
    by_rank = _events_of(folder, attempt)
    errors = [event for events in by_rank for event in events if event["kind"] == "error"]
    own = [event for event in errors if not LOST_A_PEER.search(str(event.get("message")))]
    if own:
        return _told(folder, min(own, key=lambda event: float(event["time"])), by_rank)
    seen = _seen_by_srun(folder, environ)
    if seen is not None:
        return seen
    silent = [
        rank for rank, events in enumerate(by_rank) if not any(e["kind"] in ("error", "stop", "finish") for e in events)
    ]
    if silent and errors:
        return Failure(silent[0], _host(by_rank[silent[0]]), "ended without a word", folder.log_path(silent[0]))
    return _told(folder, min(errors, key=lambda event: float(event["time"])), by_rank) if errors else None


def _told(folder: RunFolder, event: dict[str, Any], by_rank: list[Events]) -> Failure:
    rank = int(event["rank"])
    what = (str(event.get("message")).splitlines() or [""])[0]
    return Failure(rank, _host(by_rank[rank]), what, folder.log_path(rank), event.get("exit_code"))


def _host(events: Events) -> str:
    return next((str(event["hostname"]) for event in events if event.get("hostname")), "")


def _seen_by_srun(folder: RunFolder, environ: Mapping[str, str]) -> Failure | None:
    """The first rank that srun reports as ended badly, in the job's log."""
    own = Path("/proc/self/fd/2").resolve()  # what the script prints, wherever that goes
    log = own if own.is_file() else folder.job_log_path(_job_name(environ))
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    begin = text.rfind("graphmill: attempt ")
    for found in _SAID_BY_SRUN.finditer(text, max(0, begin)):
        rank = int(re.split(r"[,\- ]", found["ranks"].strip())[0])
        return Failure(rank, found["host"], found["what"].lower(), folder.log_path(rank))
    return None


_STATUS: Final[Mapping[Ending, Status]] = {
    "out_of_time": "out_of_time",
    "lost": "lost",
    "interrupted": "interrupted",
}

_EXIT_CODE: Final[Mapping[Ending, int]] = {
    "out_of_time": exits.OUT_OF_TIME,
    "lost": exits.LOST_A_RANK,
    "bad_request": exits.BAD_REQUEST,
    "failed": exits.ANSWER_IS_NO,
    "port_busy": exits.ANSWER_IS_NO,
}


def _note_outcome(folder: RunFolder, ending: Ending, status: int, attempt: Attempt, environ: Mapping[str, str]) -> None:
    """Write the outcome that the ranks could not write, or could not know."""
    known = folder.read_outcome()
    wanted = _STATUS.get(ending, "failed")
    first = first_failure(folder, attempt, environ)
    if known is not None and known.status == wanted and (first is None or first.rank == 0 or ending == "out_of_time"):
        return
    folder.write_outcome(
        Outcome(
            status=wanted,
            exit_code=_EXIT_CODE.get(ending, status),
            epochs=known.epochs if known else 0,
            steps_per_rank=known.steps_per_rank if known else saved_steps(folder.checkpoints_dir),
            test=known.test if known else None,
            best=known.best if known else None,
            wall_s=time.time() - attempt.time,
            message=first.in_words() if first else _without_a_word(ending, status),
        )
    )


def _without_a_word(ending: Ending, status: int) -> str:
    if ending == "out_of_time":
        return "the time limit struck within a round, which took longer than the time kept back for it"
    return f"the ranks ended with status {status} and said nothing"


def tell(folder: RunFolder, end: AttemptEnd, decision: Decision, environ: Mapping[str, str]) -> None:
    """Into the job's log: the first error before all else, then the epilog, then what follows."""
    attempt = folder.attempts()[-1]
    lines: list[str] = []
    if end.ending not in ("done", "out_of_time"):
        first = first_failure(folder, attempt, environ)
        lines += [f"error: {first.in_words() if first else 'the ranks failed and said nothing'}"]
        lines += [f"  | {line}" for line in (first.tail() if first else [])]
        lines += [] if folder.read_outcome() else [f"graphmill: {folder.outcome_path} could not be written"]
    _print(lines)
    left_s = job_deadline(environ).remaining_s()
    if left_s < _EPILOG_NEEDS_S:  # Slurm would end the script in the middle of it, and call a good job TIMEOUT
        _print([f"graphmill: no epilog: {max(0.0, left_s):.0f} s are left of the job"])
    else:
        _epilog(folder, environ)
    outcome = folder.read_outcome()
    told = f" ({outcome.message})" if outcome and outcome.message and end.ending == "out_of_time" else ""
    follows = f"{decision.step.replace('_', ' ')}: {decision.reason}"
    _print([f"graphmill: attempt {end.number} ended: {end.ending}{told}; {follows}"])
    if decision.step == "give_up" and end.ending in ("out_of_time", "lost", "failed"):
        _print([f"  → continue with `graphmill submit --resume {folder.path}`"])


def _epilog(folder: RunFolder, environ: Mapping[str, str]) -> None:
    """Summaries must not cost the job its outcome: whatever goes wrong here is said, and no more."""
    try:
        from graphmill.diagnose.epilog import epilog_text, write_epilog

        _print(epilog_text(write_epilog(folder, environ.get("SLURM_JOB_ID"))).splitlines())
    except Exception as error:  # noqa: BLE001  # see above
        _print([f"graphmill: no epilog: {type(error).__name__}: {error}"])


def go_on(folder: RunFolder, way: Way, environ: Mapping[str, str]) -> None:
    """Requeue this job, or submit the one that follows it. Slurm ends this job at a requeue: nothing comes after."""
    job = environ.get("SLURM_JOB_ID", "")
    if way == "requeue":
        folder.note_job(SubmittedJob(job_id=_job_name(environ), time=time.time(), how="requeue"))
        _run(["scontrol", "requeue", job], environ, f"graphmill submit --resume {folder.path}")
        return
    dependency = f"afterany:{job}"
    command = ["sbatch", "--parsable", f"--dependency={dependency}", str(folder.script_path)]
    inherited = {name: value for name, value in environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    kept = {name: environ[name] for name in ("SLURM_CONF",) if name in environ}
    answer = _run(command, {**inherited, **kept, "GRAPHMILL_RUN": str(folder.path)}, f"sbatch {folder.script_path}")
    number, _, cluster = answer.strip().partition(";")
    folder.note_job(
        SubmittedJob(job_id=number, time=time.time(), cluster=cluster, how="follow_up", dependency=dependency)
    )
    _print([f"graphmill: job {number} follows"])


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


def _job_name(environ: Mapping[str, str]) -> str:
    """The id under which a person knows the job: `17`, or `17_3` for a task of an array."""
    array = environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{environ['SLURM_ARRAY_TASK_ID']}" if array else environ.get("SLURM_JOB_ID", "")


def _print(lines: list[str]) -> None:
    if lines:
        sys.stderr.write("\n".join([*lines, ""]))
        sys.stderr.flush()
