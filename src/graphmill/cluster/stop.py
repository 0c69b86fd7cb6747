"""Stop a run wherever it runs: ask for a checkpoint first, insist later."""

import logging
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from graphmill.base.errors import UserError
from graphmill.cluster.launch.local_process import launcher_of
from graphmill.record.run_folder import RunFolder
from graphmill.slurm.commands import SlurmError, scancel
from graphmill.slurm.queue import JobReading, Queue, alive

if TYPE_CHECKING:
    import psutil

_log = logging.getLogger(__name__)

ASK_WITH: Final = "TERM"  # USR2 only makes a run look at its clock: it may have hours left
_LOOK_EVERY_S: Final = 1.0
_TO_LEAVE_S: Final = 60.0  # a cancelled job gets SIGTERM, then SIGKILL after KillWait, 30 s as a rule
_TICK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class StopTarget:
    """What of a run is alive."""

    folder: RunFolder
    jobs: tuple[JobReading, ...]
    process: "psutil.Process | None"

    @property
    def is_alive(self) -> bool:
        """Whether there is anything to stop."""
        return bool(self.jobs) or self.process is not None

    def describe(self) -> str:
        """What would be stopped."""
        jobs = [f"job {job.job_id} ({job.state.lower()}{' on ' + job.hosts if job.hosts else ''})" for job in self.jobs]
        return ", ".join([*jobs, *([f"process {self.process.pid}"] if self.process is not None else [])])


def find_targets(folders: list[RunFolder]) -> list[StopTarget]:
    """What of these runs is alive: one query of the queue for all. Raises if Slurm cannot be queried."""
    jobs = {folder.path: folder.jobs() for folder in folders}
    queue = Queue()
    everything = [job for known in jobs.values() for job in known]
    readings = queue.read(everything) if everything else {}
    if queue.troubles and any(job.job_id not in readings for job in everything):
        raise UserError(
            f"cannot query Slurm for these jobs: {'; '.join(queue.troubles)}", fix="try again when Slurm answers"
        )
    return [StopTarget(folder, tuple(alive(jobs[folder.path], readings)), launcher_of(folder)) for folder in folders]


def refuse_neighbours(targets: list[StopTarget]) -> None:
    """Raise a `UserError` if a job to be stopped holds runs that are not to be."""
    for target in targets:
        for job in target.jobs:
            known = next((each for each in reversed(target.folder.jobs()) if each.job_id == job.job_id), None)
            named = sum(any(other.job_id == job.job_id for other in each.jobs) for each in targets)
            if known is not None and known.side_by_side > named and job.phase == "runs":
                raise UserError(
                    f"job {job.job_id} holds {known.side_by_side} runs side by side (study submit --pack), and all"
                    f" would be stopped with {target.folder.path}",
                    fix=f"stop them all: graphmill stop {job.job_id}",
                )


def stop(targets: list[StopTarget], *, now: bool, grace_s: float) -> None:
    """Stop everything that is alive in `targets`.

    Running ranks are asked to save and leave, and get `grace_s` for it; a job that waits has nothing to save and is
    cancelled at once. With `now`, everything is.
    """
    for target in targets:
        if target.jobs:
            target.folder.ask_to_stop()  # first, or the job would continue after its checkpoint
    _cancel([job for target in targets for job in target.jobs if now or job.phase == "waits"])
    asked = [] if now else [target for target in targets if any(job.phase == "runs" for job in target.jobs)]
    running = [job for target in asked for job in target.jobs if job.phase == "runs"]
    if running:
        what = "to leave" if all(target.folder.is_command() for target in asked) else "for a checkpoint"
        _log.info(
            f"asked {what}: job {', '.join(job.job_id for job in running)}; waiting up to {grace_s:.0f} s for it to"
            " leave, then it is cancelled. The stop stands: Ctrl-C here ends the waiting only"
        )
        scancel([job.job_id for job in running], signal=ASK_WITH)
    for target in targets:
        if target.process is not None:
            _ask_process(target.process, now=now)
    until = time.monotonic() + grace_s
    _await_processes([target.process for target in targets if target.process is not None], until)
    left = _await_jobs(asked, until)
    if left:
        _log.info(f"still there, so it is cancelled: job {', '.join(job.job_id for job in left)}")
        _cancel(left)
    late = _await_jobs([target for target in targets if target.jobs], time.monotonic() + _TO_LEAVE_S)
    if late:
        _log.info(f"cancelled, but not gone yet: job {', '.join(job.job_id for job in late)}")


def _cancel(jobs: list[JobReading]) -> None:
    if jobs:
        scancel([job.job_id for job in jobs])


def _ask_process(process: "psutil.Process", *, now: bool) -> None:
    """Ask a launcher to stop: SIGTERM, which it passes on to the ranks, or two interrupts, to stop at once."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        if not now:
            process.send_signal(signal.SIGTERM)  # type: ignore[no-untyped-call]  # psutil ships no types
            return
        process.send_signal(signal.SIGINT)  # type: ignore[no-untyped-call]  # psutil ships no types
        time.sleep(_TICK_S)  # two at once would count as one
        process.send_signal(signal.SIGINT)  # type: ignore[no-untyped-call]  # psutil ships no types


def _await_processes(processes: "list[psutil.Process]", until: float) -> None:
    import psutil

    for process in processes:
        try:
            process.wait(timeout=max(_TICK_S, until - time.monotonic()))  # type: ignore[no-untyped-call]
        except psutil.TimeoutExpired:
            _log.info(f"process {process.pid} is still there, so it is killed; its ranks go with it")
            process.kill()  # type: ignore[no-untyped-call]


def _await_jobs(targets: list[StopTarget], until: float) -> list[JobReading]:
    """Wait for the jobs to leave. Returns those that did not."""
    queue = Queue()
    jobs = [job for target in targets for job in target.folder.jobs()]
    left = [job for target in targets for job in target.jobs]
    while left:
        with suppress(SlurmError):
            readings = queue.read(jobs)
            if not queue.troubles:
                left = alive(jobs, readings)
        waiting = [job for job in left if job.phase == "waits"]
        if waiting:  # it was requeued before it saw that it shall not be
            _cancel(waiting)
        if left and time.monotonic() >= until:
            return left
        if left:
            time.sleep(_LOOK_EVERY_S if time.monotonic() + _LOOK_EVERY_S < until else _TICK_S)
    return []
