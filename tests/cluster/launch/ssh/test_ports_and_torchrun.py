"""A port that a firewall opens, torchrun started by hand on each host, and hosts that have their own parts only."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import HANG_S

from graphmill.tasks.node_classification.data.prepare import prepare

OF_TRAINING = ("threads=1", "epochs=3", "baselines=false")
SETTINGS = ("cora-sage", "-O", "dataset.features=as_stored", *(w for o in OF_TRAINING for w in ("-O", f"train.{o}")))
EXPERIMENT = (*SETTINGS, "-O", "dataset.name=synthetic/sbm")
PORT = 29517
LISTENS = """
import socket, sys, time
held = socket.create_server(("", int(sys.argv[1])))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def environ(source_environ, tmp_path_factory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=root, options={"num_nodes": 280, "num_edges": 1500, "features": 32})
    return {**source_environ, "GRAPHMILL_DATA_ROOT": str(root)}


@pytest.fixture
def on_host(hosts, environ):
    """Starts a command on a host, over ssh; it ends with the test."""
    started: list[subprocess.Popen] = []

    def start(i: int, *command: str) -> subprocess.Popen:
        variables = [f"{name}={environ[name]}" for name in ("PYTHONPATH", "GRAPHMILL_DATA_ROOT")]
        words = ["ssh", "-tt", "-F", str(hosts.ssh_config), f"host{i}", "env", *variables, *command]
        started.append(subprocess.Popen(hosts.here(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL, text=True))  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
    end = time.monotonic() + HANG_S
    while left := hosts.ours():
        assert time.monotonic() < end, f"still running: {left}"
        time.sleep(0.1)


def launch_words(hosts, hosts_yaml: Path, logs: Path, *words: str) -> list[str]:
    command = [sys.executable, "-m", "graphmill.cli", "launch", *words, "--hosts", str(hosts_yaml)]
    return hosts.here(*command, "--ssh-config", str(hosts.ssh_config), "--logs-root", str(logs), "--run-id", "run")


def listeners(hosts, i: int) -> set[int]:
    """The TCP ports that something listens on, on a host."""
    found: set[int] = set()
    pid = next(iter(hosts.processes(i)))
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            found |= {int(local.rpartition(":")[2], 16)} if state == "0A" else set()
    return found


def rank_0(run: Path, kind: str) -> list[dict]:
    lines = (run / "events" / "rank_0.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


@pytest.mark.slow
def test_rank_0_listens_on_the_port_that_is_given(hosts, hosts_file, environ, tmp_path):
    command = launch_words(hosts, hosts_file(2), tmp_path / "logs", *EXPERIMENT, "--port", str(PORT))
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    has_listened = False
    while process.poll() is None:
        has_listened = has_listened or PORT in listeners(hosts, 1)
        time.sleep(0.05)
    assert process.returncode == 0, process.communicate()[0]
    assert has_listened


def test_a_port_that_is_taken_is_told_and_nothing_is_left(hosts, hosts_file, environ, on_host, tmp_path):
    holder = tmp_path / "listens.py"
    holder.write_text(LISTENS)
    assert "ready" in on_host(1, sys.executable, str(holder), str(PORT)).stdout.readline()
    command = launch_words(hosts, hosts_file(2), tmp_path / "logs", *EXPERIMENT, "--port", str(PORT))
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 2
    assert f"host1: rank 0 cannot listen on port {PORT}: Address already in use" in done.stderr
    assert "another --port" in done.stderr
    assert not (tmp_path / "logs" / "run").exists()


@pytest.mark.slow
@pytest.mark.distributed
def test_torchrun_by_hand_trains_what_one_machine_trains(hosts, environ, on_host, tmp_path):
    logs = tmp_path / "logs"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    torchrun += ["--master-addr=host1", f"--master-port={PORT}"]
    train = ["-m", "graphmill.train", *EXPERIMENT, "--run-id", "run", "--logs-root", str(logs)]
    both = [on_host(i, *torchrun, f"--node-rank={i - 1}", *train) for i in (1, 2)]
    said = [process.communicate(timeout=2 * HANG_S)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    command = [sys.executable, "-m", "graphmill.cli", "train", *EXPERIMENT, "--ranks", "4", "--run-id", "here"]
    subprocess.run([*command, "--logs-root", str(logs)], env=environ, check=True, capture_output=True)
    hashes = [[event["parameter_hash"] for event in rank_0(logs / name, "sync")] for name in ("run", "here")]
    assert hashes[0] == hashes[1]
    starts = [json.loads((logs / "run" / "events" / f"rank_{rank}.jsonl").read_text().splitlines()[0])
              for rank in range(4)]  # fmt: skip
    assert [start["hostname"] for start in starts] == ["host1", "host1", "host2", "host2"]
    assert json.loads((logs / "run" / "plan.json").read_text())["hosts"] == 2


@pytest.mark.slow
@pytest.mark.distributed
def test_hosts_that_have_their_own_parts_and_no_more(hosts, hosts_file, environ, on_host, tmp_path):
    graphmill = [sys.executable, "-m", "graphmill.cli"]
    partition = [*graphmill, "partition", "synthetic/sbm", "--num-parts", "2", "--method", "random"]
    subprocess.run(partition, env=environ, check=True, capture_output=True)
    root, near = Path(environ["GRAPHMILL_DATA_ROOT"]), str(hosts.folder / "unshared")  # each host's own
    parts = root / "parts" / "synthetic" / "sbm" / "2-random"
    for i in (1, 2):
        stage = on_host(i, *graphmill, "stage", str(parts), "--part", str(i - 1), "--topology", "--to", near)
        said = stage.communicate(timeout=HANG_S)[0]
        assert stage.returncode == 0, said
    for own in (parts / "part_00000", parts / "part_00001", parts / "topology"):
        shutil.rmtree(own)  # what is left is what the launcher plans by
    variables = {"PYTHONPATH": environ["PYTHONPATH"], "GRAPHMILL_STAGED_ROOT": near}
    listed = hosts_file(2, ranks=2, environment=variables)
    of_parts = ("-O", f"dataset.name={parts}", "-O", "partition.seeds=equal")  # as where all is on one machine
    command = launch_words(hosts, listed, tmp_path / "logs", *SETTINGS, *of_parts)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=2 * HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    here = [*graphmill, "train", *EXPERIMENT, "--ranks", "4", "--run-id", "here", "--logs-root", str(tmp_path / "logs")]
    subprocess.run(here, env=environ, check=True, capture_output=True)
    losses = [[event["loss"] for event in rank_0(tmp_path / "logs" / name, "epoch")] for name in ("run", "here")]
    assert len(losses[0]) == 3
    assert losses[0] == losses[1]
    starts = [rank_0(tmp_path / "logs" / "run", "start")[0]["data"]]
    assert starts[0].endswith(".parts_0.topology")


@pytest.mark.slow
@pytest.mark.distributed
def test_hosts_that_train_are_served_by_one_that_samples(hosts, hosts_file, environ, tmp_path):
    """Two hosts of a trainer each, a third with the sampler: batches go over the network."""
    logs, roles = tmp_path / "logs", ("-O", "roles.samplers=1", "-O", "roles.trainers=2")
    listed = hosts_file(3, ranks=None)
    done = subprocess.run(launch_words(hosts, listed, logs, *EXPERIMENT, *roles), env=environ, capture_output=True,
                          text=True, timeout=2 * HANG_S, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    here = [sys.executable, "-m", "graphmill.cli", "train", *EXPERIMENT, "--ranks", "2", "--run-id", "here"]
    subprocess.run([*here, "--logs-root", str(logs)], env=environ, check=True, capture_output=True)
    hashes = [[event["parameter_hash"] for event in rank_0(logs / name, "sync")] for name in ("run", "here")]
    assert hashes[0] == hashes[1]
    starts = {path.stem: json.loads(path.read_text().splitlines()[0])["hostname"]
              for path in (logs / "run" / "events").iterdir()}  # fmt: skip
    assert starts == {"rank_0": "host1", "rank_1": "host2", "sampler_0": "host3"}
