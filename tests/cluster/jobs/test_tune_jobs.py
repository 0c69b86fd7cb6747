"""A search as a job of a real Slurm, killed again and again: no trial is lost, none is doubled."""

import json
import time

import pytest
from waiting import HANG_S

from graphmill.record.run_folder import RunFolder
from graphmill.record.trials import SearchFolder

pytest.importorskip("optuna")

TOY = """
name: found
experiment:
  dataset: {name: synthetic/sbm}
  model: {hidden_channels: 8}
  train: {epochs: 6, batch_size: 60, num_neighbors: [4, 4], threads: 1, baselines: false}
space: {train.optimizer.lr: {low: 1.0e-3, high: 1.0e-1, log: true}, model.hidden_channels: [4, 8]}
trials: 6
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["scancel", "kill"])
def test_a_search_that_is_ended_ten_times_goes_on(cluster, tmp_path, how):
    (tmp_path / "search.yaml").write_text(TOY)
    never = cluster.graphmill("tune", "search.yaml", "--logs-root", "never", cwd=tmp_path)
    assert never.code == 0, never.err
    words = ("submit", "--run", "--json", "--site", "devcluster", "--time", "5", "--cpus-per-host", "1")
    first = cluster.graphmill(*words, "--", "graphmill", "tune", "search.yaml", cwd=tmp_path)
    assert first.code == 0, first.err
    said = json.loads(first.out)
    folder, job, found = tmp_path / said["run"], said["job_id"], SearchFolder(tmp_path / "logs" / "found")
    for number in range(10):
        until = time.monotonic() + HANG_S
        while len(found.trials() if found.path.exists() else []) < min(1 + number // 2, 6):
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(0.35 * (number % 4))
        if how == "scancel":
            cluster.run("scancel", job, cwd=tmp_path)
        else:  # every process of the job at once
            cluster.run("scancel", "--signal=KILL", "--full", job, cwd=tmp_path)
        view = cluster.wait_for(tmp_path, str(folder), "done", "failed", "stopped", "out_of_time", "lost", "unfinished")
        if view["state"] == "done":
            break
        again = cluster.graphmill("submit", "--resume", str(folder), "--json", cwd=tmp_path)
        assert again.code == 0, again.err
        job = json.loads(again.out)["job_id"]
    assert number > 3
    assert cluster.wait_for(tmp_path, str(folder), "done")["state"] == "done"
    assert found.trials() == SearchFolder(tmp_path / "never" / "found").trials()
    assert sum(len(RunFolder(found.path / trial.name).attempts()) for trial in found.trials()) > len(found.trials())
