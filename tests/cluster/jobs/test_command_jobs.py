"""`submit --run`: any command as a job of a real Slurm, with what a run has around it."""

import json
import sys
import time
from pathlib import Path

import pytest
from waiting import HANG_S

from graphmill.monitor.summary import read_monitors, summarise
from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import read_staged

WRITE_DOWN = "import json, sys; json.dump(sys.argv[1:], open('words.json', 'w')); print('a word or two')"
HOSTILE = ["two words", "$(touch pwned)", "`touch pwned`", "it's", 'say "hi"', "first\nsecond", "; touch pwned", "",
           "--", "--command=x", "*", "~", "\\", "ünï", "-x"]  # fmt: skip
BUSY = "import time; x = bytearray(200 << 20); t = time.time()\nwhile time.time() < t + 5: x[::4096]"


@pytest.fixture
def submit(cluster, tmp_path):
    """Submits a command; returns its folder and the number of its job."""

    def submit(*words: str, options: tuple[str, ...] = ()) -> tuple[RunFolder, str]:
        run = ("submit", "--run", "--json", "--site", "devcluster", "--time", "5", *options)
        answer = cluster.graphmill(*run, "--", *words, cwd=tmp_path)
        said = json.loads(answer.out)
        return RunFolder(Path(said["run"])), said["job_id"]

    return submit


def ended(cluster, tmp_path: Path, folder: RunFolder) -> dict:
    return cluster.wait_for(tmp_path, str(folder.path), "done", "failed", "stopped", "out_of_time", "bad_request")


def accounted(cluster, tmp_path: Path, job: str) -> tuple[str, str]:
    """State and exit status as Slurm has them, once the job is closed."""
    until = time.monotonic() + HANG_S
    while True:
        said = cluster.run("sacct", "-n", "-X", "-P", "-j", job, "-o", "State,ExitCode", cwd=tmp_path).out.strip()
        state, _, code = said.partition("|")
        if state and state not in ("RUNNING", "PENDING", "COMPLETING"):
            return state.split()[0], code
        assert time.monotonic() < until, said
        time.sleep(0.2)


def until_it_runs(cluster, tmp_path: Path, folder: RunFolder, sign: str) -> None:
    until = time.monotonic() + HANG_S
    while sign not in (folder.log_path(0).read_text() if folder.log_path(0).exists() else ""):
        assert time.monotonic() < until, sorted(folder.path.iterdir())
        time.sleep(0.2)


def test_words_arrive_as_they_are_and_the_folder_is_like_that_of_a_run(cluster, tmp_path, submit):
    folder, job = submit(sys.executable, "-c", WRITE_DOWN, *HOSTILE)
    view = ended(cluster, tmp_path, folder)
    assert json.loads((tmp_path / "words.json").read_text()) == HOSTILE
    assert not (tmp_path / "pwned").exists()
    assert (view["state"], view["epochs"]) == ("done", None)
    assert accounted(cluster, tmp_path, job) == ("COMPLETED", "0:0")
    assert folder.path.parent == tmp_path / "logs" / "jobs"
    names = {path.name for path in folder.path.iterdir()}
    assert names >= {
        *("command.json", "job.json", "job.sbatch", "jobs.jsonl", f"slurm-{job}.out", "rank_0.log", "attempts.jsonl"),
        *("monitor", "outcome.json", "epilog.json", "epilog.txt", "provenance.json", "checksums.json"),
    }
    assert cluster.graphmill("logs", job, cwd=tmp_path).out == "a word or two\n"
    assert job in cluster.graphmill("list", cwd=tmp_path).out
    assert cluster.graphmill("watch", job, cwd=tmp_path).code == 0
    stopped = cluster.graphmill("stop", job, cwd=tmp_path)
    assert (stopped.code, "waits or runs" in stopped.err) == (2, True)
    assert "done already" in cluster.graphmill("submit", "--resume", str(folder.path), cwd=tmp_path).out


@pytest.mark.slow
def test_the_monitor_measures_the_command_and_what_it_starts(cluster, tmp_path, submit):
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    folder, _ = submit(sys.executable, "-c", nested)
    assert ended(cluster, tmp_path, folder)["state"] == "done"
    summary = summarise(read_monitors(folder.monitor_dir), begin=0)
    assert summary.peak_mib_by_rank[0] > 200
    assert "GiB" in folder.epilog_text_path.read_text()


@pytest.mark.slow
def test_its_exit_status_is_the_jobs_and_it_is_run_again_by_a_person(cluster, tmp_path, submit):
    text = "if [ -e again ]; then exit 0; fi; touch again; echo why it failed; exit 3"
    folder, job = submit("sh", "-c", text)
    view = ended(cluster, tmp_path, folder)
    assert (view["state"], "exit status 3" in view["detail"]) == ("failed", True)
    assert accounted(cluster, tmp_path, job) == ("FAILED", "3:0")
    assert folder.read_outcome().exit_code == 3
    log = folder.job_log_path(job).read_text()
    assert "why it failed" in log
    assert f"graphmill submit --resume {folder.path}" in log
    refused = cluster.graphmill("submit", "--resume", str(folder.path), "--on-time-limit", "requeue", cwd=tmp_path)
    assert (refused.code, "on_time_limit" in refused.err) == (2, True)
    again = cluster.graphmill("submit", "--resume", job, "--time", "7", cwd=tmp_path)
    assert again.code == 2  # a job is no folder
    again = cluster.graphmill("submit", "--resume", str(folder.path), "--time", "7", cwd=tmp_path)
    assert (again.code, "time 00:05:00 → 00:07:00" in again.err) == (0, True), again.err
    assert ended(cluster, tmp_path, folder)["state"] == "done"
    assert len(folder.attempts()) == 2


@pytest.mark.slow
def test_commands_of_our_own_and_those_that_are_not_there(cluster, tmp_path, submit):
    ours, _ = submit("graphmill", "inspect", "no-such-dataset")
    nobodys, job = submit("no-such-program")
    view = ended(cluster, tmp_path, ours)
    assert (view["state"], ours.read_outcome().exit_code) == ("bad_request", 2)
    assert "no-such-dataset" in cluster.graphmill("logs", str(ours.path), cwd=tmp_path).out
    assert ended(cluster, tmp_path, nobodys)["state"] == "failed"
    assert accounted(cluster, tmp_path, job) == ("FAILED", "127:0")


WAIT = ("sh", "-c", "echo runs; exec sleep 600")


def test_a_stop_is_told_as_such(cluster, tmp_path, submit):
    stopped, _ = submit(*WAIT)
    until_it_runs(cluster, tmp_path, stopped, "runs")
    said = cluster.graphmill("stop", str(stopped.path), cwd=tmp_path)
    assert (said.code, "run it again" in said.out) == (0, True), said.err
    assert ended(cluster, tmp_path, stopped)["state"] == "stopped"


@pytest.mark.slow
def test_ends_by_limit_and_cancel_are_told_as_such(cluster, tmp_path, submit):
    limited, job = submit(*WAIT)
    until_it_runs(cluster, tmp_path, limited, "runs")
    cluster.run("scontrol", "update", f"jobid={job}", "endtime=now+2seconds", cwd=tmp_path)
    cancelled, other = submit(*WAIT)
    until_it_runs(cluster, tmp_path, cancelled, "runs")
    cluster.run("scancel", other, cwd=tmp_path)
    states = [ended(cluster, tmp_path, folder)["state"] for folder in (limited, cancelled)]
    assert states == ["out_of_time", "stopped"]
    assert accounted(cluster, tmp_path, job)[0] in ("TIMEOUT", "FAILED")
    assert accounted(cluster, tmp_path, other)[0] == "CANCELLED"
    assert cluster.graphmill("watch", job, "--once", cwd=tmp_path).code == 75


@pytest.mark.slow
def test_a_stop_before_it_has_begun_starts_nothing(cluster, tmp_path, submit):
    begun = tmp_path / "begun"
    folder, _ = submit("touch", str(begun), options=("--setup-line", f"until [ -e {tmp_path}/go ]; do sleep 0.1; done"))
    folder.ask_to_stop()
    (tmp_path / "go").touch()
    view = ended(cluster, tmp_path, folder)
    assert (view["state"], "had not begun" in view["detail"]) == ("stopped", True)
    assert not begun.exists()


def test_data_are_staged_before_it_begins(cluster, tmp_path, submit):
    folder, _ = submit(
        *("sh", "-c", 'ls "$GRAPHMILL_STAGED_ROOT"'), options=("--staging", "host_local", "--data", "synthetic/sbm")
    )
    assert ended(cluster, tmp_path, folder)["state"] == "done"
    (staged,) = read_staged(folder)
    assert folder.log_path(0).read_text().split() == [Path(staged.to).name]
    assert "staging on" in folder.epilog_text_path.read_text()


def test_what_a_command_cannot_have_is_refused(graphmill, tmp_path):
    def refused(*words: str) -> str:
        answer = graphmill("submit", "--run", "--site", "devcluster", *words)
        assert answer.code == 2, answer.out
        return answer.err

    assert "graphmill submit EXPERIMENT" in refused("--", "graphmill", "train", "cora-sage")
    assert "'partitoin'" in refused("--", "graphmill", "partitoin")
    assert "slurm.hosts" in refused("--hosts", "2", "--", "true")
    assert "train.epochs" in refused("-O", "train.epochs=2", "--", "true")
    assert "--ranks" in refused("--ranks", "2", "--", "true")
    assert "EXPERIMENT" in refused("cora-sage", "--", "true")
    assert "--data DATASET" in refused("--staging", "host_local", "--", "true")
    assert "needs a command" in refused()
    assert "needs a command" in refused("--")
    assert not (tmp_path / "logs").exists()
