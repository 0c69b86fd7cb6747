"""Ranks that come together on odd hosts, or not at all: real processes, in network namespaces where need be."""

import os
import subprocess
import sys

import pytest
import yaml
from waiting import HANG_S

from graphmill.cluster.launch.local import reserved_port
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.secret import TOKEN, new_token

pytestmark = pytest.mark.distributed

SMALL = {
    "name": "small",
    "dataset": {"name": "cora"},
    "model": {"kind": "graphsage", "hidden_channels": 8, "num_layers": 2},
    "train": {"epochs": 1, "batch_size": 10, "num_neighbors": [3, 3], "threads": 1},
}


@pytest.fixture
def train_where(environ, data_root, tmp_path):
    """Trains with two ranks in a network namespace of its own, whose loopback a line of the shell has set up."""
    if os.geteuid() != 0:
        pytest.skip("only root makes network namespaces")
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL))

    def train(line: str) -> "subprocess.CompletedProcess[str]":
        words = f"{sys.executable} -m graphmill.cli train small.yaml --ranks 2 --run-id run"
        return subprocess.run(
            ["unshare", "--net", "sh", "-c", f"{line}; exec {words}"],
            env={**environ, "GRAPHMILL_DATA_ROOT": str(data_root)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )

    return train


@pytest.mark.slow
def test_a_host_whose_loopback_has_no_ipv4(train_where, tmp_path):
    done = train_where("ip link set lo up; ip addr del 127.0.0.1/8 dev lo")
    assert done.returncode == 0, done.stderr
    assert RunFolder.open(tmp_path / "logs/run").read_outcome().status == "done"


def test_a_host_without_loopback_is_told_what_to_do(train_where):
    done = train_where("true")
    assert done.returncode == 2, done.stderr
    assert "neither 127.0.0.1 nor ::1" in done.stderr
    assert "ip link set lo up" in done.stderr


def test_a_rank_that_does_not_come_is_missed_by_its_number(environ, planned, tmp_path):
    folder = RunFolder.create(planned("run", ranks=2, meet_timeout_s=5), tmp_path)
    folder.begin_attempt(resumed=False, command=["test"])
    with reserved_port("127.0.0.1") as port:
        own = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", TOKEN: new_token()}
        alone = subprocess.run(
            [sys.executable, "-m", "graphmill.train.worker", str(folder.path)],
            env={**environ, **own, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
    assert alone.returncode == 74, alone.stderr
    outcome = folder.read_outcome()
    assert outcome.status == "lost"
    for text in (outcome.message, alone.stderr):
        assert "within 5 s" in text
        assert "but not rank 1" in text
        assert f"127.0.0.1:{port}" in text
        assert "interface lo" in text
        assert "-O train.meet_timeout_s=10" in text
    assert "Traceback" not in alone.stderr
