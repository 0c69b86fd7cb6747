"""The driver's part of `graphmill submit --run`: one command in place of ranks, and how it ended.

what happened                                               the run ends as        the job's exit status
exit status 0                                               done                   0
Slurm ends the job: its time limit, a preemption            out_of_time, preempted 75
it was cancelled, or `graphmill stop`                       stopped                75
a command of graphmill's leaves with 2, or 75               bad_request, …         the same
any other exit status, or a signal                          failed                 the same, 128 + the signal

Of `graphmill tune`, what is retried of a run is retried, if its runs have saved more steps (`launch/attempt.py`).
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final

from graphmill.base import exits
from graphmill.cluster.jobs.driver import Driver
from graphmill.cluster.jobs.srun_step import SrunStep
from graphmill.cluster.jobs.steps import environment, single_command
from graphmill.cluster.launch.attempt import Decision
from graphmill.cluster.launch.judge import Judgement
from graphmill.record.endings import DONE, ENDINGS, FAILED, ending_of
from graphmill.record.run_folder import RunFolder
from graphmill.spec.job.work import RunCommand

_HEARD_WITHIN_S: Final = 5.0  # Slurm ends the steps of a job before its script hears of it
_TICK_S: Final = 0.1
_OWN_WORDS: Final = (exits.BAD_REQUEST, exits.OUT_OF_TIME)


@dataclass(slots=True)
class CommandDriver(Driver):
    """One job that runs a command: in all else it is driven as a run is."""

    unbegun: ClassVar = Judgement(ENDINGS["stopped"], None, f"{ENDINGS['stopped'].text}; the command had not begun")
    finished: ClassVar = "the command is done"
    leave_message: ClassVar = "the command was asked to leave at once"
    left_late: ClassVar = ""
    tells_problem: ClassVar = True

    @property
    def work(self) -> RunCommand:
        """What the job runs."""
        assert isinstance(self.arguments.work, RunCommand), "that is why this driver was taken"
        return self.arguments.work

    def runs(self) -> list[RunFolder]:
        """The folder of the command."""
        return [RunFolder(Path(self.work.folder).resolve())]

    def world(self, folder: RunFolder) -> None:
        """Return None: a command has no ranks."""

    def data(self, folder: RunFolder) -> Path | None:
        """What was named for it."""
        del folder
        return None if self.work.command.data is None else Path(self.work.command.data)

    def judge_staging(self, step: SrunStep, folder: RunFolder, started: float) -> Judgement:
        """Judge a failed staging as a failed command of graphmill."""
        del folder, started
        return self._judge(step, is_ours=True)

    def start(self, folder: RunFolder, started: float) -> Decision:
        """Start the command, and judge how it ended."""
        if self.is_asked_to_stop(folder):  # while its data were copied
            return self.not_begun(folder)
        words = single_command(self.arguments, folder.path, self.work.command.words, self.here_for(folder))
        step = self.srun(words, environment(self.arguments, self.environ, None), folder, started)
        if self.cause is None and step.was_ended():
            self._await_word()
            self.ask_why(folder)
        return self.follow(folder, self._judge(step, is_ours=self.work.command.is_ours), tries_left=0)

    def _await_word(self) -> None:
        """Wait until Slurm has signalled the driver, too, that the job ends."""
        until = time.monotonic() + _HEARD_WITHIN_S
        while not self.signals.terminated and time.monotonic() < until:
            time.sleep(_TICK_S)

    def _judge(self, step: SrunStep, *, is_ours: bool) -> Judgement:
        status = step.status
        if status == exits.DONE:
            return Judgement(DONE, None)
        otherwise = "it had not left yet" if status is None else f"srun ended with exit status {status}"
        how = next((seen.describe() for seen in step.exits()), otherwise)
        if self.requested is not None:
            return Judgement(ENDINGS[self.requested], None, f"{ENDINGS[self.requested].text}; the command: {how}")
        if is_ours and status in _OWN_WORDS and step.exits():
            return Judgement(ending_of(status), None, f"the command: {how}")
        said = step.first_error()
        code = status if status is not None and 0 < status < 256 else exits.ANSWER_IS_NO
        failed = replace(FAILED, exit_status=code, text="the command failed")
        return Judgement(failed, None, f"the command: {how}{f': {said}' if said else ''}")
