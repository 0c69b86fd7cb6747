"""What follows an attempt inside a job, without a Slurm: from what the run folder holds."""

import errno
import os
import socket
import time
from dataclasses import replace

import pytest

from graphmill.base.errors import UnreadableError
from graphmill.cluster.jobs.arguments import parse_arguments
from graphmill.cluster.jobs.driver import Driver
from graphmill.cluster.jobs.job_end import Cause, attempt_end, retries_left
from graphmill.cluster.jobs.srun_step import Signals, last_line
from graphmill.cluster.launch.judge import AttemptEvidence, Judgement, judge
from graphmill.cluster.launch.rank_process import RankExit
from graphmill.record.documents import Attempt, Outcome, SubmittedJob
from graphmill.record.endings import ENDINGS
from graphmill.record.events import DamagedCheckpoint, EventWriter, Failure
from graphmill.record.lock import hold
from graphmill.record.manifest import Counters, Manifest, Position, SavedStats
from graphmill.record.run_folder import RunFolder
from graphmill.spec.job.work import Command, RunStages

TIME_UP = Judgement(ENDINGS["out_of_time"], None)
LOST = Judgement(ENDINGS["lost"], None)


def driver_of(folder, way: str = "requeue") -> Driver:
    signals = Signals()
    signals.terminated = True  # in haste: there is no Slurm to ask for an epilog
    words = ["--python=python", f"--on-time-limit={way}", "--max-attempts=9", str(folder.path)]
    return Driver(parse_arguments(words), {"SLURM_JOB_ID": "17"}, signals)


def note_attempts(folder, *steps_saved: int | None, job: str = "17", **facts) -> None:
    """Attempts that began with checkpoints after so many steps."""
    for number, steps in enumerate(steps_saved):
        begun = Attempt(
            time=float(number), hostname=socket.gethostname(), pid=1, resumed=number > 0, command=(), job_id=job,
            steps_saved=steps, code="c", **facts,
        )  # fmt: skip
        with folder.attempts_path.open("a") as file:
            file.write(begun.model_dump_json() + "\n")


@pytest.mark.parametrize(
    ("saved", "after_idle"),
    [
        *[((0,), False), ((0, 0), True), ((0, 5), False), ((0, 5, 5), True), ((5, 5, 9), False)],
        *[((0, None), False), ((0, None, 102), False), ((102, None, None), True), ((None,), False)],
    ],
)
def test_an_attempt_after_one_that_saved_nothing_new(new_run, saved, after_idle):
    folder, _ = new_run(2)
    note_attempts(folder, *saved)
    end = attempt_end(folder, LOST, tries_left=0, retries=0)
    assert (end.number, end.steps_before, end.after_idle) == (len(saved), saved[-1], after_idle)


@pytest.mark.parametrize("where", ["the run", "its pipeline"])
def test_nothing_follows_once_a_person_has_asked_to_stop(new_run, monkeypatch, tmp_path, where):
    folder, _ = new_run(2)
    note_attempts(folder, 0)
    monkeypatch.setattr("graphmill.record.run_folder.saved_steps", lambda _: 3)
    driver, stopped = driver_of(folder), folder
    if where == "its pipeline":
        (tmp_path / "pipe").mkdir()
        stopped = RunFolder(tmp_path / "pipe")
        stages = RunStages(folder=str(stopped.path), stages=("a",), hands_over=False)
        driver.arguments = replace(driver.arguments, work=stages)
    for asked, steps in ((False, "retry"), (True, "give_up")):
        if asked:
            stopped.ask_to_stop()
        assert driver.follow(folder, TIME_UP, tries_left=0).step == steps


def note_checkpoint(folder, steps: int) -> None:
    books = SavedStats(loss_sum=1.0, epoch_s=1.0, counters=Counters(), before_epoch=Counters(), spent_s={})
    position = Position(epoch=0, step=steps, steps_done=steps, books=books, best=None, patience=None)
    path = folder.checkpoints_dir / f"step_{steps:010d}"
    path.mkdir(parents=True)
    Manifest(plan_hash="", world_size=1, parameter_hash="", positions=(position,), files={}, keep=False).write(path)


def test_a_command_that_trains_runs_is_followed_as_long_as_they_get_on(tmp_path, new_run):
    """Else a search whose job is too short for a first checkpoint would be requeued for ever."""
    folder = RunFolder(tmp_path / "logs" / "jobs" / "tune")
    folder.path.mkdir(parents=True)
    folder.command_path.write_text(Command(words=("graphmill", "tune", "x")).model_dump_json())
    assert folder.begin_attempt(resumed=False, command=[], job_id="17") == 1
    folder.note_runs_of_command(tmp_path / "logs" / "s")
    decided = [driver_of(folder).follow(folder, TIME_UP, tries_left=0).step]
    for number, steps in ((0, 4), (1, 3)):
        note_checkpoint(new_run(1, run_id=f"s/trial-000{number}")[0], steps)
        decided.append(driver_of(folder).follow(folder, TIME_UP, tries_left=0).step)
        folder.begin_attempt(resumed=True, command=[], job_id="17")
        decided.append(driver_of(folder).follow(folder, TIME_UP, tries_left=0).step)
    assert decided == ["give_up", "retry", "give_up", "retry", "give_up"]
    assert [attempt.steps_saved for attempt in folder.attempts()] == [0, 4, 7]


@pytest.mark.parametrize("way", ["requeue", "resubmit"])
def test_a_driver_that_slurm_gave_up_decides_nothing(new_run, stand_ins, way):
    """The run was resumed by another job, and is that one's: nothing is written, requeued or cancelled here."""
    folder, _ = new_run(2)
    note_attempts(folder, 0)
    note_attempts(folder, 0, job="18")
    folder.note_job(SubmittedJob(job_id="18", time=2.0, how="resubmit", dependency="afterany:17"))
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    decision = driver_of(folder, way).follow(folder, TIME_UP, tries_left=0)
    assert (decision.step, decision.exit_code) == ("give_up", 74)
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before
    assert not stand_ins.asked("scancel")
    assert not stand_ins.asked("scontrol")


RUNS, TAKEN, GONE = "JobState=RUNNING PreemptTime=None", "JobState=RUNNING PreemptTime=1795259370", "JobState=CANCELLED"
TIME_IS_UP = "JobState=COMPLETING Reason=TimeLimit"


@pytest.mark.parametrize(
    ("shown", "code", "says", "ending"),
    [
        (RUNS, -15, False, "stopped"),  # scancel --signal=TERM, by a person
        (GONE, -15, False, "stopped"),
        (TAKEN, -15, False, "preempted"),
        (TIME_IS_UP, -15, False, "out_of_time"),
        (TAKEN, -9, False, "preempted"),
        (GONE, None, False, "stopped"),  # srun could start nothing any more
        (RUNS, -9, False, "failed"),
        (RUNS, None, False, "failed"),
        (RUNS, 1, False, "failed"),
        (TAKEN, 1, True, "failed"),
        (GONE, -9, True, "failed"),
    ],
)
def test_slurm_is_asked_why_ranks_left_no_word(new_run, stand_ins, shown, code, says, ending):
    folder, _ = new_run(1)
    started = time.time()
    note_attempts(folder, 0)
    stand_ins.says("scontrol", f"echo 'JobId=17 {shown} Restarts=0'")
    if says:
        with EventWriter(folder.events_path(0), rank=0) as events:
            events.write(Failure(message="ValueError: nan", exit_code=1))
    evidence = AttemptEvidence(started, [] if code is None else [RankExit(0, code, None)], status=1)
    assert judge(folder, driver_of(folder)._with_cause(evidence, folder)).ending.name == ending
    folder.ask_to_stop()
    asked_before = stand_ins.asked("scontrol")
    told = judge(folder, driver_of(folder)._with_cause(evidence, folder)).ending.name
    assert told == ("failed" if says else "stopped"), "ranks without a word were stopped before they could have one"
    assert stand_ins.asked("scontrol") == asked_before, "a person's word is enough"


@pytest.mark.parametrize("where", ["the run", "its pipeline"])
def test_no_rank_is_started_once_a_stop_was_asked_for(new_run, stand_ins, where, tmp_path):
    folder, _ = new_run(1)
    note_attempts(folder, 0)
    driver = driver_of(folder)
    if where == "the run":
        folder.ask_to_stop()
    else:
        (tmp_path / "pipe").mkdir()
        RunFolder(tmp_path / "pipe").ask_to_stop()
        stages = RunStages(folder=str(tmp_path / "pipe"), stages=("a",), hands_over=False)
        driver.arguments = replace(driver.arguments, work=stages)
    decision = driver._attempted(folder, time.time())
    assert (decision.step, decision.exit_code) == ("give_up", 75)
    assert folder.read_outcome().status == "stopped"
    assert folder.read_outcome().message == "stopped before the ranks were ready"


@pytest.mark.parametrize(
    ("shown", "ending"), [(TIME_IS_UP, "out_of_time"), (TAKEN, "preempted"), (GONE, "stopped")], ids=lambda each: each
)
def test_a_job_that_slurm_ends_while_data_are_staged_has_not_failed(new_run, stand_ins, tmp_path, shown, ending):
    folder, _ = new_run(1)
    note_attempts(folder, 0)
    (stand_ins.folder / "srun").write_text("#!/bin/sh\nkill -TERM $$\n")
    (stand_ins.folder / "srun").chmod(0o755)
    stand_ins.says("scontrol", f"echo 'JobId=17 {shown} Restarts=0'")
    driver = driver_of(folder)
    words = ["--python=python", "--on-time-limit=stop", f"--staging-to={tmp_path}", str(folder.path)]
    driver.arguments, driver.signals.terminated = parse_arguments(words), False
    near = str(int(time.time()) + 10)  # no time is left for an epilog
    driver.environ = {**driver.environ, "PATH": os.environ["PATH"], "SLURM_JOB_END_TIME": near}
    driver._attempted(folder, time.time())
    assert folder.read_outcome().status == ending


@pytest.mark.parametrize("asked", [False, True])
def test_a_stop_while_the_successor_was_submitted_cancels_it(new_run, stand_ins, asked):
    folder, _ = new_run(2)
    folder.script_path.write_text("#!/bin/bash\n")
    stand_ins.says("sbatch", (f"echo now >{folder.stop_path}; " if asked else "") + "echo 18")
    driver = driver_of(folder, "resubmit")
    driver._prepare_at = 0.0
    driver._prepare_successor(folder)
    assert stand_ins.asked("scancel") == (["18"] if asked else [])


@pytest.mark.parametrize("is_known", [False, True])
def test_a_successor_is_cancelled_only_where_slurm_said_why_it_ended_the_job(new_run, stand_ins, is_known):
    """Where its controller did not, the successor asks again when it starts: it may have been a preemption."""
    folder, _ = new_run(2)
    note_attempts(folder, 0)
    folder.note_job(SubmittedJob(job_id="18", time=2.0, how="resubmit", dependency="afterany:17"))
    driver = driver_of(folder, "resubmit")
    driver.cause = Cause("stopped", is_known=is_known)
    decision = driver.follow(folder, Judgement(ENDINGS["stopped"], None), tries_left=0)
    assert (decision.step, "asks Slurm again" in decision.reason) == ("give_up", not is_known)
    assert stand_ins.asked("scancel") == (["18"] if is_known else [])


@pytest.mark.parametrize(
    ("text", "age_s", "told"),
    [
        ("cannot import torch\n", 0, "cannot import torch"),
        ("cannot import torch\n", 60, ""),
        ("why\n\nslurmstepd-host1: error: *** STEP 6.0 ON host1 CANCELLED AT now ***\n", 0, "why"),
        ("slurmstepd-host1: error: *** STEP 6.0 ON host1 CANCELLED AT now ***\n", 0, ""),
    ],
    ids=["of this attempt", "of an earlier one", "before what Slurm adds", "what Slurm adds only"],
)
def test_the_last_line_of_a_log_is_of_this_attempt_and_of_the_rank(tmp_path, text, age_s, told):
    log, now = tmp_path / "rank_0.log", time.time()
    log.write_text(text)
    os.utime(log, (now - age_s, now - age_s))
    assert last_line(log, since=now - 30) == told


def test_a_checkpoint_that_was_damaged_is_told_in_the_log_of_the_job(new_run, caplog):
    folder, _ = new_run(1)
    note_attempts(folder, 0)
    with EventWriter(folder.events_path(0), rank=0) as events:
        events.write(DamagedCheckpoint(checkpoint="step_0000000018", problem="its checksum differs"))
    caplog.set_level("INFO", logger="graphmill")
    driver_of(folder).follow(folder, TIME_UP, tries_left=0)
    told = [record.getMessage() for record in caplog.records if "step_0000000018" in record.getMessage()]
    assert len(told) == 1
    assert "its checksum differs" in told[0]


def test_what_the_latest_attempts_say_of_retries_since_a_person_submitted(new_run):
    folder, _ = new_run(2)
    note_attempts(folder, 0, 0, 0, is_retry=True)  # at the times 0, 1 and 2; the first is nobody's retry
    assert retries_left(folder, 3) == 1
    assert retries_left(folder, 1) == 0
    folder.note_job(SubmittedJob(job_id="18", time=1.5))
    assert retries_left(folder, 3) == 3


def test_an_attempt_knows_that_the_one_before_it_may_pass_and_that_others_used_the_job(new_run):
    folder, _ = new_run(2)
    for may_pass in (True, False):
        folder.write_outcome(
            Outcome(status="failed", exit_code=1, epochs=0, steps_per_rank=0, wall_s=1.0, may_pass=may_pass)
        )
        folder.begin_attempt(resumed=True, command=["test"], is_second_in_job=may_pass)
        assert folder.attempts()[-1].is_retry is folder.attempts()[-1].is_second_in_job is may_pass


@pytest.mark.parametrize(("retries", "step"), [(0, "give_up"), (1, "retry")])
@pytest.mark.parametrize("code", [-9, 1])
def test_only_what_a_signal_ended_is_tried_again(new_run, code, retries, step):
    folder, _ = new_run(1)
    note_attempts(folder, 0)
    driver = driver_of(folder)
    driver.arguments = replace(driver.arguments, retries=retries)
    judgement = judge(folder, AttemptEvidence(0.0, [RankExit(0, code, None)], status=1))
    assert driver.follow(folder, judgement, tries_left=0).step == (step if code < 0 else "give_up")
    assert folder.read_outcome().may_pass is (code < 0)


@pytest.mark.parametrize(("is_done", "known"), [(False, "io_error"), (True, "done")])
def test_a_job_that_cannot_read_what_its_ranks_left_is_retried(new_run, monkeypatch, is_done, known):
    def ranks(driver, folder, started):
        if is_done:
            folder.write_outcome(Outcome(status="done", exit_code=0, epochs=2, steps_per_rank=8, wall_s=1.0))
        raise UnreadableError(folder.events_path(0), OSError(errno.EIO, "Input/output error"))

    def retry(folder, *_, **__):
        with hold(folder.path):  # whoever continues it finds it free, however long the controller is away
            followed.append(1)

    monkeypatch.setattr(Driver, "start", ranks)
    monkeypatch.setattr("graphmill.cluster.jobs.next_job.retry", retry)
    (folder, _), followed = new_run(2), []
    decision = driver_of(folder).train(folder)
    assert (decision.step, decision.exit_code, followed) == ("retry", 71, [1])
    assert folder.read_outcome().status == known, "what rank 0 recorded is not replaced by what is not known"


def test_a_rank_that_was_lost_in_an_earlier_attempt_is_not_missed_now(new_run):
    folder, _ = new_run(2)
    with EventWriter(folder.events_path(0), rank=0) as events:
        events.write(Failure(message="rank 1 became unresponsive", exit_code=74))
    assert driver_of(folder)._has_missed_a_rank(folder, started=time.time() - 60)
    assert not driver_of(folder)._has_missed_a_rank(folder, started=time.time() + 60)


NO_SLURM = "srun: error: Unable to confirm allocation for job 17: Unable to contact slurm controller (connect failure)"
# Fails as often as `fails` has lines.
SRUN = """#!/bin/sh
here=$(dirname "$0"); echo begun >>"$here/asked"
[ "$(grep -c . "$here/asked")" -gt {fails} ] && exit 75
echo "{said}" >&2; exit 1
"""


@pytest.mark.parametrize(
    ("said", "has_begun", "asked", "status"), [(NO_SLURM, False, 3, 75), (NO_SLURM, True, 1, 1), ("no", False, 1, 1)]
)
def test_ranks_that_slurm_did_not_start_are_started_once_it_answers(
    new_run, tmp_path, monkeypatch, said, has_begun, asked, status
):
    (tmp_path / "srun").write_text(SRUN.format(fails=2, said=said))
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setattr("graphmill.cluster.jobs.driver._SRUN_AGAIN_S", 0.0)
    folder, _ = new_run(1)
    if has_begun:
        with EventWriter(folder.events_path(0), rank=0) as events:
            events.write(Failure(message="the ranks had begun", exit_code=1))
    driver = driver_of(folder)
    driver.signals.terminated = False
    step = driver.srun([str(tmp_path / "srun")], {"PATH": "/usr/bin:/bin"}, folder, started=time.time() - 60)
    assert (len((tmp_path / "asked").read_text().splitlines()), step.status) == (asked, status)
