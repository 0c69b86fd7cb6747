"""Why Slurm ends a job, as the driver reads it from `scontrol show job`: a stand-in prints what a real one prints."""

import pytest

from graphmill.cluster.jobs.job_end import Cause, why_terminated

# One line of 22.05, as `-o` with SLURM_TIME_FORMAT=%s gives it.
SHOWN = (
    "JobId=7 JobName=sage UserId=u(1000) GroupId=u(1000) MCS_label=N/A Priority=4294901753 Nice=0 Account=(null)"
    " QOS=normal JobState={state} Reason={reason} Dependency=(null) Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0"
    " ExitCode=0:15 RunTime=00:01:03 TimeLimit=00:10:00 TimeMin=N/A SubmitTime=1795259310 EligibleTime=1795259310"
    " AccrueTime=1795259310 StartTime=1795259311 EndTime=1795259911 Deadline=N/A PreemptEligibleTime=1795259311"
    " PreemptTime={preempted} SuspendTime=None SecsPreSuspend=0 LastSchedEval=1795259311 Scheduler=Main"
    " Partition=low AllocNode:Sid=0.0.0.0:1 NodeList=node[1-2] BatchHost=node1 NumNodes=2"
)
OUT_OF_TIME, STOPPED, PREEMPTED = Cause("out_of_time"), Cause("stopped", is_cancelled=True), Cause("preempted")
NOT_TOLD = Cause("stopped", is_known=False)
REQUEUED = Cause("preempted", is_requeued=True)


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """The only program on PATH; it writes down its arguments."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def make(body: str) -> None:
        path = tmp_path / "scontrol"
        path.write_text(f'#!/bin/bash\necho "$@" >{tmp_path}/asked\n{body}\n')
        path.chmod(0o755)

    return make


@pytest.mark.parametrize(
    ("seen", "before", "cause"),
    [
        pytest.param({"state": "COMPLETING", "reason": "TimeLimit"}, None, OUT_OF_TIME, id="time limit"),
        pytest.param({"state": "TIMEOUT"}, None, OUT_OF_TIME, id="time limit, no reason yet"),
        pytest.param({"state": "PENDING", "restarts": 1, "preempted": 1795259370}, None, REQUEUED, id="requeued"),
        pytest.param({"state": "PENDING", "reason": "BeginTime", "restarts": 1}, "", REQUEUED, id="requeued, no time"),
        pytest.param({"state": "COMPLETING", "restarts": 3}, "2", REQUEUED, id="requeued once more"),
        pytest.param({"state": "PREEMPTED"}, None, PREEMPTED, id="PreemptMode=CANCEL, by its state"),
        pytest.param(
            {"state": "COMPLETING", "preempted": 1795259370}, None, PREEMPTED, id="PreemptMode=CANCEL, by time"
        ),
        pytest.param({"state": "RUNNING", "preempted": 1795259370}, "1", PREEMPTED, id="GraceTime runs"),
        pytest.param({"state": "COMPLETING"}, None, STOPPED, id="scancel"),
        pytest.param({"state": "RUNNING"}, None, Cause("stopped"), id="it runs: the signal is a person's"),
        pytest.param({"state": "CANCELLED", "preempted": "N/A"}, None, STOPPED, id="scancel, no time"),
        pytest.param({"state": "CANCELLED", "preempted": "Unknown"}, None, STOPPED, id="scancel, unknown time"),
        pytest.param({"state": "COMPLETING", "restarts": 2}, "2", STOPPED, id="scancel of what was requeued before"),
        pytest.param({"state": "CANCELLED", "reason": "PreemptTime=1"}, None, STOPPED, id="a value is no field"),
    ],
)
def test_the_cause_of_sigterm(scontrol, tmp_path, seen, before, cause):
    shown = SHOWN.format(**{"reason": "None", "restarts": 0, "preempted": "None", **seen})
    scontrol(f"echo '{shown}'")
    restarts = {} if before is None else {"SLURM_RESTART_COUNT": before}
    assert why_terminated({"SLURM_JOB_ID": "7", **restarts}) == cause
    assert (tmp_path / "asked").read_text() == "show job 7 -o\n"


@pytest.mark.parametrize(
    "body",
    [
        "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
        "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
        "true",
    ],
)
def test_without_a_reason_nothing_follows(scontrol, body):
    """A job that was cancelled must not come back because the controller was busy."""
    scontrol(body)
    assert why_terminated({"SLURM_JOB_ID": "7"}) == NOT_TOLD


def test_a_sigterm_that_ends_scontrol_too_is_asked_about_again(scontrol, tmp_path):
    shown = SHOWN.format(state="COMPLETING", reason="None", restarts=0, preempted=1795259370)
    scontrol(f'[ -e {tmp_path}/once ] || {{ : >{tmp_path}/once; kill -TERM $$; }}; echo "{shown}"')
    assert why_terminated({"SLURM_JOB_ID": "7"}) == PREEMPTED


def test_without_scontrol_nothing_follows(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_terminated({"SLURM_JOB_ID": "7"}) == NOT_TOLD
