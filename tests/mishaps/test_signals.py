"""Signals to real processes: whatever comes, no traceback, the right status, and what is left can be continued."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import HANG_S, wait_until

from graphmill.monitor.ranks_here import rank_processes
from graphmill.record.run_folder import RunFolder

# It says when the interpreter itself has started: before that a signal is Python's own business.
PROGRAM = """
import sys
print("begins", flush=True)
sys.argv[0] = "graphmill"
from graphmill.cli import main
main()
"""
LONG = ("train", "toy.yaml", "--run-id", "one", "--epochs", "100000", "-O", "train.evaluate_every_epochs=0")


@pytest.fixture
def start(toy, source_environ):
    """Starts `graphmill …` in the folder of the toy."""
    started = []

    def run(*words: str, limit_kib: int | None = None) -> subprocess.Popen:
        command = [sys.executable, "-c", PROGRAM, *words]
        if limit_kib is not None:  # of every file: as on a full disk, the write is an error
            command = ["bash", "-c", f'ulimit -f {limit_kib}; exec "$@"', "bash", *command]
        # Under the limit Python would write half of a module's bytecode beside the source, for all that come after.
        environ = {**source_environ, "PYTHONDONTWRITEBYTECODE": "1"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, cwd=toy.parent, env=environ, **pipes))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def begins(process: subprocess.Popen) -> None:
    assert process.stdout.readline() == "begins\n"


def ended(process: subprocess.Popen) -> tuple[int, str]:
    out, err = process.communicate(timeout=HANG_S)
    assert "Traceback" not in out + err, err
    assert "bug in graphmill" not in err, err
    return process.returncode, out + err


def trains(folder: Path) -> RunFolder:
    run = RunFolder(folder / "logs" / "one")
    wait_until(lambda: run.events_path(0).exists() and "sync" in run.events_path(0).read_text(), "a step")
    return run


@pytest.mark.parametrize(
    "after_s", [0.5, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.1, 0.2, 0.4, 0.8, 1.2, 2.0))]
)
def test_interrupted_in_the_first_seconds(start, toy, after_s):
    process = start(*LONG)
    begins(process)
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    code, said = ended(process)
    assert code in (-signal.SIGINT, 130, 75), said
    if code == 75:
        assert "--resume" in said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop(start, toy, number):
    process = start(*LONG)
    run = trains(toy.parent)
    process.send_signal(number)
    code, said = ended(process)
    assert code == 75, said
    assert "--resume" in said
    assert list(run.checkpoints_dir.glob("step_*/manifest.json"))


@pytest.mark.slow
def test_the_terminal_goes(start, toy):
    process = start(*LONG)
    run = trains(toy.parent)
    process.send_signal(signal.SIGHUP)
    code, _ = ended(process)
    assert code in (-signal.SIGHUP, 75, 130)
    wait_until(lambda: not rank_processes(run.path), "the ranks to be gone")


@pytest.mark.slow
def test_killed_then_continued(start, toy):
    process = start("train", "toy.yaml", "--run-id", "one", "--epochs", "300")
    run = trains(toy.parent)
    process.kill()
    process.communicate()
    wait_until(lambda: not rank_processes(run.path), "the ranks to be gone")
    code, said = ended(start("train", "--resume", "--run-id", "one"))
    assert (code, run.read_outcome().status) == (0, "done"), said
    code, said = ended(start("verify", "one"))
    assert code == 0, said


@pytest.mark.slow
def test_a_disk_that_is_full(start, toy):
    code, said = ended(start("train", "toy.yaml", "--run-id", "one", limit_kib=2))
    assert code not in (0, 75)
    assert "File too large" in said or "EFBIG" in said, said
    assert "→" in said


def test_a_disk_that_is_full_while_a_graph_is_prepared(start, toy):
    code, said = ended(start("prepare", "synthetic/sbm", "--as", "more", "--dataset-root", "new", limit_kib=2))
    assert code == 2, said
    assert "File too large" in said
    assert "→" in said
    assert not [path for path in (toy.parent / "new").rglob("*") if path.is_file()]


def test_a_reader_that_leaves(start, toy):
    process = start("plan", "toy.yaml", "--json")
    begins(process)
    process.stdout.close()
    process.wait(timeout=HANG_S)
    assert "Traceback" not in process.stderr.read()
