"""`torchrun -m graphmill.train`: the command line of the sync-ablation scripts with another entry point."""

import os
import subprocess
import sys

import pytest
import yaml
from waiting import HANG_S

from graphmill.record.documents import Outcome
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.train.__main__ import main

pytestmark = pytest.mark.distributed

EXPERIMENT = {
    "name": "small",
    "dataset": {"name": "cora"},
    "model": {"kind": "graphsage", "hidden_channels": 8, "num_layers": 2},
    "train": {"epochs": 5, "batch_size": 10, "num_neighbors": [3, 3], "threads": 1, "baselines": False},
}
FLAGS = [
    "--max_steps",
    "28",
    "--batch_size",
    "10",
    "--num_neighbors",
    "4",
    "2",
    "--sync_every",
    "3",
    "--sync_scheme",
    "local_sgd",
]


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT))
    return str(path)


@pytest.fixture
def torchrun(environ, data_root, tmp_path):
    """Runs torchrun with two ranks; returns the finished process."""

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
        return subprocess.run(
            [*command, "-m", "graphmill.train", *words, "--logs-root", str(tmp_path / "logs")],
            env={**environ, "GRAPHMILL_DATA_ROOT": str(data_root)},
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )

    return run


def test_the_command_of_the_sync_ablation_scripts(torchrun, experiment, tmp_path):
    done = torchrun(experiment, *FLAGS, "--run-id", "mine")
    assert done.returncode == 0, done.stderr
    folder = RunFolder.open(tmp_path / "logs" / "mine")
    plan = folder.read_plan()
    assert (plan.ranks, plan.last_step, plan.task.num_neighbors) == (2, 14, (4, 2))
    assert (plan.sync.scheme, plan.sync.every) == ("local_sgd", 3)
    assert folder.read_outcome().status == "done"
    assert [row["world_size"] for row in read_metrics(folder.metrics_path)] == ["2", "2"]
    assert folder.read_provenance().dataset_checksum == plan.dataset.checksum
    assert [attempt.resumed for attempt in folder.attempts()] == [False]
    assert done.stdout.count("epoch 1/2") == 1, "only rank 0 talks"
    assert not (folder.path / "logs").exists()


@pytest.mark.slow
def test_an_error_of_rank_0_ends_all_with_one_message(torchrun, experiment):
    done = torchrun(experiment, "--max_steps", "5")
    assert done.returncode != 0
    assert done.stderr.count("error: train.max_steps counts steps over all ranks") == 1
    assert "exitcode  : 2" in done.stderr


@pytest.mark.slow
def test_an_error_of_another_rank_ends_all(torchrun, tmp_path):
    picky = {**EXPERIMENT, "model": {"kind": "custom", "target": "strange_models.Picky"}}
    (tmp_path / "picky.yaml").write_text(yaml.safe_dump(picky))
    done = torchrun(str(tmp_path / "picky.yaml"), "--run-id", "picky")
    assert done.returncode != 0
    assert done.stderr.count("error: this model does not like rank 1") == 1


@pytest.fixture
def alone(monkeypatch, data_root, tmp_path):
    """Calls the entry in this process, as one rank, for what ends before anything is trained."""
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(data_root))
    return lambda *words: main([*words, "--logs-root", str(tmp_path / "logs")])


def test_a_folder_that_holds_a_run_is_refused(alone, planned, experiment, tmp_path, capsys):
    RunFolder.create(planned("mine"), tmp_path / "logs")
    assert alone(experiment, "--run-id", "mine") == 2
    assert "holds a run already" in capsys.readouterr().err


def test_a_run_that_is_done_is_left_alone(alone, planned, tmp_path, capsys):
    folder = RunFolder.create(planned("mine"), tmp_path / "logs")
    folder.write_outcome(Outcome(status="done", exit_code=0, epochs=2, steps_per_rank=28, wall_s=1.0))
    for words in (("mine", "--resume"), (str(folder.path), "--resume"), ("--run-id", "mine", "--resume")):
        assert alone(*words) == 0
        assert "is done already" in capsys.readouterr().err
    assert folder.attempts() == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--resume"], "--resume does not say which run"),
        (["nothing", "--resume"], "'nothing' is not a run in"),
        (["--run-id", "nothing", "--resume"], "nothing"),
        (["mine", "--resume", "--lr", "0.5"], "without overrides"),
        (["EXPERIMENT", "--run-id", "mine", "--resume", "--lr", "0.5"], "lr is 0.01 there and 0.5 here"),
        (["EXPERIMENT", "-O", "train.ranks=3"], "train.ranks is 3, but torchrun started 1"),
        (["EXPERIMENT", "--batch_sise", "3"], "did you mean '--batch_size'"),
        (["EXPERIMENT", "-O", "train.optimizer.lr=high"], "train.optimizer.lr"),
    ],
)
def test_what_is_refused(alone, planned, experiment, tmp_path, capsys, words, message):
    RunFolder.create(planned("mine"), tmp_path / "logs")
    assert alone(*(experiment if word == "EXPERIMENT" else word for word in words)) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "→" in err


def test_half_an_environment_is_refused(alone, experiment, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert alone(experiment) == 2
    assert "cannot know its rank" in capsys.readouterr().err


def test_a_run_that_is_being_trained_is_refused(alone, planned, tmp_path, capsys):
    folder = RunFolder.create(planned("mine"), tmp_path / "logs")
    with folder.lock():
        assert alone("mine", "--resume") == 2
    assert f"is in use by process {os.getpid()}" in capsys.readouterr().err
