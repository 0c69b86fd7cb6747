"""A search as a job of a real Slurm, killed again and again: no trial is lost, none is doubled."""

import json
import time

import pytest
from waiting import HANG_S

from graphmill.cluster.launch.asking import Asking
from graphmill.record.run_folder import RunFolder
from graphmill.record.trials import SearchFolder
from graphmill.spec.search import load_search, searched_keys

pytest.importorskip("optuna")

TOY = """
name: found
experiment:
  dataset: {name: synthetic/sbm}
  model: {hidden_channels: 8}
  train: {epochs: 6, batch_size: 60, num_neighbors: [4, 4], threads: 1, baselines: false}
space: {train.optimizer.lr: {low: 1.0e-3, high: 1.0e-1, log: true}, model.hidden_channels: [4, 8]}
trials: 6
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["scancel", "kill"])
def test_a_search_that_is_ended_ten_times_goes_on(cluster, tmp_path, how):
    (tmp_path / "search.yaml").write_text(TOY)
    never = cluster.graphmill("tune", "search.yaml", "--logs-root", "never", cwd=tmp_path)
    assert never.code == 0, never.err
    words = ("submit", "--run", "--json", "--site", "devcluster", "--time", "5", "--cpus-per-host", "1")
    first = cluster.graphmill(*words, "--", "graphmill", "tune", "search.yaml", cwd=tmp_path)
    assert first.code == 0, first.err
    said = json.loads(first.out)
    folder, job, found = tmp_path / said["run"], said["job_id"], SearchFolder(tmp_path / "logs" / "found")
    for number in range(10):
        until = time.monotonic() + HANG_S
        while len(found.trials() if found.path.exists() else []) < min(1 + number // 2, 6):
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(0.35 * (number % 4))
        if how == "scancel":
            cluster.run("scancel", job, cwd=tmp_path)
        else:  # every process of the job at once
            cluster.run("scancel", "--signal=KILL", "--full", job, cwd=tmp_path)
        view = cluster.wait_for(tmp_path, str(folder), "done", "failed", "stopped", "out_of_time", "lost", "unfinished")
        if view["state"] == "done":
            break
        again = cluster.graphmill("submit", "--resume", str(folder), "--json", cwd=tmp_path)
        assert again.code == 0, again.err
        job = json.loads(again.out)["job_id"]
    assert number > 3
    assert cluster.wait_for(tmp_path, str(folder), "done")["state"] == "done"
    assert found.trials() == SearchFolder(tmp_path / "never" / "found").trials()
    assert sum(len(RunFolder(found.path / trial.name).attempts()) for trial in found.trials()) > len(found.trials())


@pytest.mark.slow
@pytest.mark.timeout(0)  # each wait has its own bound
def test_two_jobs_at_one_search_that_are_killed_ten_times_lose_and_double_no_trial(cluster, tmp_path):
    """One is killed with all its processes while the other goes on, and takes up what that one was at."""
    (tmp_path / "search.yaml").write_text(TOY.replace("trials: 6", "trials: 16"))
    found, lines = SearchFolder(tmp_path / "logs" / "found"), tmp_path / "logs" / "found" / "trials.jsonl"
    jobs: dict[str, str] = {}

    def submit(*words: str) -> str:
        said = cluster.graphmill("submit", "--json", *words, cwd=tmp_path)
        assert said.code == 0, said.err
        answer = json.loads(said.out)
        jobs[answer["run"]] = answer["job_id"]
        return answer["run"]

    def num_lines() -> int:
        return lines.read_text().count("\n") if lines.exists() else 0

    ended = ("done", "failed", "stopped", "out_of_time", "lost", "unfinished")
    words = ("--run", "--site", "devcluster", "--time", "5", "--cpus-per-host", "1")
    folders = [submit(*words, "--", "graphmill", "tune", "search.yaml") for _ in range(2)]
    assert len(jobs) == 2
    num_kills = 0
    for number in range(10):
        until, seen = time.monotonic() + HANG_S, num_lines()
        while num_lines() < min(seen + 2, 32):
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(0.35 * (number % 4))
        folder = folders[number % 2]
        how = ("--signal=KILL", "--full") if number % 3 else ()
        num_kills += cluster.run("scancel", *how, jobs[folder], cwd=tmp_path).code == 0
        if cluster.wait_for(tmp_path, str(tmp_path / folder), *ended)["state"] != "done":
            assert submit("--resume", folder) == folder
    for folder in folders:
        assert cluster.wait_for(tmp_path, str(tmp_path / folder), "done")["state"] == "done"
    trials = found.trials()
    assert num_kills > 5
    assert [trial.number for trial in trials] == [*range(16)]
    assert {trial.state for trial in trials} <= {"complete", "pruned"}
    assert num_lines() == 32
    assert any(trial.running for trial in trials)
    assert sum(len(RunFolder(found.path / trial.name).attempts()) for trial in trials) > len(trials)
    keys = searched_keys(load_search(tmp_path / "search.yaml"))
    asking = Asking(keys, seed=0, higher_is_better=True)
    assert [trial.values for trial in trials[1:]] == [asking.values(trial.knew(trials)) for trial in trials[1:]]


@pytest.mark.slow
@pytest.mark.timeout(0)  # each wait has its own bound
@pytest.mark.parametrize("way", ["requeue", "resubmit"])
def test_a_search_that_is_longer_than_its_job_goes_on_by_itself(cluster, tmp_path, way):
    search, found = tmp_path / "search.yaml", SearchFolder(tmp_path / "logs" / "found")
    search.write_text(TOY.replace("trials: 6", "trials: 100000"))  # more than two minutes, anywhere
    words = ("submit", "--run", "--json", "--site", "devcluster", "--time", "2", "--on-time-limit", way)
    said = cluster.graphmill(*words, "--", "graphmill", "tune", "search.yaml", cwd=tmp_path)
    assert said.code == 0, said.err
    folder = RunFolder(tmp_path / json.loads(said.out)["run"])

    def log() -> str:
        return "".join(path.read_text() for path in folder.path.glob("slurm-*.out"))

    until = time.monotonic() + 10 * HANG_S
    while not (found.path.exists() and found.trials()):
        assert time.monotonic() < until
        time.sleep(0.1)
    search.write_text(TOY.replace("trials: 6", "trials: 1"))  # for the next job, which then ends
    while not folder.is_done():
        assert "give up" not in log()
        assert time.monotonic() < until
        time.sleep(0.5)
    attempts = folder.attempts()
    assert len(attempts) > 1
    saved = [attempt.steps_saved for attempt in attempts]
    assert saved == sorted(set(saved))
    assert log().count(f"steps further, by {way}") == len(attempts) - 1
    trials = found.trials()
    assert [trial.number for trial in trials] == [*range(len(trials))]
    assert {trial.state for trial in trials} <= {"complete", "pruned"}
