"""Folds are repetitions, as rng seeds are: one row, mean and standard deviation over them."""

import json
import statistics

import pytest
from typer.testing import CliRunner

from graphmill.cli.app import commands

STUDY = """
name: folds
experiment:
  task: graph_classification
  dataset: {name: synthetic/motifs, fold: 0, folds: 5}
  model: {kind: gin, hidden_channels: 8, num_layers: 2}
  train: {epochs: 1, batch_size: 64, threads: 1, device: cpu, ranks: 1}
vary:
  dataset.fold: [0, 1, 2]
  model.num_layers: [1, 2]
"""


@pytest.mark.slow
def test_a_row_for_each_configuration_over_all_folds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(tmp_path / "data"))
    (tmp_path / "folds.yaml").write_text(STUDY)
    run = CliRunner().invoke
    assert run(commands(), ["prepare", "synthetic/motifs", "-o", "num_graphs=100"]).exit_code == 0
    done = run(commands(), ["study", "run", "folds.yaml"])
    assert done.exit_code == 0, done.output
    (table,) = json.loads(run(commands(), ["compare", "folds", "--json"]).stdout)["tables"]
    assert sorted(row["values"]["model.num_layers"] for row in table["rows"]) == [1, 2]
    assert [len(row["runs"]) for row in table["rows"]] == [3, 3]
    outcomes = [json.loads((tmp_path / "logs" / run / "outcome.json").read_text()) for run in table["rows"][0]["runs"]]
    mean = statistics.mean(outcome["test"]["accuracy"] for outcome in outcomes)
    assert abs(table["rows"][0]["test"]["mean"] - mean) < 1e-12
    said = run(commands(), ["compare", "folds"]).output
    assert "rng seeds and folds" in said
    assert "not independent" not in said
