"""The same experiment on the same hosts, started by Slurm and over SSH: the same losses and weights, bit for bit."""

import os
import subprocess
import sys

import pytest

from graphmill.record.events import Sync, events_in
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.node_classification.data.prepare import prepare

EXPERIMENT = """
name: toy
dataset: {name: synthetic/sbm}
model: {hidden_channels: 8}
train: {epochs: 3, batch_size: 20, num_neighbors: [4, 4], threads: 1, sync: {scheme: local_sgd, every: 2}}
slurm: {site: devcluster, time: 10}
"""


def graphmill(*words: str, cwd) -> None:
    command = [sys.executable, "-m", "graphmill.cli", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_four_hosts_over_ssh_train_what_slurm_trains(slurm, tmp_path):
    del slurm
    prepare("synthetic/sbm", root=tmp_path / "data", options={"num_nodes": 300, "num_edges": 1500, "features": 8})
    (tmp_path / "toy.yaml").write_text(EXPERIMENT)
    (tmp_path / "hosts.yaml").write_text(
        "hosts: [{address: host1}, {address: host2}, {address: host3}, {address: host4}]\n"
    )
    shared = ("toy.yaml", "--dataset-root", "data")
    graphmill("submit", *shared, "--hosts", "4", "--run-id", "by-slurm", cwd=tmp_path)
    graphmill("watch", "by-slurm", cwd=tmp_path)
    config = os.environ["GRAPHMILL_SSH_CONFIG"]
    graphmill("launch", *shared, "--hosts", "hosts.yaml", "--ssh-config", config, "--run-id", "over-ssh", cwd=tmp_path)
    runs = [RunFolder(tmp_path / "logs" / name) for name in ("by-slurm", "over-ssh")]
    losses = [[(row["loss"], row["val_loss"]) for row in read_metrics(run.metrics_path)] for run in runs]
    assert losses[0] == losses[1]
    hashes = [[sync.parameter_hash for sync in events_in(run.events_path(3), Sync)] for run in runs]
    assert len(hashes[0]) == 6
    assert hashes[0] == hashes[1]
