"""`train` with real ranks, its refusals, and its continuation."""

import json
import os
import re
import signal
from datetime import datetime
from types import SimpleNamespace

import pytest
from command_line import start
from waiting import HANG_S, wait_until

from graphmill.api.training import agreeing, to_train
from graphmill.base.errors import UserError
from graphmill.cli.train import finish
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.job_environment import TASK_NUMBER


def test_dry_run_shows_the_plan_and_writes_nothing(graphmill, toy, tmp_path):
    result = graphmill("train", "toy.yaml", "--ranks", "2", "--dry-run")
    assert result.code == 0
    assert "synchronisations" in result.out
    assert sorted(tmp_path.iterdir()) == [toy]


def test_how_long_is_said_where_the_experiment_does_not_say_it(toy, source_environ, tmp_path):
    environ = {**source_environ, "GRAPHMILL_DATA_ROOT": os.environ["GRAPHMILL_DATA_ROOT"]}
    toy.write_text(toy.read_text().replace("epochs: 2, ", ""))
    process = start(environ, tmp_path, "train", "toy.yaml", "--dry-run")
    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert "for 200 epochs, or until 50 evaluations in a row bring no better score" in err


def test_of_two_that_begin_in_one_second_each_has_a_folder(graphmill, toy, tmp_path, monkeypatch):
    """The second is asked for before the first has begun; a dry run, and one that cannot begin, make no folder."""
    at = SimpleNamespace(now=lambda zone: datetime(2026, 11, 29, 8, tzinfo=zone))
    monkeypatch.setattr("graphmill.record.run_folder.datetime", at)
    asked = {"ranks": 1, "resume": False, "extend": False, "root": None, "logs_root": tmp_path / "logs", "run_id": None}
    assert to_train("toy.yaml", [], agreeing(()), **asked, prepare=False).folder.path.name.endswith("T080000Z")
    with monkeypatch.context() as under_srun:
        under_srun.setenv("SLURM_STEP_NUM_TASKS", "2")
        under_srun.setenv(TASK_NUMBER, "0")
        with pytest.raises(UserError, match="srun has started this 2 times"):
            to_train("toy.yaml", [], agreeing(()), **asked)
    assert not (tmp_path / "logs").exists()
    both = [to_train("toy.yaml", [], agreeing(()), **asked) for _ in range(2)]
    assert [found.plan.run_id.partition("Z")[2] for found in both] == ["", "-2"]
    for found in both:
        assert RunFolder.create(found.plan, found.logs_root) == found.folder


def planned(graphmill, toy, tmp_path, run_id: str = "mine") -> RunFolder:
    """A run folder with a plan, as an interrupted run leaves it."""
    from graphmill.spec.plan import Plan

    shown = json.loads(graphmill("plan", "toy.yaml", "--json").out)["plan"]
    return RunFolder.create(Plan.model_validate_json(json.dumps({**shown, "run_id": run_id})), tmp_path / "logs")


def test_a_run_is_not_overwritten(graphmill, toy, tmp_path):
    planned(graphmill, toy, tmp_path)
    result = graphmill("train", "toy.yaml", "--run-id", "mine")
    assert result.code == 2
    assert "logs/mine holds a run already" in result.err
    assert "--resume" in result.err


def test_resume_wants_to_know_which(graphmill, toy, tmp_path):
    planned(graphmill, toy, tmp_path)
    result = graphmill("train", "--resume")
    assert result.code == 2
    assert "--resume logs/mine (the latest)" in result.err
    assert "logs/mine" in graphmill("train", "toy.yaml", "--resume").err
    assert "did you mean 'mine'" in graphmill("train", "--resume", "--run-id", "mime").err


def test_resume_does_not_change_the_plan(graphmill, toy, tmp_path):
    planned(graphmill, toy, tmp_path)
    result = graphmill("train", "--resume", "mine", "-O", "train.optimizer.lr=0.5")
    assert result.code == 2
    assert "overrides" in result.err
    result = graphmill("train", "toy.yaml", "--resume", "--run-id", "mine", "-O", "train.optimizer.lr=0.5")
    assert result.code == 2
    assert "lr is 0.01 there and 0.5 here" in result.err
    assert "two runs are named" in graphmill("train", "--resume", "mine", "--run-id", "other").err


def test_resume_dry_run_shows_the_runs_own_plan(graphmill, toy, tmp_path):
    planned(graphmill, toy, tmp_path)
    for words in (["--resume", "mine"], ["--resume", "logs/mine"], ["toy.yaml", "--resume", "--run-id", "mine"]):
        assert "synthetic/sbm" in graphmill("train", *words, "--dry-run").out


def test_resume_with_other_ranks_is_no_other_plan(graphmill, toy, tmp_path):
    planned(graphmill, toy, tmp_path)
    for words in (["--resume", "mine"], ["--resume", "--run-id", "mine"], ["toy.yaml", "--resume", "--run-id", "mine"]):
        dry = graphmill("train", *words, "--ranks", "3", "--dry-run")
        assert dry.code == 0, dry.err
        assert "continues with 3 ranks of 1 threads" in dry.out
        assert "rounding" in dry.out
    assert "continues with" not in graphmill("train", "--resume", "mine", "--dry-run").out
    refused = graphmill("train", "toy.yaml", "--resume", "--run-id", "mine", "-O", "train.ranks=3")
    assert refused.code == 2
    assert "--resume logs/mine --ranks 3" in refused.err
    none = graphmill("train", "--resume", "mine", "--ranks", "0")
    assert none.code == 2
    assert "0 ranks cannot train" in none.err
    assert RunFolder.open(tmp_path / "logs" / "mine").attempts() == []


def test_inspect_of_a_run_that_has_not_begun(graphmill, toy, tmp_path):
    planned(graphmill, toy, tmp_path)
    assert re.search(r"status\W+running\b", graphmill("inspect", "mine").out)
    assert json.loads(graphmill("inspect", "mine", "--json").out)["outcome"] is None


@pytest.mark.distributed
def test_train_verify_merge(graphmill, toy, source_environ, tmp_path):
    words = ("train", "toy.yaml", "--ranks", "2", "--run-id", "mine", "--sync_every", "2")
    process = start({**source_environ, "GRAPHMILL_DATA_ROOT": os.environ["GRAPHMILL_DATA_ROOT"]}, tmp_path, *words)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert "logs/mine: 2 epochs" in out
    assert "epoch 2/2" in out, "plain lines where there is no terminal"
    assert "\x1b[" not in out
    verified = graphmill("verify", "mine", "--json")
    assert json.loads(verified.out)["ok"] is True, verified.out
    assert graphmill("verify").code == 0
    shown = json.loads(graphmill("inspect", "mine", "--json").out)
    assert shown["outcome"]["status"] == "done"
    assert json.loads(graphmill("merge", "--json").out)[0]["num_rows"] == 2
    again = graphmill("train", "--resume", "mine")
    assert again.code == 0
    assert "done already" in again.err


@pytest.mark.distributed
@pytest.mark.parametrize(
    "every",
    [
        pytest.param(1, id="evaluated", marks=pytest.mark.slow),
        pytest.param(0, id="stopped before an evaluation"),
    ],
)
def test_a_stop_saves_and_resume_ends_it(graphmill, toy, source_environ, tmp_path, every):
    environ = {**source_environ, "GRAPHMILL_DATA_ROOT": os.environ["GRAPHMILL_DATA_ROOT"]}
    more = ("--epochs", "4000", "-O", f"train.evaluate_every_epochs={every}")
    process = start(environ, tmp_path, "train", "toy.yaml", "--ranks", "2", "--run-id", "mine", *more)
    events = tmp_path / "logs" / "mine" / "events" / "rank_0.jsonl"
    wait_until(lambda: events.exists() and '"epoch"' in events.read_text(), "the first epoch")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 75, err
    assert "--resume logs/mine" in out + err
    assert "Traceback" not in err
    assert graphmill("verify", "mine").code == 75, "it has not ended"
    assert graphmill("inspect", "mine").code == 0
    folder = RunFolder.open(tmp_path / "logs" / "mine")
    steps = folder.read_outcome().steps_per_rank
    process = start(environ, tmp_path, "train", "--resume", "mine")
    wait_until(
        lambda: process.poll() is not None or events.read_text().count('"start"') == 2, "the second attempt to start"
    )
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 75
    assert folder.read_outcome().steps_per_rank >= steps > 0


@pytest.mark.slow
@pytest.mark.distributed
def test_a_study_of_real_runs(graphmill, toy, source_environ, tmp_path):
    (tmp_path / "study.yaml").write_text(
        "# Two schemes\nname: s\nexperiment: toy.yaml\nset: {train.epochs: 1}\n"
        "vary: {train.sync.scheme: [deferred_allreduce, local_sgd]}\n"
    )
    environ = {**source_environ, "GRAPHMILL_DATA_ROOT": os.environ["GRAPHMILL_DATA_ROOT"]}
    process = start(environ, tmp_path, "study", "run", "study.yaml")
    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert "[2/2] scheme-local_sgd: starts" in err
    cells = json.loads(graphmill("study", "list", "study.yaml", "--json").out)["cells"]
    assert [cell["status"] for cell in cells] == ["done", "done"]
    (table,) = json.loads(graphmill("compare", "study.yaml", "--json").out)["tables"]
    assert table["varied"] == ["sync.scheme"]
    assert sorted(row["values"]["sync.scheme"] for row in table["rows"]) == ["deferred_allreduce", "local_sgd"]
    assert table["rows"][0] == table["best"]
    shown = graphmill("compare", "s", "--sort", "sync.scheme").out.splitlines()
    assert shown[1].split() == ["scheme", "runs", "val", "micro-F1", "test", "micro-F1"]
    assert "deferred_allreduce" in shown[2]
    assert "local_sgd" in shown[3]
    assert graphmill("verify", "s").code == 0
    assert json.loads(graphmill("merge", "--json").out)[0]["num_rows"] == 2


@pytest.mark.parametrize(("attempts", "says"), [(1, "60 epochs, 3.8 s\n"), (3, "60 epochs, 3.8 s in attempt 3\n")])
def test_a_resumed_run_says_whose_seconds_these_are(attempts, says, capsys):
    outcome = SimpleNamespace(epochs=60, wall_s=3.8)
    folder = SimpleNamespace(path="run", attempts=lambda: [None] * attempts, read_outcome=lambda: outcome)
    finish(folder, 0)
    assert capsys.readouterr().out == f"run: {says}"


@pytest.mark.parametrize(
    ("name", "environ", "fix"),
    [
        ("ümlaut".encode(), {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "export PYTHONUTF8=1"),
        ("ümlaut".encode("latin-1"), {"PYTHONUTF8": "1"}, "another name"),
    ],
)
def test_a_path_that_cannot_be_decoded_is_told(toy, source_environ, tmp_path, name, environ, fix):
    """Not a traceback of what writes records (third look I, B)."""
    folder = tmp_path / os.fsdecode(name)
    folder.mkdir()
    data = os.environ["GRAPHMILL_DATA_ROOT"]
    process = start(
        {**source_environ, **environ, "GRAPHMILL_DATA_ROOT": data},
        folder, "train", str(toy), "--epochs", "1",
    )  # fmt: skip
    _, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, fix in err, "Traceback" in err) == (2, True, False), err
    assert list(folder.iterdir()) == []
