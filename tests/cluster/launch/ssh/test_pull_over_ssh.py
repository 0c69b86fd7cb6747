"""`graphmill pull` with a real rsync from a real sshd."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from graphmill.record.documents import Outcome, SubmittedJob
from graphmill.record.manifest import Manifest, file_checksum
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.snapshot import damage, digest_of, write_snapshot


@pytest.fixture
def remote(hosts, tmp_path: Path) -> Path:
    """The logs folder there. The hosts see our files, so it is one of them."""
    folder = tmp_path / "there" / "a logs folder; $(touch pwned)"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def pull(hosts, tmp_path, source_environ, remote):
    def run(*words: str, path: Path | None = None, code: int = 0, config: Path | None = None) -> str:
        command = [sys.executable, "-m", "graphmill.cli", "pull", f"host1:{path or remote}", "--to"]
        command += [str(tmp_path / "here"), "--ssh-config", str(config or hosts.ssh_config), *words]
        done = subprocess.run(
            hosts.here(*command), env=source_environ, capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def make_run(make_plan, remote):
    def make(run_id: str, *, done: bool = True, rows: int = 2) -> RunFolder:
        run = RunFolder.create(make_plan(run_id), remote)
        run.metrics_path.write_text("epoch,loss\n" + "".join(f"{row},1.0\n" for row in range(rows)))
        run.events_dir.mkdir()
        run.events_path(0).write_text('{"kind": "start"}\n')
        run.log_path(0).write_text("hello\n")
        (run.path / ".metrics.csv.77.tmp").write_text("half")
        (run.path / ".lock").write_text("")
        (run.path / "trace.bin").write_bytes(b"\0" * 1000)
        if done:
            run.write_outcome(Outcome(status="done", exit_code=0, epochs=rows, steps_per_rank=rows, wall_s=1.0))
        return run

    return make


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


OURS = {"plan.json", "metrics.csv", "events/rank_0.jsonl", "rank_0.log"}


def test_runs_come_whole_and_nothing_else(pull, make_run, tmp_path):
    make_run("one")
    make_run("study/two", done=False)
    said = pull()
    here = tmp_path / "here"
    assert files(here) == {
        *(f"one/{name}" for name in [*OURS, "outcome.json", "pulled.json"]),
        *(f"study/two/{name}" for name in [*OURS, "pulled.json"]),
    }
    assert "2 runs: 2 new, 0 changed, 0 unchanged" in said
    assert not list(tmp_path.rglob("pwned"))


def test_what_a_pipeline_wrote_next_to_its_runs_comes_with_them(pull, make_run, remote, tmp_path):
    make_run("pipeline/first")
    written = {"pipeline.json", "evaluations.csv", "job-1.sbatch", "jobs.jsonl", "slurm-7.out"}
    for name in [*written, "notes.txt"]:
        (remote / "pipeline" / name).write_text(name)
    pull()
    assert {path.name for path in (tmp_path / "here" / "pipeline").iterdir()} == {*written, "first"}


@pytest.mark.slow
def test_copies_of_the_users_code_come_with_the_runs(pull, make_run, remote, tmp_path):
    make_run("one")
    code = {"0/model.py": b"1"}
    copy = remote / ".code" / digest_of(code)
    write_snapshot(code, copy)
    for name in (f".{copy.name}.host1@1.new.tmp", f"{copy.name}/0/__pycache__"):
        (remote / ".code" / name).mkdir()
        (remote / ".code" / name / "half.pyc").touch()
    pull()
    assert files(tmp_path / "here" / ".code") == {f"{copy.name}/0/model.py", f"{copy.name}/files.json"}
    assert damage(tmp_path / "here" / ".code" / copy.name) is None
    assert "1 run: 0 new, 0 changed, 1 unchanged" in pull()


def test_only_what_is_new_travels_and_nothing_here_is_deleted(pull, make_run, tmp_path):
    first, second = make_run("one"), make_run("two", done=False)
    pull()
    here = tmp_path / "here"
    (here / "one" / "notes.txt").write_text("mine")
    (first.path / "rank_0.log").unlink()
    second.metrics_path.write_text("epoch,loss\n0,1.0\n1,0.9\n2,0.8\n")
    make_run("three")
    assert "3 runs: 1 new, 1 changed, 1 unchanged" in pull("--dry-run")
    assert not (here / "three").exists()
    assert "3 runs: 1 new, 1 changed, 1 unchanged" in pull()
    assert (here / "two" / "metrics.csv").read_text() == second.metrics_path.read_text()
    assert (here / "one" / "notes.txt").exists()
    assert (here / "one" / "rank_0.log").exists()
    assert "3 runs: 0 new, 0 changed, 3 unchanged" in pull()


def test_all_brings_files_that_are_not_ours_but_never_half_written_ones(pull, make_run, tmp_path):
    make_run("one")
    pull("--all")
    assert files(tmp_path / "here" / "one") == {*OURS, "outcome.json", "pulled.json", "trace.bin"}


def test_one_run_comes_below_the_logs_folder(pull, make_run, tmp_path):
    run = make_run("one")
    said = pull(path=run.path)
    assert "1 run: 1 new" in said
    assert (tmp_path / "here" / "one" / "plan.json").exists()


def make_checkpoint(run: RunFolder, step: int, *, sealed: bool = True) -> Path:
    folder = run.checkpoints_dir / f"step_{step:010}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(os.urandom(5000))
    if sealed:
        books = {"loss_sum": 0.0, "epoch_s": 0.0, "counters": {}, "before_epoch": {}, "spent_s": {}}
        position = {"epoch": 0, "step": step, "steps_done": step, "books": books, "best": None, "patience": None}
        sums = {"model.safetensors": file_checksum(folder / "model.safetensors")}
        Manifest.model_validate(
            {
                "plan_hash": "0",
                "world_size": 1,
                "parameter_hash": "0",
                "positions": [position],
                "files": sums,
                "keep": False,
            }
        ).write(folder)
    return folder


def test_checkpoints_come_when_asked_for_and_only_whole_ones(pull, make_run, tmp_path):
    run = make_run("one")
    make_checkpoint(run, 1)
    make_checkpoint(run, 2, sealed=False)
    pull()
    here = tmp_path / "here" / "one" / "checkpoints"
    assert not here.exists()
    pull("--checkpoints")
    assert files(here) == {"step_0000000001/model.safetensors", "step_0000000001/manifest.json"}
    assert Manifest.read(here / "step_0000000001").damage(here / "step_0000000001") is None


def test_a_torn_checkpoint_is_not_kept(pull, make_run, tmp_path):
    run = make_run("one")
    folder = make_checkpoint(run, 1)
    (folder / "model.safetensors").write_bytes(b"torn")
    assert "changed while it was fetched" in pull("--checkpoints")
    assert not (tmp_path / "here" / "one" / "checkpoints" / "step_0000000001").exists()
    assert (tmp_path / "here" / "one" / "metrics.csv").exists()


@pytest.mark.slow
def test_checkpoints_of_a_run_that_writes_come_whole_and_are_pruned_as_there(pull, make_run, tmp_path):
    run, over = make_run("one", done=False), threading.Event()
    here = tmp_path / "here" / "one" / "checkpoints"
    make_checkpoint(run, 1)

    def write() -> None:
        for step in itertools.count(2):
            make_checkpoint(run, step)
            for old in sorted(run.checkpoints_dir.glob("step_*"))[:-2]:
                hidden = old.rename(old.with_name(f".{old.name}.removing"))
                shutil.rmtree(hidden)
            if over.wait(0.02):
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            pull("--checkpoints")
            for folder in here.glob("step_*"):
                assert Manifest.read(folder).damage(folder) is None
    finally:
        over.set()
        writer.join()
    pull("--checkpoints")
    assert files(here) == files(run.checkpoints_dir)
    assert not list((tmp_path / "here").glob(".pull*"))


@pytest.mark.slow
def test_an_unknown_host_is_refused_with_the_command(hosts, pull, make_run, tmp_path):
    make_run("one")
    known = tmp_path / "known_hosts"
    config = hosts.write_ssh_config("config_pull", known)
    said = pull(code=2, config=config)
    assert "the host key of host1 is not known" in said
    command = f"ssh-keyscan {hosts.address(1)} >> {known}"
    assert f"`{command}`" in said
    subprocess.run(hosts.here("bash", "-c", command), check=True, capture_output=True)
    assert "1 new" in pull(config=config)


@pytest.mark.slow
def test_what_is_not_there_is_said(pull, remote):
    assert "there is no folder" in pull(path=remote / "nowhere", code=2)
    assert "holds no runs" in pull()


def test_make_sync_metrics(hosts, make_run, tmp_path, source_environ, remote):
    """The target's own recipe, with nothing to install."""
    make_run("one")
    bin_folder = tmp_path / "venv" / "bin"
    bin_folder.mkdir(parents=True)
    program = bin_folder / "graphmill"
    own = f'"{sys.executable}" -m graphmill.cli "$command" --ssh-config "{hosts.ssh_config}"'
    program.write_text(f'#!/bin/sh\ncommand=$1; shift\nexec {own} "$@"\n')
    program.chmod(0o755)
    repo = Path(__file__).parents[4]
    command = ["make", "-C", str(repo), "-o", "install", "sync-metrics", "REMOTE_HOST=host1", f"BIN={bin_folder}"]
    remote_path = str(remote).replace("$", "$$")  # make's own quoting
    command += [f"REMOTE_LOGS_DIR={remote_path}", f"LOCAL_LOGS_DIR={tmp_path}/here"]
    done = subprocess.run(hosts.here(*command), env=source_environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "here" / "one" / "metrics.csv").exists()
    assert not list(tmp_path.rglob("pwned"))
    assert json.loads((tmp_path / "here" / "one" / "outcome.json").read_text())["status"] == "done"


@pytest.mark.slow
def test_where_sacct_does_not_answer_the_run_comes_and_it_is_said(pull, make_run, tmp_path):
    run = make_run("one")
    run.note_job(SubmittedJob(job_id="17", time=0.0))
    said = pull()
    assert "how the jobs ended is not known here" in said
    assert RunFolder(tmp_path / "here" / "one").jobs()[0].job_id == "17"
    assert not RunFolder(tmp_path / "here" / "one").sacct_ended_path.exists()
