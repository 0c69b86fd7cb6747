"""What is trained is the code as it was submitted, on a real Slurm: the job waits, and runs more than once."""

import json
from pathlib import Path

import pytest

from graphmill.record.events import Epoch, Start, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import WeightsFile

NET = """
import time

from torch import nn

import helper

from .parts import WIDTH


class Net(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.inner = nn.Linear(in_channels, WIDTH)
        self.outer = nn.Linear(WIDTH, out_channels)

    def forward(self, x, edge_index):
        time.sleep(helper.PAUSE_S)
        return self.outer(self.inner(x).relu())
"""
EXPERIMENT = """
name: mine
dataset: {name: synthetic/sbm}
model: {kind: custom, target: mine.net.Net}
train:
  {epochs: 12, batch_size: 60, num_neighbors: [4], threads: 1, device: cpu, ranks: 2, evaluate_every_epochs: 6,
   checkpoint: {every_epochs: 1}}
slurm: {site: devcluster, time: 10}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A package, and a module in another folder of PYTHONPATH."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "net.py").write_text(NET)
    (tmp_path / "mine" / "parts.py").write_text("WIDTH = 5\n")
    (tmp_path / "elsewhere" / "helper.py").write_text("PAUSE_S = 0.1\n")
    (tmp_path / "mine.yaml").write_text(EXPERIMENT)
    return tmp_path


@pytest.mark.slow
def test_code_that_is_edited_while_the_job_waits_is_not_trained(cluster, home):
    paths = {"PYTHONPATH": f"{home / 'elsewhere'}:{cluster.environ.get('PYTHONPATH', '')}"}
    words = ("submit", "mine.yaml", "--run-id", "a")
    dry = cluster.graphmill(*words, "--dry-run", cwd=home, **paths)
    assert (dry.code, (home / "logs").exists()) == (0, False), dry.err
    assert "mine/__init__.py" in dry.err
    done = cluster.graphmill(*words, "--sbatch-arg=--begin=now+1hour", "--json", cwd=home, **paths)
    assert done.code == 0, done.err
    folder = RunFolder(home / "logs" / "a")
    code = json.loads(folder.job_path.read_text())["code"]
    (home / "mine" / "parts.py").write_text("WIDTH = 7\n")
    (home / "elsewhere" / "helper.py").write_text("raise SystemExit('the code of now')\n")

    job = json.loads(done.out)["job_id"]
    assert cluster.run("scontrol", "update", f"jobid={job}", "starttime=now", cwd=home).code == 0
    while not (folder.events_path(0).exists() and events_in(folder.events_path(0), Epoch)):
        assert cluster.graphmill("watch", "a", "--once", cwd=home).code == 0  # the test's time limit ends this
    assert cluster.run("scontrol", "requeue", job, cwd=home).code == 0
    cluster.run("scontrol", "update", f"jobid={job}", "starttime=now", cwd=home)
    cluster.wait_for(home, "a", "done")

    attempts = folder.attempts()
    assert len(attempts) >= 2
    assert {attempt.own_code for attempt in attempts} == {code["sha256"]}
    starts = [start for rank in range(2) for start in events_in(folder.events_path(rank), Start)]
    assert {start.own_code for start in starts} == {code["sha256"]}
    last = max(folder.checkpoints_dir.glob("step_*")) / "model.safetensors"
    assert (5, 8) in {tuple(entry.shape) for entry in WeightsFile.read(last).tensors.values()}
    provenance = folder.read_provenance()
    assert provenance is not None
    assert provenance.own_code == code["sha256"]

    verified = cluster.graphmill("verify", "a", "--json", cwd=home)
    checks = {check["name"]: check["result"] for check in json.loads(verified.out)["runs"][0]["checks"]}
    assert (checks["own code"], checks["copy of own code"]) == ("ok", "ok"), verified.out


PIPELINE = """
name: staged
evaluate_on: all
experiment:
  dataset: {name: synthetic/sbm}
  model: {kind: custom, target: mine.net.Net}
  train: {epochs: 1, batch_size: 60, num_neighbors: [4], threads: 1, device: cpu, ranks: 1}
  slurm: {site: devcluster, time: 10}
stages:
  - {name: one}
  - {name: two, set: {train.seed: 5}, init_from: {stage: one, weights: best}}
"""


@pytest.mark.slow
def test_stages_of_a_pipeline_import_the_copy(cluster, home):
    """What a job makes only when it runs: the folders of the stages, and their evaluation on each other's data."""
    (home / "staged.yaml").write_text(PIPELINE)
    paths = {"PYTHONPATH": f"{home / 'elsewhere'}:{cluster.environ.get('PYTHONPATH', '')}"}
    words = ("pipeline", "submit", "staged.yaml", "--trial", "0", "--sbatch-arg=--begin=now+1hour", "--json")
    done = cluster.graphmill(*words, cwd=home, **paths)
    assert done.code == 0, done.err
    for path in (home / "mine" / "net.py", home / "elsewhere" / "helper.py"):
        path.write_text("raise SystemExit('the code of now')\n")
    for job in json.loads(done.out)["jobs"]:
        cluster.run("scontrol", "update", f"jobid={job['job_id']}", "starttime=now", cwd=home)
    cluster.run("bash", "-c", "while squeue -h | grep -q .; do sleep 0.2; done", cwd=home)
    (copy,) = (home / "logs" / ".code").iterdir()
    for stage in ("one", "two"):
        folder = RunFolder(home / "logs" / "staged" / stage)
        assert [attempt.own_code for attempt in folder.attempts()] == [copy.name]
        assert json.loads(folder.job_path.read_text())["code"]["sha256"] == copy.name
    rows = (home / "logs" / "staged" / "evaluations.csv").read_text().splitlines()
    assert {tuple(row.split(",")[0::3][:2]) for row in rows[1:]} == {
        (a, b) for a in ("one", "two") for b in ("one", "two")
    }
