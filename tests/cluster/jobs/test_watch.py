"""`watch`, `list` and `stop`, on a real Slurm: many jobs, tools that are away, a controller that restarts."""

import json
import sys
import time

import pytest
from waiting import HANG_S

from graphmill.record.documents import Outcome
from graphmill.record.run_folder import RunFolder


@pytest.fixture
def counted(tmp_path, cluster):
    """A PATH on which every call of squeue and sacct is counted."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("squeue", "sacct"):
        path = folder / name
        path.write_text(f'#!/bin/bash\necho x >>{tmp_path}/{name}.count\nexec /usr/bin/{name} "$@"\n')
        path.chmod(0o755)
    return f"{folder}:{cluster.environ['PATH']}"


def num_calls(tmp_path, name: str) -> int:
    path = tmp_path / f"{name}.count"
    return len(path.read_text().splitlines()) if path.exists() else 0


LOOKS = """
{python} -m graphmill.cli watch s --interval 1 --json >out 2>err &
until grep -q '"troubles"' out || ! kill -0 $!; do sleep 0.1; done
kill $!
wait || true
"""


@pytest.mark.parametrize("num_jobs", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_one_call_of_squeue_per_look_however_many_jobs(cluster, toy, tmp_path, counted, num_jobs):
    seeds = ", ".join(str(seed) for seed in range(num_jobs))
    (tmp_path / "s.yaml").write_text(f"name: s\nexperiment: toy.yaml\nseeds: [{seeds}]\n")
    options = ["--chain", "afterany", "--sbatch-arg=--hold", "--json"]
    done = cluster.graphmill("study", "submit", "s.yaml", *options, cwd=tmp_path, timeout_s=600)
    assert len({job["job_id"] for job in json.loads(done.out)["jobs"]}) == num_jobs, done.err
    cluster.run("bash", "-uc", LOOKS.format(python=sys.executable), cwd=tmp_path, PATH=counted)
    documents = (tmp_path / "out").read_text().count('"troubles"')
    assert documents >= 1, (tmp_path / "err").read_text()
    assert documents <= num_calls(tmp_path, "squeue") <= documents + 1  # the last look may have been cut off
    assert num_calls(tmp_path, "sacct") == 0
    assert cluster.graphmill("list", cwd=tmp_path).out.count("waiting") == num_jobs
    assert cluster.graphmill("stop", "s", cwd=tmp_path).code == 0
    assert cluster.graphmill("list", cwd=tmp_path).out.count("Slurm says CANCELLED") == num_jobs


@pytest.mark.slow
def test_sources_are_said(cluster, toy, tmp_path):
    done = cluster.graphmill("submit", toy, "--run-id", "a", "--sbatch-arg=--hold", "--json", cwd=tmp_path)
    assert done.code == 0, "it is held as it was asked to be"
    bin_folder = tmp_path / "none"
    bin_folder.mkdir()
    seen = json.loads(cluster.graphmill("watch", "a", "--once", "--json", cwd=tmp_path).out)
    assert (seen["runs"][0]["source"], seen["runs"][0]["slurm_reason"]) == ("squeue", "JobHeldUser")

    without = json.loads(cluster.graphmill("list", "--json", cwd=tmp_path, PATH=str(bin_folder)).out)
    assert (without["runs"][0]["source"], without["runs"][0]["state"]) == ("run folder", "unresponsive")
    assert any("squeue is not on PATH" in trouble for trouble in without["troubles"])

    folder = RunFolder(tmp_path / "logs" / "a")
    folder.events_path(0).parent.mkdir()
    folder.events_path(0).write_text("{}\n")
    beating = json.loads(cluster.graphmill("list", "--json", cwd=tmp_path, PATH=str(bin_folder)).out)["runs"][0]
    assert (beating["source"], beating["state"]) == ("run folder", "running")
    folder.write_outcome(Outcome(status="failed", exit_code=1, epochs=0, steps_per_rank=0, wall_s=1, message="why"))
    ended = json.loads(cluster.graphmill("list", "--json", cwd=tmp_path, PATH=str(bin_folder)).out)["runs"][0]
    assert (ended["source"], ended["state"], ended["detail"]) == ("run folder", "failed", "why")

    (bin_folder / "sacct").symlink_to("/usr/bin/sacct")
    until = time.monotonic() + HANG_S
    while True:  # the accounts lag
        seen = json.loads(cluster.graphmill("list", "--json", cwd=tmp_path, PATH=str(bin_folder)).out)["runs"][0]
        if seen["source"] == "sacct" or time.monotonic() > until:
            break
    assert (seen["source"], seen["state"], seen["slurm_state"]) == ("sacct", "waiting", "PENDING")
    refused = cluster.graphmill("stop", "a", cwd=tmp_path, PATH=str(tmp_path / "nowhere"))
    assert refused.code == 2
    assert cluster.graphmill("stop", "a", cwd=tmp_path).code == 0


RESTART = """
{python} -m graphmill.cli watch a --interval 1 >out 2>err &
until [ -s out ]; do sleep 0.1; done
{python} -c "from graphmill_devcluster.daemons import stop; stop('slurmctld')"
until [ -s err ]; do sleep 0.1; done
{python} -c "from graphmill_devcluster.daemons import start_slurmctld; start_slurmctld()"
until grep -q answers err; do sleep 0.1; done
scancel "$1"
wait || true
while sinfo --noheader --format=%t | grep -q unk; do sleep 0.1; done  # the next test's job may want all hosts
"""


@pytest.mark.slow  # squeue tries for 20 s before it gives up
def test_a_controller_that_restarts_is_waited_for(cluster, toy, tmp_path):
    done = cluster.graphmill("submit", toy, "--run-id", "a", "--sbatch-arg=--hold", "--json", cwd=tmp_path)
    number = json.loads(done.out)["job_id"]
    script = RESTART.format(python=sys.executable)
    cluster.run("bash", "-euc", script, "bash", number, cwd=tmp_path, timeout_s=200)
    assert "squeue" in (tmp_path / "err").read_text().splitlines()[0]
    assert "Slurm answers again" in (tmp_path / "err").read_text()
    assert "cancelled" in (tmp_path / "out").read_text().splitlines()[-1]


@pytest.mark.slow
def test_stop_asks_for_a_checkpoint_first(cluster, toy, tmp_path):
    cluster.graphmill("submit", toy, "--run-id", "a", "--hosts", "2", "--epochs", "100000", cwd=tmp_path)
    cluster.wait_for(tmp_path, "a", "running")
    dry = cluster.graphmill("stop", "a", "--dry-run", cwd=tmp_path)
    assert "nothing was stopped" in dry.out
    done = cluster.graphmill("stop", "a", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "still there" not in done.err
    view = cluster.wait_for(tmp_path, "a", "stopped")
    assert view["epochs"] == 100000
    assert len(RunFolder(tmp_path / "logs" / "a").jobs()) == 1, "a stopped run does not go on by itself"
    assert cluster.graphmill("stop", "a", cwd=tmp_path).code == 2
