"""What is shown of the stages of a pipeline that has not ended."""

import os
import time

import pytest

from graphmill.cluster.jobs.pipeline_record import PipelineFolder, PipelineRecord, RecordedStage
from graphmill.cluster.pipeline_status import PipelineWatcher, _is_alive
from graphmill.cluster.status import RunView, Watcher
from graphmill.record.documents import Outcome, SubmittedJob
from graphmill.record.endings import ENDINGS
from graphmill.record.lock import Owner, hold
from graphmill.record.run_folder import RunFolder
from graphmill.slurm.queue import JobReading, Queue
from graphmill.spec.pipeline import SourceSpec, StageSpec

STAGES = (
    StageSpec(name="a"),
    StageSpec(name="b", init_from=SourceSpec(stage="a")),
    StageSpec(name="c", sources={"teacher": SourceSpec(stage="b")}),
    StageSpec(name="d"),
)


@pytest.fixture
def folder(tmp_path) -> PipelineFolder:
    (tmp_path / "p").mkdir()
    return PipelineFolder(tmp_path / "p")


@pytest.fixture
def seen(folder, make_plan):
    """Write pipeline.json, and look once."""

    def look(**changed) -> dict[str, RunView]:
        stages = tuple(RecordedStage(stage=stage, plan=make_plan(f"p/{stage.name}")) for stage in STAGES)
        record = PipelineRecord(
            name="p",
            evaluate_on="own",
            logs_root=str(folder.path.parent),
            time=0.0,
            chosen=("a", "b", "c", "d"),
            stages=stages,
        )
        folder.write(record.model_copy(update=changed))
        views = PipelineWatcher(folder, Watcher([])).look()
        return {view.folder.name: view for view in views}

    return look


@pytest.fixture
def ended(folder, make_plan):
    def end(name: str, status: str) -> None:
        run = RunFolder.create(make_plan(f"p/{name}"), folder.path.parent)
        run.begin_attempt(resumed=False, command=("x",))
        code = ENDINGS[status].exit_status
        run.write_outcome(Outcome(status=status, exit_code=code, epochs=0, steps_per_rank=0, wall_s=1.0))

    return end


@pytest.mark.parametrize("status", [name for name, ending in ENDINGS.items() if ending.fails_stage])
def test_what_needs_a_failed_stage_says_so_directly_or_not(seen, ended, status):
    ended("a", status)
    views = seen()
    why = "not run: a failed" if status == "failed" else f"not run: a failed ({status})"
    assert (views["a"].state, views["b"].detail, views["c"].detail) == (status, why, why)
    assert views["d"].detail == "never started"


def test_what_failed_before_is_tried_again(seen, ended):
    ended("a", "failed")
    views = seen(time=time.time() + 1)
    assert views["b"].detail == "takes weights of a"


def test_jobs_continue_what_was_stopped_and_a_process_does_not_what_was_lost(seen, ended):
    ended("a", "lost")
    assert seen()["b"].detail == "takes weights of a"
    assert seen(is_local=True)["b"].detail == "not run: a failed (lost)"


def test_what_is_not_to_be_run_is_missing(seen):
    views = seen(chosen=("c", "d"))
    assert views["a"].detail == "never started"
    assert views["c"].detail == "not run: b is neither done nor to be run"


def test_stages_wait_for_the_process_that_runs_them(seen, ended, folder):
    ended("a", "done")
    with hold(folder.path):
        views = seen(is_local=True, chosen=("a", "b", "c"))
    assert {name: view.state for name, view in views.items()} == {
        "a": "done",
        "b": "waiting",
        "c": "waiting",
        "d": "planned",
    }
    assert f"for process {os.getpid()} on" in views["b"].detail
    assert "takes weights of b" in views["c"].detail
    assert views["b"].source == "process"
    views = seen(is_local=True)
    assert not any(view.is_alive for view in views.values()), "the process is gone"


@pytest.mark.parametrize(
    ("state", "detail"), [("RUNNING", "for its turn in job 52"), ("PENDING", "for job 52: ")], ids=["runs", "waits"]
)
def test_stages_that_share_a_job_wait_for_their_turn_in_it(seen, folder, monkeypatch, state, detail):
    reading = JobReading("52", state, "squeue", reason="Priority")
    monkeypatch.setattr(Queue, "read", lambda _, jobs: {job.job_id: reading for job in jobs})
    folder.jobs.note_job(SubmittedJob(job_id="52", time=1.0))
    views = seen()
    assert {view.state for view in views.values()} == {"waiting"}
    assert views["d"].detail.startswith(detail)


@pytest.mark.parametrize(
    ("began_s_ago", "silent_s", "lives"), [(3600, [5.0, 900.0], True), (3600, [4000.0], False), (0, [], True)]
)
def test_a_process_on_another_host_lives_while_one_of_its_runs_is_heard(tmp_path, began_s_ago, silent_s, lives):
    owner = Owner(
        hostname="elsewhere", pid=1, process_start=1, boot_id="b", pid_namespace="n", since=time.time() - began_s_ago,
        kind="flock",
    )  # fmt: skip
    views = [RunView("run", tmp_path, "running", "files", silent_s=each) for each in silent_s]
    assert _is_alive(owner, views) is lives
