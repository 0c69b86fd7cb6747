"""Studies, with real processes that stand in for the ranks."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import HANG_S, wait_until

from graphmill.base.errors import UserError
from graphmill.cluster.launch.study import run_study, runs_of_study
from graphmill.record.run_folder import find_runs
from graphmill.spec.study import Study

EXPERIMENT = {"train": {"ranks": 1, "epochs": 2, "batch_size": 10}}


def study(**keys) -> Study:
    return Study(name="s", experiment=EXPERIMENT, **{"vary": {"train.optimizer.lr": [0.1, 0.2, 0.3]}, **keys})


def run(tmp_path, planner, command, **keys) -> int:
    return run_study(study(**keys), logs_root=tmp_path, planner=planner, program=command)


def statuses(tmp_path) -> list[str]:
    return [state.status for state in runs_of_study(study(), tmp_path).states()]


def test_all_cells_run_and_a_second_time_all_are_skipped(tmp_path, planner, stand_in, caplog):
    assert statuses(tmp_path) == ["new"] * 3
    assert run(tmp_path, planner, stand_in("0:finish")) == 0
    assert statuses(tmp_path) == ["done"] * 3
    assert [folder.path.name for folder in find_runs(tmp_path)] == ["lr-0.1", "lr-0.2", "lr-0.3"]
    caplog.clear()
    assert run(tmp_path, planner, ["/nowhere"]) == 0
    assert ["done already" in line for line in caplog.messages] == [True] * 3


def test_a_failed_cell_is_recorded_and_the_study_goes_on(tmp_path, planner, stand_in, caplog):
    only_the_second = tmp_path / "only_the_second.py"
    only_the_second.write_text(
        "import sys, runpy; name = sys.argv[2]; what = 'crash' if 'lr-0.2' in name else 'finish'\n"
        "sys.argv = ['rank.py', f'0:{what}', '--', name]\n"
        f"runpy.run_path({stand_in()[0]!r}, run_name='__main__')"
    )
    code = run(tmp_path, planner, [str(only_the_second), "--"])
    assert code == 1
    assert statuses(tmp_path) == ["done", "failed", "done"]
    assert "1 of 3 cells failed: lr-0.2" in caplog.messages[-1]
    assert run(tmp_path, planner, stand_in("0:finish")) == 0, "the failed one is tried again"
    assert statuses(tmp_path) == ["done"] * 3


def test_everything_is_planned_before_anything_runs(tmp_path, planner, stand_in):
    with pytest.raises(UserError, match=r"cell lr--3"):
        run(tmp_path, planner, stand_in("0:finish"), vary={"train.optimizer.lr": [0.1, -3]})
    with pytest.raises(UserError, match="max_steps"):
        run(tmp_path, planner, stand_in("0:finish"), vary={"train.max_steps": [4, 6]}, set={"train.ranks": 4})
    assert find_runs(tmp_path) == []


def test_the_same_problem_in_every_cell_is_told_once(tmp_path, planner, stand_in):
    with pytest.raises(UserError) as refused:
        run(tmp_path, planner, stand_in(), set={"train.device": "cuda"})
    assert refused.value.message.count("no GPU") == 1


def test_a_cell_of_an_edited_study_is_not_taken_for_the_old_one(tmp_path, planner, stand_in):
    one = {"vary": {"train.optimizer.lr": [0.1]}}
    run(tmp_path, planner, stand_in("0:finish"), **one)
    with pytest.raises(UserError, match="batch_size is 10 there and 20 here"):
        run(tmp_path, planner, stand_in("0:finish"), set={"train.batch_size": 20}, **one)


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from planned_runs import planned
from graphmill.cluster.launch.study import run_study
from graphmill.spec.study import Study
experiment = {"train": {"ranks": 1, "epochs": 2, "batch_size": 10}}
study = Study(name="s", experiment=experiment, vary={"train.optimizer.lr": [0.1, 0.2, 0.3]})
sys.exit(run_study(study, logs_root=Path(sys.argv[1]), planner=planned, program=sys.argv[3:]))
"""


def test_a_stop_ends_the_study_and_the_same_command_goes_on(tmp_path, planner, stand_in, source_environ):
    here = str(Path(__file__).parents[2] / "plugins")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), here, *stand_in("0:sleep")],
        env=source_environ,
        stdout=subprocess.PIPE,
    )
    started = tmp_path / "s" / "lr-0.1" / "started_0"
    wait_until(started.exists, "the first cell")
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 75
    assert statuses(tmp_path) == ["stopped", "new", "new"]
    assert run(tmp_path, planner, stand_in("0:finish")) == 0
    assert statuses(tmp_path) == ["done"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("is_late", [False, True])
def test_a_second_interrupt_ends_the_study_too(tmp_path, planner, stand_in, source_environ, is_late):
    """`is_late`: the launcher runs again only when the wait that the interrupt breaks is over, as on a busy host."""
    here = str(Path(__file__).parents[2] / "plugins")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), here, *stand_in("0:hang")],
        env=source_environ,
        stdout=subprocess.PIPE,
    )
    first = tmp_path / "s" / "lr-0.1"
    wait_until((first / "started_0").exists, "the first cell")
    process.send_signal(signal.SIGINT)
    wait_until((first / "asked_0").exists, "the first interrupt")
    if is_late:
        process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    if is_late:
        time.sleep(0.5)  # the launcher waits 0.1 s at a time
        process.send_signal(signal.SIGCONT)
    try:
        wait_until(lambda: process.poll() is not None or statuses(tmp_path)[1] != "new", "the study to end")
        assert process.poll() == 130
    finally:
        process.kill()
        process.wait()
    assert statuses(tmp_path) == ["interrupted", "new", "new"]
