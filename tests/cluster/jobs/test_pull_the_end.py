"""Runs that are pulled from a cluster: how their jobs ended comes with them, and `verify` is whole at home."""

import json
import os
import subprocess
import sys

import pytest
from waiting import wait_until

from graphmill.record.run_folder import RunFolder
from graphmill.tasks.node_classification.data.prepare import prepare

EXPERIMENT = """
name: toy
dataset: {name: synthetic/sbm}
model: {hidden_channels: 8}
train: {epochs: 2, batch_size: 20, num_neighbors: [4, 4], threads: 1}
slurm: {site: devcluster, time: 10}
"""


@pytest.mark.slow
def test_how_the_jobs_ended_comes_with_the_runs(slurm, tmp_path):
    del slurm
    prepare("synthetic/sbm", root=tmp_path / "data", options={"num_nodes": 300, "num_edges": 1500, "features": 8})
    (tmp_path / "toy.yaml").write_text(EXPERIMENT)
    home = tmp_path / "home"
    home.mkdir()

    def graphmill(*words: str, code: int = 0, at_home: bool = False) -> str:
        without = {"PATH": f"{home}/bin", "SLURM_CONF": "/nowhere"} if at_home else {}  # no sacct there
        done = subprocess.run(
            [sys.executable, "-m", "graphmill.cli", *words], cwd=home if at_home else tmp_path,
            env=os.environ | without, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    graphmill("submit", "toy.yaml", "--dataset-root", "data", "--run-id", "one")
    graphmill("watch", "one")
    source = ("pull", f"host1:{tmp_path}/logs", "--to", str(home / "logs"))
    config = ("--ssh-config", os.environ["GRAPHMILL_SSH_CONFIG"])
    run = RunFolder(home / "logs" / "one")

    def pulled() -> bool:
        graphmill(*source, *config)
        return run.sacct_ended_path.exists()

    wait_until(pulled, "the accounting to know the job's end")
    rows = json.loads(run.sacct_ended_path.read_text())
    assert {row["State"] for row in rows if "." not in row["JobID"]} == {"COMPLETED"}
    checks = [
        check
        for verified in json.loads(graphmill("verify", "one", "--json", at_home=True))["runs"]
        for check in verified["checks"]
    ]
    state = next(check for check in checks if check["name"] == "state")
    assert (state["result"], "COMPLETED" in state["detail"]) == ("ok", True), state
    assert [check["name"] for check in checks if check["group"] == "checkpoints"] == ["whole"]
    assert [check for check in checks if check["result"] == "fail"] == []
    assert "1 unchanged" in graphmill(*source, *config)
    graphmill(*source, *config, "--checkpoints")
    again = json.loads(graphmill("verify", "one", "--json", at_home=True))
    assert "pull" not in json.dumps(
        [check for each in again["runs"] for check in each["checks"] if check["group"] == "checkpoints"]
    )
