"""The state of runs, wherever they run: what Slurm says, else what the run folder shows."""

import shlex
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.foreign import quoted
from graphmill.cluster.launch.local_process import launcher_of
from graphmill.record.attempts import code_changes
from graphmill.record.documents import Outcome, SubmittedJob
from graphmill.record.endings import State
from graphmill.record.lines import last_lines
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.slurm.queue import JobReading, Queue, alive
from graphmill.slurm.states import explain_end, explain_reason

FRESH_S: Final = (
    180.0  # a live rank writes something at least this often: an epoch, a checkpoint, a line of the monitor
)
_TIME_TO_END_S: Final = 60.0  # of a job, after its run is done: the epilog
_WORDS: Final = 200  # characters of a line of a log that are shown

Source = Literal["squeue", "sacct", "process", "run folder"]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What metrics.csv says: its last row, and the best score so far."""

    epoch: int
    loss: float | None
    measure: str  # what the task is judged by on the validation split, such as micro-F1
    best: float | None  # of that, so far
    seeds_are: str  # nodes, windows, …
    seeds_per_s: float | None
    peak_rss_mib: float | None  # of rank 0


@dataclass(frozen=True, slots=True)
class RunView:
    """One run as it is shown to the user. Times are in seconds."""

    run: str
    folder: Path
    state: State
    source: Source  # of the state
    detail: str = ""
    advice: str = ""
    is_hopeless: bool = False
    job_id: str = ""
    slurm_state: str = ""
    slurm_reason: str = ""
    expected_start: int | None = None
    elapsed_s: float | None = None
    limit_s: float | None = None
    hosts: str = ""
    attempts: int = 0
    epochs: int | None = None  # None: its plan cannot be read, or it has none
    command: str = ""  # what a job runs in place of training
    begins_with: str = ""  # the run that it extends, or whose weights it began with
    progress: RunProgress | None = None
    silent_s: float | None = None  # since the last heartbeat
    log: Path | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it will continue without intervention."""
        return self.state in ALIVE

    @property
    def epoch_of_all(self) -> str:
        """Epochs done and in all, such as 3/10; - for a command."""
        if self.command:
            return "-"
        return f"{self.progress.epoch if self.progress else 0}/{'?' if self.epochs is None else self.epochs}"


ALIVE: Final[frozenset[State]] = frozenset(("waiting", "starting", "running", "closing"))


@dataclass(slots=True)
class Watcher:
    """Looks at many runs, again and again, with one call of squeue each time.

    If `queue.is_silent` after a look, runs that seem to have ended may be alive: look again.
    """

    folders: Sequence[RunFolder]
    root: Path | None = None  # names are shown relative to it
    queue: Queue = field(default_factory=Queue)
    _progress: dict[Path, tuple[tuple[int, int], RunProgress | None]] = field(default_factory=dict)
    _jobs: dict[Path, list[SubmittedJob]] = field(default_factory=dict)

    def look(self) -> list[RunView]:
        """The state of every run now. `queue.troubles` has the queries that failed."""
        asked: list[SubmittedJob] = []
        unread: dict[Path, UnreadableError | UserError] = {}
        for folder in self.folders:
            try:
                asked += self._jobs_to_ask_about(folder)
            except (UnreadableError, UserError) as error:
                unread[folder.path] = error
        readings = self.queue.read(asked)
        return [self._view_or_why_not(folder, readings, unread.get(folder.path)) for folder in self.folders]

    def _jobs_to_ask_about(self, folder: RunFolder) -> list[SubmittedJob]:
        known, now = self._jobs.get(folder.path, []), folder.jobs()
        for job in now[len(known) :]:
            self.queue.ask_again(job.job_id)  # a requeued job runs again under the same id
        self._jobs[folder.path] = now
        return [] if _is_long_done(folder) else now

    def _view_or_why_not(
        self, folder: RunFolder, readings: Mapping[str, JobReading], unread: UnreadableError | UserError | None
    ) -> RunView:
        """View of a run; a run that cannot be read now, or is damaged, does not hide the others."""
        try:
            if unread is None:
                return self._view(folder, readings)
        except (UnreadableError, UserError) as error:
            unread = error
        reading = _current(self._jobs.get(folder.path, []), readings)
        if isinstance(unread, UserError) and reading is not None and reading.is_alive:  # it computes all the same
            state: State = "waiting" if reading.phase == "waits" else "running"
            return RunView(
                self._name(folder), folder.path, state, reading.source, unread.message, unread.fix,
                job_id=reading.job_id, slurm_state=reading.state,
            )  # fmt: skip
        if isinstance(unread, UserError):
            return RunView(self._name(folder), folder.path, "damaged", "run folder", unread.message, unread.fix)
        return RunView(self._name(folder), folder.path, "unreadable", "run folder", str(unread), unread.fix)

    def _view(self, folder: RunFolder, readings: Mapping[str, JobReading]) -> RunView:
        jobs = self._jobs[folder.path]
        reading = _current(jobs, readings)
        verdict = judge(folder, reading, jobs, slurm_answered=not self.queue.troubles)
        epochs, begins_with, command = None, "", ""
        try:
            if folder.is_command():
                command = shlex.join(folder.read_command().words)
            else:
                plan = folder.read_plan()
                epochs, begins_with = plan.calendar.num_epochs, plan.begins_with
        except UserError as error:  # one run that is damaged does not hide the others
            if verdict.state not in ALIVE:
                verdict = RunStatus("damaged", "run folder", error.message, error.fix)
        attempts = folder.attempts()
        job_id = reading.job_id if reading is not None else jobs[-1].job_id if jobs else ""
        return RunView(
            run=self._name(folder),
            folder=folder.path,
            state=verdict.state,
            source=verdict.source,
            detail="; ".join(part for part in (verdict.detail, *code_changes(attempts).values()) if part),
            advice=verdict.advice,
            is_hopeless=verdict.is_hopeless,
            job_id=job_id,
            slurm_state="" if reading is None else reading.state,
            slurm_reason="" if reading is None else reading.reason,
            expected_start=reading.start if reading is not None and reading.phase == "waits" else None,
            elapsed_s=verdict.elapsed_s,
            limit_s=None if reading is None else reading.limit_s,
            hosts=_hosts(folder, reading),
            attempts=len(attempts),
            epochs=epochs,
            command=command,
            begins_with=begins_with,
            progress=self._last_row(folder),
            silent_s=_silence(folder),
            log=log_of(folder, job_id),
        )

    def _name(self, folder: RunFolder) -> str:
        if self.root is not None and folder.path.is_relative_to(self.root):
            return str(folder.path.relative_to(self.root)) if folder.path != self.root else folder.path.name
        return str(folder.path)

    def _last_row(self, folder: RunFolder) -> RunProgress | None:
        """Read metrics.csv only when it has changed."""
        try:
            status = folder.metrics_path.stat()
        except OSError:
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._progress.get(folder.path)
        if known is None or known[0] != stamp:
            self._progress[folder.path] = known = (stamp, _progress(folder))
        return known[1]


@dataclass(frozen=True, slots=True)
class RunStatus:
    """What a run is doing, and the source of that."""

    state: State
    source: Source
    detail: str = ""
    advice: str = ""
    is_hopeless: bool = False
    elapsed_s: float | None = None


def judge(
    folder: RunFolder, reading: JobReading | None, jobs: Sequence[SubmittedJob], *, slurm_answered: bool
) -> RunStatus:
    """The state of one run. A live job decides; of an ended one the outcome says more than Slurm does.

    `slurm_answered`: Slurm could be queried, so that a job without a reading is one that it has forgotten.
    """
    outcome = _outcome(folder)
    is_done = outcome is not None and outcome.status == "done"
    if (
        reading is not None and reading.is_alive and not (is_done and reading.phase == "waits")
    ):  # that finds nothing to do
        if is_done:
            return RunStatus("closing", reading.source, "done; the job is being closed", elapsed_s=reading.elapsed_s)
        return _alive_verdict(folder, reading)
    if outcome is not None:
        return _ended_verdict(folder, outcome, reading)
    if reading is not None:
        state: State = "stopped" if reading.is_cancelled else "preempted" if reading.state == "PREEMPTED" else "failed"
        told = f"Slurm says {reading.state}: {explain_end(reading.state)}"
        if state == "failed":
            told += _last_words(folder, reading.job_id)
        return RunStatus(state, reading.source, told, _resume_advice(folder), elapsed_s=reading.elapsed_s)
    if jobs:
        told = "Slurm does not know job" if slurm_answered else "Slurm could not be asked about job"
        return _by_signs_of_life(folder, f"{told} {jobs[-1].job_id}")
    return _local_verdict(folder)


def _last_words(folder: RunFolder, job_id: str) -> str:
    """The end of what a job's script printed that failed without an outcome: a module that is not there, Python."""
    log = job_log_of(folder, job_id)
    lines = tail(log, 1) if log is not None else []
    return f"; its log ends with: {lines[-1].strip()[:_WORDS]}" if lines else ""


def _alive_verdict(folder: RunFolder, reading: JobReading) -> RunStatus:
    if reading.phase == "waits":
        reason = explain_reason(reading.reason)
        return RunStatus("waiting", reading.source, reason.meaning, reason.advice, reason.is_hopeless)
    if reading.state == "COMPLETING":
        return RunStatus("closing", reading.source, elapsed_s=reading.elapsed_s)
    silence = _silence(folder)
    has_begun = silence is not None and (reading.elapsed_s is None or silence <= reading.elapsed_s)
    detail = "" if reading.state == "RUNNING" else f"Slurm says {reading.state}"
    if has_begun and silence is not None and silence > FRESH_S:
        detail = f"no heartbeat for {silence:.0f} s"
    return RunStatus("running" if has_begun else "starting", reading.source, detail, elapsed_s=reading.elapsed_s)


def _ended_verdict(folder: RunFolder, outcome: Outcome, reading: JobReading | None) -> RunStatus:
    detail = outcome.message
    if outcome.status == "done" and reading is not None and not reading.is_alive and not reading.has_succeeded:
        detail = f"but Slurm says {reading.state}: {explain_end(reading.state)}"
    advice = "" if outcome.status == "done" else _resume_advice(folder)
    elapsed_s = outcome.wall_s  # while its job is known the job's, which was shown so far: it began before the ranks
    if reading is not None and reading.elapsed_s is not None:
        elapsed_s = max(elapsed_s, reading.elapsed_s)
    return RunStatus(outcome.status, "run folder", detail, advice, elapsed_s=elapsed_s)


def _by_signs_of_life(folder: RunFolder, otherwise: str) -> RunStatus:
    silence = _silence(folder)
    if silence is not None and silence <= FRESH_S:
        return RunStatus("running", "run folder", f"last heartbeat {silence:.0f} s ago; {otherwise}")
    told = "no heartbeat yet" if silence is None else f"no heartbeat for {silence:.0f} s"
    return RunStatus("unresponsive", "run folder", f"{told}, and no outcome; {otherwise}", _resume_advice(folder))


def _local_verdict(folder: RunFolder) -> RunStatus:
    attempts = folder.attempts()
    if not attempts:
        return RunStatus("planned", "run folder", "never started")
    last = attempts[-1]
    if launcher_of(folder) is not None:
        return RunStatus("running", "process", f"process {last.pid} on this host", elapsed_s=time.time() - last.time)
    if last.hostname == socket.gethostname():
        told = f"process {last.pid} is gone and left no outcome"
        return RunStatus("unfinished", "process", told, _resume_advice(folder))
    return _by_signs_of_life(folder, f"it was started on {last.hostname}, not here")


def _resume_advice(folder: RunFolder) -> str:
    if folder.is_command():
        return f"run it again with `graphmill submit --resume {folder.path}`"
    verb = "submit" if folder.job_path.exists() else "train"
    return f"continue with `graphmill {verb} --resume {folder.path}`"


def _current(jobs: Sequence[SubmittedJob], readings: Mapping[str, JobReading]) -> JobReading | None:
    """The job that matters: the first that runs or waits, else the last that Slurm knows, if it is the last of all.

    Successors that were cancelled before they started do not count: they were no longer needed.
    """
    living = alive(jobs, readings)
    if living:
        return living[0]
    return next((readings.get(job.job_id) for job in reversed(jobs) if not _never_ran(job, readings)), None)


def _never_ran(job: SubmittedJob, readings: Mapping[str, JobReading]) -> bool:
    reading = readings.get(job.job_id)
    return job.how == "resubmit" and reading is not None and reading.is_cancelled and not reading.hosts


def log_of(folder: RunFolder, job_id: str) -> Path | None:
    """What was written to last: the log of rank 0, or what the job's script printed."""
    found = []
    for path in (folder.log_path(0), job_log_of(folder, job_id) if job_id else None):
        if path is not None:
            with suppress(OSError):
                found.append((path.stat().st_mtime_ns, path))
    return max(found)[1] if found else None


def job_log_of(folder: RunFolder, job_id: str) -> Path | None:
    """What the script of a job printed; that of an array prints into the folder that holds its runs."""
    places = (folder.job_log_path(job_id), RunFolder(folder.path.parent).job_log_path(job_id))
    return next((path for path in places if path.is_file()), None)


def tail(path: Path, num_lines: int) -> list[str]:
    """The last lines of a file, for a terminal."""
    return [quoted(line) for line in last_lines(path, num_lines)]


def _hosts(folder: RunFolder, reading: JobReading | None) -> str:
    if reading is not None:
        return reading.hosts
    attempts = folder.attempts()
    if not attempts:
        return ""
    last = attempts[-1]
    others = 0 if last.world is None else last.world.hosts - 1
    return f"{last.hostname} and {others} more" if others else last.hostname


def _silence(folder: RunFolder) -> float | None:
    beat = folder.heartbeat()
    return None if beat is None else max(0.0, time.time() - beat)


def _is_long_done(folder: RunFolder) -> bool:
    """Whether the run is done and its job had the time to end: Slurm need not be queried."""
    outcome = _outcome(folder)
    if outcome is None or outcome.status != "done":
        return False
    return time.time() - folder.outcome_path.stat().st_mtime > _TIME_TO_END_S


def _outcome(folder: RunFolder) -> Outcome | None:
    try:
        return folder.read_outcome()
    except UserError:  # damaged: `graphmill verify` says so
        return None


def _progress(folder: RunFolder) -> RunProgress | None:
    try:
        kind = folder.read_plan().kind
        rows = read_metrics(folder.metrics_path, is_growing=True)
        last, scores = rows[-1], (row.get(kind.best_column) for row in reversed(rows))
        return RunProgress(
            epoch=int(last["epoch"]),
            loss=_number(last.get("loss")),
            measure=kind.primary.words,
            best=_number(next(filter(None, scores), None)),  # the last epoch may not be evaluated
            seeds_are=kind.seeds_are,
            seeds_per_s=_number(last.get("seeds_per_s")),
            peak_rss_mib=_number(last.get("peak_rss_mib")),
        )
    except (UserError, UnreadableError, IndexError, KeyError, ValueError):  # damaged: `graphmill verify` says so
        return None


def _number(text: str | None) -> float | None:
    return float(text) if text else None
