"""`submit`, `watch`, `stop` and `list` where there is no Slurm: what is said, and what is left alone."""

import json
import signal
import subprocess
import sys

import pytest
from waiting import wait_until

from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan


@pytest.fixture(autouse=True)
def _no_slurm(tmp_path, monkeypatch):
    empty = tmp_path / "empty-path"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))


def test_submit_without_slurm_changes_nothing(graphmill, toy):
    done = graphmill("submit", toy, "--run-id", "one")
    assert done.code == 2
    assert "sbatch is not on PATH" in done.err
    assert not (toy.parent / "logs").exists()


def test_a_dry_run_without_slurm_shows_the_job(graphmill, toy):
    done = graphmill("submit", toy, "--run-id", "one", "--hosts", "2", "--ranks", "4", "--dry-run", "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert (answer["plan"]["ranks"], answer["plan"]["hosts"], answer["job"]["ranks_per_host"]) == (4, 2, 2)
    assert answer["slurm_says"] is None
    assert answer["command"][-1] == answer["script_path"] == str(toy.parent / "logs/one/job.sbatch")
    assert "not checked" in done.err
    assert not (toy.parent / "logs").exists()


def test_a_plan_is_made_for_the_hosts_of_the_job(graphmill, toy):
    toy.write_text(toy.read_text().replace(", threads: 1", ""))
    done = graphmill("submit", toy, "--cpus-per-host", "12", "--ranks-per-host", "3", "--dry-run", "--json")
    assert json.loads(done.out)["plan"]["threads"] == 4


def test_submitting_over_a_run_is_refused(graphmill, toy):
    assert graphmill("train", toy, "--run-id", "one", "--dry-run").code == 0
    RunFolder(toy.parent / "logs" / "one").path.mkdir(parents=True)
    (toy.parent / "logs" / "one" / "plan.json").write_text("{}")
    done = graphmill("submit", toy, "--run-id", "one", "--dry-run")
    assert done.code == 2
    assert "holds a run already" in done.err


def test_a_run_that_train_began_goes_on_as_a_job_of_other_hosts_and_ranks(graphmill, toy):
    begun = json.loads(graphmill("plan", toy, "--json").out)["plan"]
    folder = RunFolder.create(Plan.model_validate_json(json.dumps({**begun, "run_id": "one"})), toy.parent / "logs")
    again = ("submit", toy, "--resume", "--run-id", "one", "--dry-run")
    done = graphmill(*again, "--hosts", "2", "--ranks", "4", "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert (answer["job"]["hosts"], answer["job"]["ranks_per_host"]) == (2, 2)
    assert (answer["plan"]["hosts"], answer["plan"]["ranks"]) == (1, begun["ranks"]), "the run stays as planned"
    assert {"hosts 1 → 2", "ranks_per_host 1 → 2"} <= set(answer["changes"])
    assert "there already" not in graphmill(*again).out
    folder.script_path.write_text("")
    assert f"{folder.script_path} (there already)" in graphmill(*again).out
    folder.script_path.unlink()

    toy.write_text(toy.read_text().replace("threads: 1", "threads: 1, ranks: 3"))
    other = graphmill(*again)
    assert other.code == 2
    assert "ranks is 1 there and 3 here" in other.err
    assert "--resume --run-id one --hosts 1 --ranks 3" in other.err
    assert graphmill(*again, "--hosts", "1", "--ranks", "3").code == 0, "what it said to type"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["stop", "nothing"], "holds no runs"),
        (["watch", "4711"], "was submitted as job 4711"),
        (["watch"], "holds no runs"),
        (["submit", "--resume"], "does not say which run"),
        (["study", "submit", "study-demo", "--chain", "sometimes"], "neither afterok nor afterany"),
        (["study", "submit", "study-demo", "--chain", "afterok", "--at-once", "2"], "--at-once"),
    ],
)
def test_mistakes(graphmill, toy, words, told):
    (toy.parent / "logs").mkdir()
    done = graphmill(*words)
    assert done.code == 2
    assert told in done.err


def test_list_without_a_folder(graphmill, toy):
    assert "is not a folder" in graphmill("list").err


def test_a_local_run_is_listed_and_stopped(graphmill, toy, source_environ):
    command = [sys.executable, "-m", "graphmill.cli", "train", str(toy), "--run-id", "one", "--epochs", "100000"]
    launcher = subprocess.Popen(
        command, cwd=toy.parent, env=source_environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    metrics = toy.parent / "logs" / "one" / "metrics.csv"
    wait_until(lambda: metrics.exists() or launcher.poll() is not None, "the first epoch")
    run = json.loads(graphmill("list", "--json").out)["runs"][0]
    assert (run["state"], run["source"]) == ("running", "process")
    assert f"process {launcher.pid}" in graphmill("stop", "one", "--dry-run").out
    assert launcher.poll() is None
    done = graphmill("stop", "one")
    assert done.code == 0, done.err
    assert launcher.poll() is not None
    assert RunFolder(toy.parent / "logs" / "one").read_outcome().exit_code == 75
    run = json.loads(graphmill("list", "--json").out)["runs"][0]
    assert (run["state"], run["source"]) == ("stopped", "run folder")
    assert graphmill("stop", "one").code == 2


def test_a_killed_run_has_one_name_wherever_it_is_listed(graphmill, toy, source_environ):
    """`unfinished` can be resumed; `failed` would say that something has to be mended first."""
    study = "name: cells\nexperiment: toy.yaml\nset: {train.epochs: 100000}\nvary: {train.sync.every: [1]}\n"
    (toy.parent / "cells.yaml").write_text(study)
    command = [sys.executable, "-m", "graphmill.cli", "study", "run", "cells.yaml"]
    launcher = subprocess.Popen(
        command, cwd=toy.parent, env=source_environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    logs = toy.parent / "logs"
    wait_until(lambda: [*logs.glob("cells/*/metrics.csv")] or launcher.poll() is not None, "the first epoch")
    launcher.kill()  # its ranks die with it, by the kernel's hand
    assert launcher.wait() == -signal.SIGKILL
    run = json.loads(graphmill("list", "--json").out)["runs"][0]
    assert (run["state"], run["source"]) == ("unfinished", "process")
    assert "--resume" in run["advice"]
    cell = json.loads(graphmill("study", "list", "cells.yaml", "--json").out)["cells"][0]
    assert cell["status"] == run["state"]


def test_a_process_that_is_not_ours_is_left_alone(graphmill, toy, tmp_path):
    """The same number, on the same host, but another process: it began later, and holds no lock."""
    from tests.record.test_run_folder import make_plan

    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    folder = RunFolder.create(make_plan("one"), tmp_path / "logs")
    folder.begin_attempt(resumed=False, command=["graphmill", "train"])
    attempts = folder.attempts_path.read_text()
    number = json.loads(attempts)["pid"]
    folder.attempts_path.write_text(attempts.replace(f'"pid":{number}', f'"pid":{stranger.pid}'))
    done = graphmill("stop", "one", "--now")
    assert done.code == 2
    assert "nothing of" in done.err
    assert stranger.poll() is None
    run = json.loads(graphmill("list", "--json").out)["runs"][0]
    assert (run["state"], run["source"]) == ("unfinished", "process")
    stranger.send_signal(signal.SIGKILL)
    stranger.wait()


def test_a_damaged_run_does_not_hide_the_others(graphmill, toy, tmp_path):
    from tests.record.test_run_folder import make_plan

    folders = [RunFolder.create(make_plan(name), tmp_path / "logs") for name in ("one", "two")]
    folders[0].plan_path.write_text('{"name": ')
    states = {run["run"]: (run["state"], run["epochs"]) for run in json.loads(graphmill("list", "--json").out)["runs"]}
    assert states == {"one": ("damaged", None), "two": ("planned", make_plan("two").calendar.num_epochs)}
    shown = graphmill("list").out
    assert "0/?" in shown
    assert "plan.json" in shown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("partion x --num-parts 2", "no command 'partion'; did you mean 'partition'?"),
        ("partition x --nun-parts 2", "graphmill partition: No such option: --nun-parts"),
        ("partition x", "graphmill partition: Missing option '--num-parts'"),
        ("partition x --num-parts two", "Invalid value for '--num-parts'"),
        ("presample toy.yaml --rank 2", "`graphmill presample --help`"),
        ("pipeline plann x", "graphmill pipeline has no command 'plann'; did you mean 'plan'?"),
        ("study submit", "graphmill study submit: Missing argument 'STUDY'"),
    ],
)
def test_what_a_command_would_refuse_is_refused_before_its_job_waits(graphmill, words, says):
    done = graphmill("submit", "--run", "--dry-run", "--", "graphmill", *words.split())
    assert done.code == 2
    assert says in done.err


def test_a_command_without_the_two_dashes_is_told_where_they_go(graphmill):
    done = graphmill("submit", "--run", "--dry-run", "graphmill", "partition", "x", "--num-parts", "2")
    assert done.code == 2
    assert "--run takes the command after --" in done.err
