"""Ranks that a user's own srun has started, and ranks whose port is another's: on a real Slurm."""

import sys

import pytest

from graphmill.record.events import Start, events_in
from graphmill.record.run_folder import RunFolder

TRAIN = (sys.executable, "-P", "-m", "graphmill.train")


def test_tasks_of_srun_train_one_run(cluster, toy, tmp_path):
    words = (*TRAIN, toy, "--run-id", "a", "--logs-root", tmp_path)
    done = cluster.run("srun", "--nodes=2", "--ntasks-per-node=2", *words, cwd=tmp_path)
    assert done.code == 0, done.err
    folder = RunFolder.open(tmp_path / "a")
    assert folder.read_outcome().status == "done"
    starts = [events_in(folder.events_path(rank), Start)[0] for rank in range(4)]
    assert [start.world_size for start in starts] == [4] * 4
    assert len({start.hostname for start in starts}) == 2
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_tasks_of_srun_on_one_host_meet_on_its_loopback(cluster, toy, tmp_path):
    words = (*TRAIN, toy, "--run-id", "b", "--logs-root", tmp_path)
    done = cluster.run("srun", "--nodes=1", "--ntasks=2", *words, cwd=tmp_path)
    assert done.code == 0, done.err
    assert RunFolder.open(tmp_path / "b").world().ranks == 2


def test_tasks_that_would_each_train_a_run_of_their_own_are_refused(cluster, toy, tmp_path):
    words = (sys.executable, "-m", "graphmill.cli", "train", toy, "--ranks", "2", "--logs-root", tmp_path / "logs")
    done = cluster.run("srun", "--nodes=1", "--ntasks=2", *words, cwd=tmp_path)
    assert done.code == 2, done.err
    assert "srun has started this 2 times" in done.err
    assert "python -m graphmill.train EXPERIMENT" in done.err
    assert not list((tmp_path / "logs").glob("*"))


LISTEN = """import socket, time
kept = socket.create_server(("", 29871))
open("listens", "w").close()
time.sleep(600)
"""


@pytest.mark.slow
def test_a_port_that_another_process_has_is_named_in_the_log_of_the_job_and_by_watch(cluster, toy, tmp_path):
    (tmp_path / "listen.py").write_text(LISTEN)
    lines = [f"{sys.executable} listen.py &", "until [ -e listens ]; do sleep 0.1; done"]
    own = f", port: 29871, setup_lines: {lines}}}\n"
    (tmp_path / "own.yaml").write_text(toy.read_text().rstrip().removesuffix("}") + own)
    done = cluster.graphmill("submit", "own.yaml", "--ranks", "2", "--run-id", "a", cwd=tmp_path)
    assert done.code == 0, done.err
    view = cluster.wait_for(tmp_path, "logs/a", "port_busy", "failed", "done", "bad_request")
    said = "port 29871 is in use at 127.0.0.1 of host"
    assert said in RunFolder.open(tmp_path / "logs/a").read_outcome().message
    assert said in str(view), view
    log = "".join(path.read_text() for path in tmp_path.rglob("*.out"))
    assert said in log, log
    assert "ss -ltnp" in log
