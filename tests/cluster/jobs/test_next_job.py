"""The next job is there, and there once, whatever sbatch and the controller answer. Programs on PATH stand in."""

import os
import time

import pytest
from slurm_stand_ins import AWAY, LINE, StandIns

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.next_job import cancel, note_itself, note_requeue, prepare, retry
from graphmill.cluster.jobs.sbatch import Submission, submit_script
from graphmill.record.documents import Outcome, SubmittedJob
from graphmill.runtime.job_environment import JobEnvironment
from graphmill.slurm.commands import SlurmSilentError

JOB = {"SLURM_JOB_ID": "17"}


@pytest.fixture
def slurm(stand_ins: StandIns) -> StandIns:
    return stand_ins


@pytest.fixture
def run(new_run):
    folder, _ = new_run(1)
    folder.script_path.write_text("#!/bin/bash\n")
    folder.note_job(SubmittedJob(job_id="17", time=1.0))
    return folder


def test_a_successor_is_submitted_once(slurm, run):
    slurm.says("sbatch", "echo 18")
    assert prepare(run, {**os.environ, **JOB}).job_id == "18"
    assert prepare(run, {**os.environ, **JOB}).job_id == "18"
    assert len(slurm.asked("sbatch")) == 1
    assert "--dependency=afterany:17" in slurm.asked("sbatch")[0]
    assert [(job.job_id, job.how, job.dependency) for job in run.jobs()[1:]] == [("18", "resubmit", "afterany:17")]


def test_one_whose_number_was_not_recorded_is_found_in_the_queue(slurm, run):
    slurm.queue(run, "18")
    assert prepare(run, {**os.environ, **JOB}).job_id == "18"
    assert slurm.asked("sbatch") == []
    assert run.jobs()[-1].job_id == "18"


def test_one_that_sbatch_submitted_without_an_answer_is_not_submitted_again(slurm, run):
    line = LINE.format(job="18", script=run.script_path)
    slurm.says("sbatch", f'echo "echo \'{line}\'" >"$here/squeue.says"; {AWAY}')
    with pytest.raises(SlurmSilentError):
        prepare(run, {**os.environ, **JOB})
    assert prepare(run, {**os.environ, **JOB}).job_id == "18"
    assert len(slurm.asked("sbatch")) == 1


def test_an_earlier_job_of_the_script_is_not_taken_for_one_without_an_answer(slurm, run):
    slurm.queue(run, "17")
    slurm.says("sbatch", AWAY)
    submission = Submission(run.script_path, "#!/bin/bash\n")
    with pytest.raises(SlurmSilentError):
        submit_script(submission, os.environ, earlier=run.jobs())
    slurm.queue(run, "17", "18")
    assert submit_script(submission, os.environ, earlier=run.jobs()).job_id == "18"


def test_one_too_many_is_cancelled(slurm, run):
    slurm.queue(run, "18", "19")
    prepare(run, {**os.environ, **JOB})
    assert slurm.asked("scancel") == ["19"]


def test_jobs_of_other_runs_are_left_alone(slurm, run):
    slurm.says("squeue", f"echo '{LINE.format(job='20', script='/elsewhere/job.sbatch')}'")
    cancel(run, JOB)
    assert slurm.asked("scancel") == []


def test_what_is_cancelled_is_the_successor_recorded_or_not(slurm, run):
    run.note_job(SubmittedJob(job_id="18", time=2.0, how="resubmit", dependency="afterany:17"))
    slurm.queue(run, "18", "19")
    cancel(run, JOB)
    assert slurm.asked("scancel") == ["18 19"]


def test_one_that_cannot_be_cancelled_finds_word_that_nothing_is_to_follow(slurm, run):
    run.note_job(SubmittedJob(job_id="18", time=2.0, how="resubmit", dependency="afterany:17"))
    slurm.says("squeue", AWAY)
    cancel(run, JOB)
    assert run.is_asked_to_stop()


@pytest.mark.parametrize("way", ["requeue", "resubmit"])
def test_a_controller_that_is_away_is_asked_again(slurm, run, way):
    back = f'[ $(grep -c . "$here/asked") -ge 4 ] || {{ {AWAY}; }}'
    slurm.says("scontrol", back)
    slurm.says("squeue", back)
    slurm.says("sbatch", "echo 18")
    retry(run, way, {**os.environ, **JOB}, until=time.time() + 60)
    assert run.jobs()[-1].how == way
    assert len(run.jobs()) == 2


@pytest.mark.parametrize("answer", [AWAY, "echo 'Requested operation is presently disabled' >&2; exit 1"])
def test_where_no_job_continues_the_run_its_outcome_says_so(slurm, run, answer):
    run.write_outcome(
        Outcome(status="out_of_time", exit_code=75, epochs=1, steps_per_rank=4, wall_s=1.0, message="why")
    )
    slurm.says("scontrol", answer)
    with pytest.raises(UserError, match="no job continues the run"):
        retry(run, "requeue", JOB, until=time.time())
    assert run.read_outcome().status == "out_of_time"
    assert run.read_outcome().message.startswith("why; no job continues the run: scontrol: ")


def test_a_requeue_whose_answer_was_lost_is_no_failure(slurm, run):
    """Slurm ends all processes of the job at once, scontrol among them."""
    heard = '[ "$1" != requeue ] || { touch "$here/heard"; kill -TERM $$; }'
    slurm.says("scontrol", f'{heard}; echo " JobState=PENDING Restarts=$([ -e "$here/heard" ]; echo $((1 - $?))) "')
    retry(run, "requeue", JOB, until=time.time())
    with pytest.raises(UserError):
        retry(run, "requeue", {**JOB, "SLURM_RESTART_COUNT": "1"}, until=time.time())


def test_a_job_that_runs_elsewhere_by_now_is_not_requeued_again(slurm, run):
    """A host that was cut off: Slurm gave it up, started the job on others, and is heard again."""
    run.begin_attempt(resumed=True, command=(), job_id="17")
    run.write_outcome(Outcome(status="done", exit_code=0, epochs=1, steps_per_rank=4, wall_s=1.0))
    slurm.says("scontrol", 'echo " JobState=RUNNING Restarts=1 "')
    retry(run, "requeue", JOB, until=time.time())
    assert not any(words.startswith("requeue") for words in slurm.asked("scontrol"))
    slurm.says("scontrol", "echo 'Invalid job id specified' >&2; exit 1")  # it has ended, and is forgotten
    with pytest.raises(UserError):
        retry(run, "requeue", {**JOB, "SLURM_JOB_ID": "18"}, until=time.time())
    assert run.read_outcome().message == ""


@pytest.mark.parametrize("is_enough_left", [True, False])
def test_lost_hosts_are_left_out_where_slurm_can_do_without_them(slurm, run, is_enough_left):
    slurm.says("sbatch", "" if is_enough_left else "echo 'allocation failure' >&2; exit 1")
    slurm.says("scontrol", "echo ' JobState=RUNNING ExcNodeList=node[7-8] NumNodes=2 '")
    retry(run, "requeue", JOB, until=time.time(), lost_hosts=["node3"])
    assert "--exclude=node7,node8,node3" in slurm.asked("sbatch")[0]
    updates = [words for words in slurm.asked("scontrol") if words.startswith("update")]
    assert updates == (["update JobId=17 ExcNodeList=node7,node8,node3"] if is_enough_left else [])


def test_it_is_the_successor_that_leaves_out_a_lost_host(slurm, run):
    slurm.says("sbatch", "echo 18")
    retry(run, "resubmit", {**os.environ, **JOB}, until=time.time(), lost_hosts=["node3"])
    updates = [words for words in slurm.asked("scontrol") if words.startswith("update")]
    assert updates == ["update JobId=18 ExcNodeList=node3"]


def test_not_every_host_is_left_out_in_the_end(slurm, run):
    slurm.says("scontrol", "echo ' ExcNodeList=node[1-4] '")
    retry(run, "requeue", JOB, until=time.time(), lost_hosts=["node5"])
    assert not any(words.startswith("update") for words in slurm.asked("scontrol"))


def test_a_job_records_itself_once(new_run):
    folder, _ = new_run(1)
    note_itself(folder, JOB)
    note_itself(folder, JOB)
    note_itself(folder, {"SLURM_JOB_ID": "18", "SLURM_JOB_DEPENDENCY": "afterany:17"})
    note_itself(folder, {})
    assert [(job.job_id, job.how, job.dependency) for job in folder.jobs()] == [
        ("17", "submit", ""),
        ("18", "resubmit", "afterany:17"),
    ]


def test_runs_that_share_a_job_share_it_after_a_requeue(run):
    run.note_job(SubmittedJob(job_id="18", time=2.0, side_by_side=3))
    for job_id in ("17", "18"):
        note_requeue(run, job_id)
    assert [(job.job_id, job.side_by_side) for job in run.jobs()[2:]] == [("17", 1), ("18", 3)]


def test_a_task_of_an_array_is_not_the_array():
    """SLURM_JOB_ID of one of the tasks is the number of the whole array."""
    assert JobEnvironment(JOB).queue_id == "17"
    assert JobEnvironment({**JOB, "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "2"}).queue_id == "17_2"
