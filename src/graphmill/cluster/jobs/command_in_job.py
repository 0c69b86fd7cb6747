"""The driver's part of `graphmill submit --run`: one command in place of ranks, and how it ended.

what happened                                               the run ends as        the job's exit status
exit status 0                                               done                   0
Slurm ends the job: its time limit, a preemption            out_of_time, preempted 75
it was cancelled, or `graphmill stop`                       stopped                75
a command of graphmill's leaves with 2, or 75               bad_request, …         the same
any other exit status, or a signal                          failed                 the same, 128 + the signal
"""

import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from graphmill.base import exits
from graphmill.cluster.jobs.srun_step import SrunStep
from graphmill.cluster.launch.judge import Judgement
from graphmill.record.endings import DONE, ENDINGS, FAILED, EndingName, ending_of
from graphmill.record.run_folder import RunFolder

if TYPE_CHECKING:
    from graphmill.cluster.jobs.in_job import Driver

_HEARD_WITHIN_S: Final = 5.0  # Slurm ends the steps of a job before its script hears of it
_TICK_S: Final = 0.1
_OWN_WORDS: Final = (exits.BAD_REQUEST, exits.OUT_OF_TIME)


NOT_BEGUN: Final = Judgement(ENDINGS["stopped"], None, f"{ENDINGS['stopped'].text}; the command had not begun")


def run_command(driver: "Driver", folder: RunFolder) -> int:
    """Run the command of this job. Returns the exit status of the job."""
    return driver.train(RunFolder(folder.path.resolve())).exit_code


def was_ended(step: SrunStep) -> bool:
    """Whether a SIGTERM ended the command: Slurm's, most likely, whatever for."""
    codes = {step.status, *(seen.code for seen in step.exits())}
    return bool(codes & {-signal.SIGTERM, 128 + signal.SIGTERM})


def await_word(driver: "Driver") -> bool:
    """Wait until Slurm has told the driver, too, that the job ends. Returns whether it has."""
    until = time.monotonic() + _HEARD_WITHIN_S
    while not driver.signals.terminated and time.monotonic() < until:
        time.sleep(_TICK_S)
    return driver.signals.terminated


def judge_command(step: SrunStep, *, is_ours: bool, asked: EndingName | None) -> Judgement:
    """How the command ended. `asked`: what the job was asked to end as."""
    status = step.status
    if status == exits.DONE:
        return Judgement(DONE, None)
    otherwise = "it had not left yet" if status is None else f"srun ended with exit status {status}"
    how = next((seen.in_words() for seen in step.exits()), otherwise)
    if asked is not None:
        return Judgement(ENDINGS[asked], None, f"{ENDINGS[asked].text}; the command: {how}")
    if is_ours and status in _OWN_WORDS and step.exits():
        return Judgement(ending_of(status), None, f"the command: {how}")
    said = step.first_error()
    code = status if status is not None and 0 < status < 256 else exits.ANSWER_IS_NO
    failed = replace(FAILED, exit_status=code, text="the command failed")
    return Judgement(failed, None, f"the command: {how}{f': {said}' if said else ''}")
