"""Cells of a study and stages of a pipeline go through one loop: what ends one run ends what needs it, nothing else."""

import errno
import os
import signal
import threading
from pathlib import Path

import pytest
from waiting import wait_until

from graphmill.base.errors import UnreadableError
from graphmill.cluster.launch import run_graph as graph
from graphmill.cluster.launch.pipeline import Stages
from graphmill.cluster.launch.study import run_study, runs_of_study
from graphmill.spec.pipeline import Pipeline, SourceSpec, StageSpec
from graphmill.spec.study import Study

EXPERIMENT = {"train": {"ranks": 1, "epochs": 2, "batch_size": 10}}
NAMES = ["first", "second", "other"]
CELLS = [{"name": name, "train.optimizer.lr": 0.1} for name in NAMES]
STUDY = Study(name="all", experiment=EXPERIMENT, cells=CELLS)
TAKES = {"second": SourceSpec(stage="first")}
STAGES = tuple(StageSpec(name=name, init_from=TAKES.get(name)) for name in NAMES)
PIPELINE = Pipeline("all", EXPERIMENT, (), "own", STAGES)
EIO = OSError(errno.EIO, "Input/output error")
UNREADABLE = UnreadableError(Path("plan.json"), EIO)


def runs(spelling: str, logs: Path) -> graph.RunGraph:
    return runs_of_study(STUDY, logs) if spelling == "study" else Stages(PIPELINE, logs).runs


@pytest.fixture
def run(tmp_path, planner, stand_in):
    def run(spelling: str) -> tuple[int, list[str]]:
        command, of = stand_in("0:finish"), Stages(PIPELINE, tmp_path)
        if spelling == "study":
            code = run_study(STUDY, logs_root=tmp_path, planner=planner, program=command)
        else:
            code = graph.run_graph(of.runs, NAMES, plan_of=of.planned_by(planner), program=command)
        return code, [state.status for state in runs(spelling, tmp_path).states()]

    return run


@pytest.mark.parametrize(
    ("spelling", "second", "error"),
    [
        pytest.param("study", "done", EIO, id="study-written"),
        pytest.param("pipeline", "new", UNREADABLE, id="pipeline-read"),
        pytest.param("study", "done", UNREADABLE, id="study-read", marks=pytest.mark.slow),
        pytest.param("pipeline", "new", EIO, id="pipeline-written", marks=pytest.mark.slow),
    ],
)
def test_an_io_error_while_a_run_begins_ends_it_and_what_needs_it(run, monkeypatch, caplog, spelling, second, error):
    def start_run(plan, **options):
        if plan.run_id == "all/first":
            raise error
        return started(plan, **options)

    started = graph.start_run
    with monkeypatch.context() as broken:
        broken.setattr(graph, "start_run", start_run)
        assert run(spelling) == (1, ["new", second, "done"])
    assert any(line.startswith("[1/3] first: failed (exit status 71)") for line in caplog.messages)
    assert run(spelling) == (0, ["done"] * 3), "the same command runs what is left"


def test_another_error_of_the_system_is_a_bug_or_a_full_disk_and_ends_all(run, monkeypatch):
    def start_run(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(graph, "start_run", start_run)
    with pytest.raises(OSError, match="No space"):
        run("study")


@pytest.mark.parametrize("code", graph.STOPS)
def test_a_stop_of_one_run_is_one_of_all(run, monkeypatch, code):
    begun = []

    def start_run(plan, **_):
        begun.append(plan.run_id)
        return code

    monkeypatch.setattr(graph, "start_run", start_run)
    assert run("study") == (code, ["new"] * 3)
    assert begun == ["all/first"]


def test_a_stop_after_the_last_step_ends_what_follows_and_not_the_run(tmp_path, planner, stand_in, caplog):
    def stop() -> None:
        wait_until((tmp_path / "all" / "first" / "started_0").exists, "the first run")
        os.kill(os.getpid(), signal.SIGINT)

    asking = threading.Thread(target=stop)
    asking.start()
    code = run_study(STUDY, logs_root=tmp_path, planner=planner, program=stand_in("0:finish_when_asked"))
    asking.join()
    assert (code, [state.status for state in runs("study", tmp_path).states()]) == (75, ["done", "new", "new"])
    assert "second and what follows: not run: a stop was requested" in caplog.text
    resumed = run_study(STUDY, logs_root=tmp_path, planner=planner, program=stand_in("0:finish"))
    assert (resumed, [state.status for state in runs("study", tmp_path).states()]) == (0, ["done"] * 3)
