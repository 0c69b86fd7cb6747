"""`watch` shows loss, measure and rate of a run, whatever its task."""

from pathlib import Path

import pytest

from graphmill.cluster.follow import plain_line, what_counts
from graphmill.cluster.status import RunView, Watcher
from graphmill.record.documents import Outcome
from graphmill.record.endings import ENDINGS
from graphmill.record.metrics import write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import MachineInfo, resolve
from graphmill.tasks.traffic.page import KIND, TrafficExperiment, TrafficInfo

BEFORE = {"epoch": 2, "loss": 3.0, "val_mae": 1.5, "best_val_mae": 1.25}
NOW = {"epoch": 3, "loss": 2.5, "seeds_per_s": 640.0, "peak_rss_mib": 300.0}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    facts = TrafficInfo(
        name="toy", path="/nowhere", checksum="0", synthetic=True, num_train=50, num_sensors=1, num_edges=1,
        num_steps=80, interval_s=300, unit="mph", num_val=10, num_test=10,
    )  # fmt: skip
    machine = MachineInfo(num_cores=1, num_gpus=0)
    experiment = TrafficExperiment.model_validate({"train": {"epochs": 4, "ranks": 1}})
    return RunFolder.create(resolve(experiment, machine=machine, dataset=facts, run_id="run"), tmp_path)


def test_progress_of_a_traffic_run(folder: RunFolder, graphmill):
    """The score is the best so far, not the last; the last epoch was not evaluated."""
    write_metrics(folder.metrics_path, [BEFORE, NOW], KIND.columns)
    (view,) = Watcher([folder]).look()
    seen = view.progress
    assert (seen.epoch, seen.loss, seen.best, seen.seeds_per_s) == (3, 2.5, 1.25, 640.0)
    assert (seen.measure, seen.seeds_are, seen.peak_rss_mib) == ("MAE", "windows", 300.0)
    line = plain_line(view)
    assert all(words in line for words in ("loss 2.5000", "best val MAE 1.2500", "640 windows/s"))
    (row,) = [line for line in graphmill("list", "--logs-root", folder.path.parent).out.splitlines() if "MAE" in line]
    assert "1.25" in row


@pytest.mark.parametrize(("status", "code"), [("done", 0), ("stopped", 75), ("failed", 1), (None, 0)])
def test_one_look_ends_as_the_run_did(folder: RunFolder, graphmill, status, code: int):
    if status is not None:
        exit_code = ENDINGS[status].exit_status
        folder.write_outcome(Outcome(status=status, exit_code=exit_code, epochs=1, steps_per_rank=1, wall_s=1))
    assert graphmill("watch", folder.path, "--once").code == code


@pytest.mark.parametrize(("state", "is_new"), [("running", False), ("waiting", True)])
def test_only_of_a_run_that_does_not_run_is_another_detail_a_new_line(folder: RunFolder, state, is_new: bool):
    """Else a run without a heartbeat had a line at each look: no heartbeat for 190 s, 195 s, …"""
    sooner, later = (
        RunView("run", folder.path, state, "files", detail=f"no heartbeat for {seconds} s") for seconds in (190, 195)
    )
    assert (what_counts(sooner) != what_counts(later)) is is_new
