"""`graphmill tune`, with real trainings of a small graph."""

import json
import subprocess
import sys

import pytest

from graphmill.record.run_folder import RunFolder
from graphmill.record.trials import SearchFolder

SEARCH = """
name: found
experiment:
  dataset: {name: synthetic/sbm}
  model: {hidden_channels: 8}
  train: {epochs: 2, batch_size: 60, num_neighbors: [4, 4], threads: 1, ranks: 1, baselines: false}
space: {train.optimizer.lr: {low: 1.0e-3, high: 1.0e-1, log: true}, model.hidden_channels: [4, 8]}
trials: 2
"""


@pytest.mark.distributed
def test_a_search_from_file_to_best(graphmill, tmp_path):
    pytest.importorskip("optuna")
    (tmp_path / "search.yaml").write_text(SEARCH)
    assert graphmill("prepare", "synthetic/sbm", "-o", "num_nodes=300", "-o", "num_edges=2400").code == 0
    said = graphmill("tune", "search.yaml", "--json")
    assert said.code == 0, said.err
    answer = json.loads(said.out)
    assert [trial["state"] for trial in answer["trials"]] == ["complete", "complete"]
    assert answer["trials"][0]["values"] == {"train.optimizer.lr": 0.01, "model.hidden_channels": 8}
    best = answer["best"]
    run = RunFolder.open(tmp_path / best["run"])
    assert best["test micro_f1"] == run.read_outcome().test["micro_f1"]
    again = graphmill("tune", "search.yaml")
    assert (again.code, "2 complete" in again.out, "graphmill train" in again.out) == (0, True, True)
    trained = graphmill("train", "logs/found/best.yaml", "--run-id", "again")
    assert trained.code == 0, trained.err
    assert RunFolder.open(tmp_path / "logs" / "again").read_outcome().best == run.read_outcome().best
    assert graphmill("verify", best["run"]).code == 0
    assert graphmill("compare", "found").code == 0
    answer = json.loads(graphmill("tune", "search.yaml", "--seeds", "1,2", "--name", "seeds", "--json").out)
    first = answer["trials"][0]
    assert first["val"] == pytest.approx(sum(first["val_of_seeds"]) / 2, abs=1e-6)
    assert first["runs"] == [f"logs/seeds/trial-0000__seed-{seed}" for seed in (1, 2)]
    rows = json.loads(graphmill("compare", "seeds", "--json").out)["tables"][0]["rows"]
    assert sorted(row["val"]["mean"] for row in rows) == pytest.approx(
        sorted(trial["val"] for trial in answer["trials"])
    )
    assert "trial-0001__seed-2" in graphmill("list").out
    other = graphmill("tune", "search.yaml", "--seed", "3")
    assert (other.code, "another seed" in other.err) == (2, True)


def test_what_is_searched_is_shown_and_nothing_is_written(graphmill, tmp_path):
    said = graphmill("tune", "cora-sage", "--dry-run")
    assert (said.code, "0.001 to 0.1, log scale" in said.out, "up to 20 trials" in said.out) == (0, True, True)
    assert "20 trials, each with the seeds 1, 2;" in graphmill("tune", "cora-sage", "--dry-run", "--seeds", "1,2").out
    shown = json.loads(graphmill("tune", "search-cora", "--dry-run", "--json", "--hours", "0.5").out)
    assert (shown["hours"], shown["trials"], shown["first"]["train.optimizer.lr"]) == (0.5, 20, 0.01)
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nope"], "neither a YAML file nor a recipe"),
        (["study-demo"], "graphmill study run"),
        (["cora-sage", "--trials", "0"], "trials is 0"),
        (["cora-sage", "--hours", "0"], "hours is 0"),
        (["cora-sage", "--seeds", "1,x"], "seeds[1]"),
        (["cora-sage", "--name", "a b"], "name is"),
        (["cora-sage", "-O", "train.epohcs=3"], "train.epochs"),
        (["search-cora", "-O", "model.dropout=0.3"], "both set and searched"),
    ],
)
def test_what_cannot_be_is_refused(graphmill, tmp_path, words, says):
    said = graphmill("tune", *words)
    assert (said.code, says in said.err) == (2, True), said.err
    assert not (tmp_path / "logs").exists()


def test_without_optuna_it_says_what_to_type(tmp_path, source_environ):
    program = "import sys; sys.modules['optuna'] = None; sys.argv[1:] = ['tune', 'cora-sage']\n"
    program += "from graphmill.cli.app import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=source_environ, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'graphmill[tune]'" in done.stderr


def test_a_process_that_finds_every_trial_taken_ends_well(graphmill, tmp_path):
    pytest.importorskip("optuna")
    (tmp_path / "search.yaml").write_text(SEARCH.replace("trials: 2", "trials: 1"))
    assert graphmill("prepare", "synthetic/sbm", "-o", "num_nodes=300", "-o", "num_edges=2400").code == 0
    assert graphmill("tune", "search.yaml").code == 0
    found, lines = SearchFolder(tmp_path / "logs" / "found"), tmp_path / "logs" / "found" / "trials.jsonl"
    lines.write_text(lines.read_text().splitlines(keepends=True)[0])  # as if it had not ended
    with found.claim(0):
        said = graphmill("tune", "search.yaml", "--json")
        assert (said.code, list(json.loads(said.out)["elsewhere"])) == (0, ["trial-0000"])
        assert "give it more" not in graphmill("tune", "search.yaml").out
