"""Several runs in one job at a time: cells of a study that are small, on a host that is not.

Each has a driver of its own, in a thread, and its steps take its share of the job (`srun --exact`). Whatever ends one
run leaves the others alone; when all have ended, the job is requeued once for those that have not finished.
"""

import logging
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from graphmill.base import exits
from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.messages import about
from graphmill.cluster.jobs import job_end, next_job
from graphmill.cluster.jobs.driver import Driver
from graphmill.cluster.jobs.srun_step import Signals
from graphmill.cluster.launch.attempt import Decision
from graphmill.record.endings import ENDINGS
from graphmill.record.run_folder import RunFolder, best_effort_write
from graphmill.runtime.job_environment import JobEnvironment

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class SharedSignals:
    """The signals of the job, for every driver its own copy: each passes a warning on to its own ranks."""

    each: list[Signals] = field(default_factory=list)

    def install(self) -> None:
        """Handle what a driver alone would."""
        signal.signal(signal.SIGTERM, self._terminate)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._warn)

    def _terminate(self, number: int, frame: object) -> None:
        del number, frame
        for signals in self.each:
            signals.terminated = True

    def _warn(self, number: int, frame: object) -> None:
        del frame
        for signals in self.each:
            signals.warnings.append(number)


def train_side_by_side(drivers: Sequence[Driver], folders: Sequence[RunFolder], environ: Mapping[str, str]) -> int:
    """Train all runs at a time, each by its driver. Returns the exit status of the job."""
    with ThreadPoolExecutor(len(folders), thread_name_prefix="driver") as pool:
        decisions = list(pool.map(_trained, drivers, folders))
    unfinished = [folder for folder, decision in zip(folders, decisions, strict=True) if decision.step == "retry"]
    if unfinished:
        _requeue(drivers[0], unfinished, environ)
    codes = [decision.exit_code for decision in decisions if decision.step != "finish"]
    failed = [code for code in codes if code != exits.OUT_OF_TIME]
    return (failed or codes or [exits.DONE])[0]


def _trained(driver: Driver, folder: RunFolder) -> Decision:
    """One run to the end of its attempt. What ends it is its own."""
    with about(folder.path.name):
        try:
            if _has_failed_for_good(folder, driver.environ, driver.arguments.retries):
                return Decision("give_up", "it has failed", exits.ANSWER_IS_NO)
            return driver.train(folder)
        except (UserError, UnreadableError) as error:
            _log.error(f"{error}")
            status = exits.BAD_REQUEST if isinstance(error, UserError) else exits.IO_ERROR
            return Decision("give_up", str(error), status)
        except Exception as error:  # noqa: BLE001  # one run's driver must not take the others with it
            _log.exception(f"the driver of {folder.path} failed")
            return Decision("give_up", str(error), exits.ANSWER_IS_NO)


def _has_failed_for_good(folder: RunFolder, environ: Mapping[str, str], retries: int = 0) -> bool:
    """Whether this job has left it before: it was requeued for the sake of the others."""
    attempts, outcome = folder.attempts(), folder.read_outcome()
    is_ours = bool(attempts) and attempts[-1].job_id == JobEnvironment(environ).job_id
    if not is_ours or outcome is None or outcome.status == "done":
        return False
    if folder.is_asked_to_stop():
        _log.info("a stop was requested (graphmill stop)")
        return True
    is_tried_again = outcome.may_pass and job_end.retries_left(folder, retries) > 0
    if not ENDINGS[outcome.status].retried and not is_tried_again:
        _log.info(f"not tried again: {outcome.status}: {outcome.message}")
        return True
    return False


def _requeue(driver: Driver, folders: Sequence[RunFolder], environ: Mapping[str, str]) -> None:
    for folder in folders[1:]:  # `retry` notes it for the first
        with best_effort_write():
            next_job.note_requeue(folder, JobEnvironment(environ).queue_id)
    until = job_end.patience_until(environ, in_haste=driver.signals.terminated)
    next_job.retry(folders[0], driver.arguments.follow, environ, until=until)
