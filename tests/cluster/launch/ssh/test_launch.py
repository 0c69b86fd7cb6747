"""`graphmill launch` on real hosts: the same losses as here, and every way in which it may end."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from waiting import HANG_S

from graphmill import _native
from graphmill.cluster.launch.ssh.launch import _Ready, _starts
from graphmill.record.attempts import Begun
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.trust import TRUST_VARIABLE
from graphmill.spec.world import World
from graphmill.tasks.node_classification.data.prepare import prepare

REPO = Path(__file__).parents[4]
DATASET = ("-O", "dataset.name=synthetic/sbm", "-O", "dataset.features=as_stored")  # Cora would have to be downloaded
EXPERIMENT = ("cora-sage", *DATASET, "-O", "train.threads=1", "-O", "train.baselines=false")
LONG = (*EXPERIMENT, "-O", "train.epochs=100000", "-O", "train.evaluate_every_epochs=100000")


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset, about as many training nodes as Cora's."""
    root = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=root, options={"num_nodes": 280, "num_edges": 1500, "features": 32})
    return root


@pytest.fixture
def source_environ(source_environ: dict[str, str], data_root: Path) -> dict[str, str]:
    return {**source_environ, "GRAPHMILL_DATA_ROOT": str(data_root)}


class Launched:
    """`graphmill launch` as a process, and what it left."""

    def __init__(self, process: subprocess.Popen, run: Path, out: Path) -> None:
        self.process, self.run, self._out = process, run, out

    @property
    def output(self) -> str:
        return self._out.read_text()

    def wait(self, timeout_s: float = HANG_S) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the launcher did not end within {timeout_s} s: {self.output[-2000:]}")

    @property
    def outcome(self) -> dict:
        return json.loads((self.run / "outcome.json").read_text())


@pytest.fixture
def launch(hosts, tmp_path: Path, source_environ: dict[str, str]):
    started: list[Launched] = []

    def begin(hosts_yaml: Path, *words: str, run_id: str = "run", logs: Path | None = None, config=None) -> Launched:
        logs = logs or tmp_path / "logs"
        out = tmp_path / f"out-{len(started)}"
        command = [
            *(sys.executable, "-m", "graphmill.cli", "launch", *words, "--hosts", str(hosts_yaml)),
            *("--ssh-config", str(config or hosts.ssh_config), "--logs-root", str(logs)),
        ]
        if "--resume" not in words:
            command += ["--run-id", run_id]
        with out.open("wb") as file:
            process = subprocess.Popen(
                hosts.here(*command),
                env=source_environ,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        started.append(Launched(process, logs / run_id, out))
        return started[-1]

    yield begin
    for launched in started:
        launched.process.kill()
        launched.process.wait()
    for i in range(1, 5):
        hosts.set_link(i, "up")
    no_orphans(hosts)


def no_orphans(hosts, timeout_s: float = HANG_S) -> None:
    end = time.monotonic() + timeout_s
    while left := hosts.ours():
        assert time.monotonic() < end, f"still running: {left}"
        time.sleep(0.1)


def trains(launched: Launched) -> bool:
    assert launched.process.poll() is None, launched.output
    events = launched.run / "events"
    return events.exists() and any('"sync"' in path.read_text() for path in events.glob("rank_0.jsonl"))


def until_it_trains(launched: Launched, timeout_s: float = HANG_S) -> Launched:
    end = time.monotonic() + timeout_s
    while not trains(launched):
        assert time.monotonic() < end, launched.output
        time.sleep(0.1)
    return launched


def losses(run: Path) -> list[str]:
    header, *rows = [line.split(",") for line in (run / "metrics.csv").read_text().splitlines()]
    return [row[header.index("loss")] for row in rows]


def parameter_hash(run: Path) -> str:
    lines = (run / "events" / "rank_0.jsonl").read_text().splitlines()
    return [event["parameter_hash"] for event in map(json.loads, lines) if event["kind"] == "sync"][-1]


@pytest.fixture
def train_here(tmp_path, source_environ):
    """Trains on one machine, this one; returns the folder of the run."""

    def train(*words: str, ranks: int) -> Path:
        command = [sys.executable, "-m", "graphmill.cli", "train", *words, "--ranks", str(ranks), "--run-id", "here"]
        command += ["--logs-root", str(tmp_path / "logs")]
        subprocess.run(command, env=source_environ, check=True, capture_output=True)
        return tmp_path / "logs" / "here"

    return train


@pytest.mark.slow  # but for the run that is stopped and goes on, below
@pytest.mark.distributed
@pytest.mark.parametrize(("num_hosts", "per_host"), [(2, 1), (4, 1), (2, 2)])
def test_hosts_train_what_one_machine_trains(hosts_file, launch, train_here, num_hosts: int, per_host: int):
    ranks = num_hosts * per_host
    words = (*EXPERIMENT, "-O", "train.epochs=4")
    launched = launch(hosts_file(num_hosts, ranks=per_host), *words)
    assert launched.wait() == 0, launched.output
    here = train_here(*words, ranks=ranks)
    assert losses(launched.run) == losses(here)
    assert parameter_hash(launched.run) == parameter_hash(here)
    assert launched.outcome["status"] == "done"
    starts = [json.loads((launched.run / "events" / f"rank_{rank}.jsonl").read_text().splitlines()[0])
              for rank in range(ranks)]  # fmt: skip
    assert [start["hostname"] for start in starts] == [f"host{1 + rank // per_host}" for rank in range(ranks)]
    assert "host1:0" in launched.output


@pytest.mark.slow
def test_a_dry_run_shows_hosts_and_writes_nothing(hosts_file, launch, tmp_path):
    launched = launch(hosts_file(2), *EXPERIMENT, "--dry-run")
    assert launched.wait() == 0, launched.output
    assert "eth0" in launched.output
    assert list((tmp_path / "logs").iterdir()) == []


def test_an_unknown_host_key_is_refused_with_the_command_that_accepts_it(hosts, hosts_file, launch, tmp_path):
    known = tmp_path / "known_hosts"
    config = hosts.write_ssh_config("config_unknown", known)
    launched = launch(hosts_file(1), *EXPERIMENT, config=config)
    assert launched.wait() == 2
    assert "the host key of host1 (10.79.0.11) is not known" in launched.output
    command = f"ssh-keyscan {hosts.address(1)} >> {known}"
    assert f"`{command}`" in launched.output
    subprocess.run(hosts.here("bash", "-c", command), check=True, capture_output=True)
    accepted = launch(hosts_file(1), *EXPERIMENT, "--dry-run", config=config)
    assert accepted.wait() == 0, accepted.output
    assert list((tmp_path / "logs").iterdir()) == []


@pytest.mark.parametrize("known_hosts", ["none", pytest.param("/dev/null", marks=pytest.mark.slow)])
def test_no_setting_of_the_ssh_config_makes_an_unknown_key_good(hosts, hosts_file, launch, known_hosts):
    config = hosts.write_ssh_config("config_none", known_hosts)
    config.write_text(config.read_text() + " StrictHostKeyChecking no\n")
    launched = launch(hosts_file(1), *EXPERIMENT, config=config)
    assert launched.wait() == 2
    assert "is not known" in launched.output


def test_another_key_than_the_known_one_is_told_as_such(hosts, hosts_file, launch, tmp_path):
    known = tmp_path / "known_hosts"
    other = " ".join((hosts.folder / "key" / "id.pub").read_text().split()[:2])
    known.write_text(f"{hosts.address(1)} {other}\n")
    launched = launch(hosts_file(1), *EXPERIMENT, config=hosts.write_ssh_config("config_changed", known))
    assert launched.wait() == 2
    assert "shows another host key than the one in" in launched.output
    assert "ssh-keygen -R 10.79.0.11" in launched.output


@pytest.mark.slow
def test_other_code_on_one_host_is_refused(hosts_file, launch, tmp_path):
    checkout = tmp_path / "other"
    shutil.copytree(REPO / "src" / "graphmill", checkout / "graphmill", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_native.__file__, checkout / "graphmill")  # an editable install keeps it elsewhere
    with (checkout / "graphmill" / "train" / "loop.py").open("a") as file:
        file.write("# changed\n")
    (checkout / "sitecustomize.py").write_text(  # an editable install finds the package before PYTHONPATH does
        "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if 'ScikitBuild' not in type(f).__name__]\n"
    )
    mine = {2: {"directory": str(checkout), "environment": {"PYTHONPATH": str(checkout)}}}
    launched = launch(hosts_file(2, of=mine), *EXPERIMENT)
    assert launched.wait() == 2
    assert "not all hosts run the code that this one does" in launched.output
    assert "host2: graphmill" in launched.output
    assert "host1: graphmill" not in launched.output


def test_a_logs_folder_that_is_not_shared_is_refused(hosts, hosts_file, launch):
    launched = launch(hosts_file(2), *EXPERIMENT, logs=hosts.folder / "unshared")
    assert launched.wait() == 2
    assert "host2 does not see this host's" in launched.output
    assert list((hosts.folder / "unshared").iterdir()) == []


def test_all_hosts_that_cannot_be_used_are_told_at_once(hosts_file, launch):
    mine = {1: {"python": "/nowhere/python"}, 2: {"directory": "/nowhere"}}
    launched = launch(hosts_file(2, of=mine), *EXPERIMENT)
    assert launched.wait() == 2
    assert "/nowhere/python" in launched.output
    assert "the agent on host2 does not run" in launched.output


def test_values_are_never_read_by_a_shell(hosts, hosts_file, launch, tmp_path):
    folder = tmp_path / "a b; touch pwned $(touch pwned) `touch pwned` 'x' \"y\""
    folder.mkdir()
    hostile = f"$(touch {tmp_path}/pwned)\n; touch {tmp_path}/pwned"
    mine = {1: {"directory": str(folder), "environment": {"HOSTILE": hostile}}}
    launched = until_it_trains(launch(hosts_file(1, of=mine), *LONG))
    [rank] = hosts.ranks(launched.run, 1)
    assert f"HOSTILE={hostile}".encode() in Path(f"/proc/{rank}/environ").read_bytes().split(b"\0")
    assert Path(f"/proc/{rank}/cwd").resolve() == folder
    launched.process.send_signal(signal.SIGTERM)
    assert launched.wait() == 75, launched.output
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.slow
def test_a_killed_rank_ends_all_and_is_told_first(hosts, hosts_file, launch):
    launched = until_it_trains(launch(hosts_file(2), *LONG))
    [victim] = hosts.ranks(launched.run, 2)
    os.kill(victim, signal.SIGKILL)
    assert launched.wait() == 1
    assert re.search(r"error: rank 1 of 2 failed first on \S+: killed by SIGKILL", launched.output)
    assert "Traceback" not in launched.output
    assert launched.outcome["status"] == "failed"
    assert not hosts.ours()


@pytest.mark.slow
def test_a_read_only_run_folder_hides_no_first_error(hosts, hosts_file, launch):
    launched = until_it_trains(launch(hosts_file(2), *LONG))
    run = str(launched.run)
    subprocess.run(["mount", "--bind", run, run], check=True)  # for the launcher alone: the hosts have their own mounts
    try:
        subprocess.run(["mount", "--options", "remount,bind,ro", run], check=True)
        [victim] = hosts.ranks(launched.run, 2)
        os.kill(victim, signal.SIGKILL)
        assert launched.wait() == 1, launched.output
    finally:
        subprocess.run(["umount", "--lazy", run], check=True)
    first, last = (
        launched.output.index(words)
        for words in ("error: rank 1 of 2 failed first", "could not write to the run folder")
    )
    assert first < last
    assert "Read-only file system" in launched.output[last:]
    assert "Traceback" not in launched.output
    assert not hosts.ours()


@pytest.mark.slow
def test_a_killed_launcher_leaves_no_orphan(hosts, hosts_file, launch):
    launched = until_it_trains(launch(hosts_file(2), *LONG))
    assert [len(hosts.ranks(launched.run, host)) for host in (1, 2)] == [1, 1]
    launched.process.kill()
    no_orphans(hosts)


@pytest.mark.slow
def test_a_killed_agent_leaves_no_orphan_and_its_host_is_lost(hosts, hosts_file, launch):
    launched = until_it_trains(launch(hosts_file(2), *LONG))
    [agent] = hosts.processes(2, word="graphmill.cluster.launch.ssh.remote")
    os.kill(agent, signal.SIGKILL)
    assert launched.wait() == 74
    assert "error: host2 was lost: it was killed by SIGKILL" in launched.output
    assert not hosts.ours()
    assert "host2 was lost" in launched.outcome["message"]


@pytest.mark.slow
@pytest.mark.parametrize("host", [1, 2])
def test_a_network_that_is_cut_for_good_ends_the_run(hosts, hosts_file, launch, host: int):
    launched = until_it_trains(launch(hosts_file(2), *LONG))
    hosts.set_link(host, "down")
    assert launched.wait() == 74, launched.output
    assert f"error: host{host} was lost" in launched.output
    no_orphans(hosts)  # on the host that is cut off, too
    assert launched.outcome["exit_code"] == 74


@pytest.mark.slow
def test_a_network_that_is_cut_for_five_seconds_is_survived(hosts, hosts_file, launch):
    launched = until_it_trains(launch(hosts_file(2), *LONG))
    hosts.set_link(2, "down")
    time.sleep(5)  # the cut itself
    hosts.set_link(2, "up")
    size = (launched.run / "events" / "rank_1.jsonl").stat().st_size
    end = time.monotonic() + HANG_S
    while (launched.run / "events" / "rank_1.jsonl").stat().st_size <= size:
        assert launched.process.poll() is None, launched.output
        assert time.monotonic() < end, "no step after the cut"
        time.sleep(0.1)
    launched.process.send_signal(signal.SIGINT)
    assert launched.wait() == 75, launched.output


@pytest.mark.distributed
def test_ctrl_c_saves_a_checkpoint_and_the_run_goes_on_as_if_nothing_had_been(hosts, hosts_file, launch, train_here):
    """Nor as if it had been on several hosts."""
    path = hosts_file(2)
    words = (*EXPERIMENT, "-O", "train.epochs=20", "-O", "train.batch_size=8", "-O", "train.evaluate_every_epochs=10")
    stopped = until_it_trains(launch(path, *words, run_id="stopped"))
    stopped.process.send_signal(signal.SIGINT)
    assert stopped.wait() == 75, stopped.output
    assert f"continue with `graphmill launch --hosts {path} --resume {stopped.run}`" in stopped.output
    assert (stopped.outcome["status"], stopped.outcome["exit_code"]) == ("stopped", 75)
    assert not hosts.ours()
    resumed = launch(path, "--resume", str(stopped.run), run_id="stopped")
    assert resumed.wait() == 0, resumed.output
    here = train_here(*words, ranks=2)
    assert parameter_hash(resumed.run) == parameter_hash(here)
    assert losses(resumed.run) == losses(here)


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once(hosts, hosts_file, launch):
    launched = until_it_trains(launch(hosts_file(2), *LONG))
    ranks = [*hosts.ranks(launched.run, 1), *hosts.ranks(launched.run, 2)]
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)  # so that the first one cannot be heeded
    launched.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    launched.process.send_signal(signal.SIGINT)
    assert launched.wait() == 130, launched.output
    assert not hosts.ours()


@pytest.mark.slow
def test_resume_with_other_hosts(hosts, hosts_file, launch):
    """One of two hosts is gone: the other continues with its ranks, and the global batches stay."""
    stopped = until_it_trains(launch(hosts_file(2), *LONG))
    stopped.process.send_signal(signal.SIGINT)
    assert stopped.wait() == 75, stopped.output
    folder = RunFolder(stopped.run)
    planned = folder.read_plan().ranks
    resumed = launch(hosts_file(1), "--resume", str(stopped.run))
    end = time.monotonic() + HANG_S
    while folder.events_path(0).read_text().count('"kind": "start"') < 2:
        assert time.monotonic() < end, resumed.output
        time.sleep(0.1)
    resumed.process.send_signal(signal.SIGINT)
    assert resumed.wait() == 75, resumed.output
    assert f"attempt 2 has {planned // 2} ranks, and {planned} were planned" in resumed.output
    assert [(each.world.hosts, each.world.ranks) for each in folder.attempts()] == [(2, planned), (1, planned // 2)]
    assert not hosts.ours()


def test_what_is_trusted_here_is_handed_to_every_host(new_run, monkeypatch):
    """A host has a list of its own of whose code may be run, or none."""
    folder, plan = new_run(2)
    world = World(hosts=2, ranks=2, threads=1)
    asked = []

    class OneHost:
        async def ask(self, request, _):
            asked.append(request)

    checked = SimpleNamespace(port=1, interface="lo")
    ready = _Ready([OneHost(), OneHost()], plan, world, [checked, checked], "host1")
    monkeypatch.setenv(TRUST_VARIABLE, "mine.Model")

    async def start() -> None:
        await asyncio.gather(*_starts(SimpleNamespace(program=()), ready, Begun(folder, 1, resumed=True)))

    asyncio.run(start())
    assert [request.trusted for request in asked] == ["mine.Model"] * 2
    assert [request.processes for request in asked] == [(0,), (1,)]
