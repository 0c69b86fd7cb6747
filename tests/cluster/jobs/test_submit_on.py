"""`submit --on`: from a folder without a cluster to a real Slurm over a real sshd; it trains what was sent."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.record.run_folder import RunFolder
from graphmill_devcluster.description import Description
from graphmill_devcluster.requirements import check_requirements

GRAPHMILL = [sys.executable, "-m", "graphmill.cli"]
EXPERIMENT = """
name: mine
dataset: {name: synthetic/sbm}
model: {kind: custom, target: net.Net}
train: {epochs: 2, batch_size: 60, num_neighbors: [4], threads: 1, device: cpu}
slurm: {site: devcluster, time: 10}
"""
NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index):
        return self.lin(x)
"""


@pytest.mark.slow
def test_from_a_laptop_to_a_finished_run(tmp_path: Path):
    try:
        check_requirements(Description())
    except UserError as error:
        pytest.skip(f"no dev cluster here: {error.message}")
    laptop, there = tmp_path / "laptop", tmp_path / "there"
    laptop.mkdir()
    (laptop / "mine.yaml").write_text(EXPERIMENT)
    (laptop / "net.py").write_text(NET)
    program = tmp_path / "graphmill"  # as the host calls it: its data are its own
    program.write_text(f'#!/bin/sh\nGRAPHMILL_DATA_ROOT={tmp_path}/data exec {shlex.join(GRAPHMILL)} "$@"\n')
    program.chmod(0o755)
    words = ["--on", f"host1:{there}", "--remote-graphmill", str(program), "--run-id", "one"]
    command = shlex.join([*GRAPHMILL, "submit", "--run", "--site", "devcluster", *words[:4]])
    inside = f"""
        set -e
        {program} prepare synthetic/sbm
        {shlex.join([*GRAPHMILL, "submit", "mine.yaml", *words])} --ssh-config "$GRAPHMILL_SSH_CONFIG"
        {command} --ssh-config "$GRAPHMILL_SSH_CONFIG" \
            -- touch "made there" ./--on
        echo "raise SystemExit('changed since')" > net.py
        until [ "$(squeue --noheader)" = "" ]; do sleep 0.5; done
        {shlex.join([*GRAPHMILL, "pull", f"host1:{there}/logs", "--to", "logs"])} --ssh-config "$GRAPHMILL_SSH_CONFIG"
    """
    run = [*GRAPHMILL, "devcluster", "run", "--hosts", "1", "--", "bash", "-c", inside]
    done = subprocess.run(run, cwd=laptop, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (there / "net.py").read_text() == NET
    assert (there / "made there").is_file()  # by a command as a job
    assert (there / "--on").is_file()
    (command_here,) = (laptop / "logs" / "jobs").glob("touch-*")
    assert RunFolder(command_here).is_done()
    assert RunFolder(command_here).read_command().words == ("touch", "made there", "./--on")
    outcome = RunFolder(laptop / "logs" / "one").read_outcome()
    assert outcome is not None, done.stdout + done.stderr
    assert outcome.status == "done"
