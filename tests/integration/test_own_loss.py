"""The losses and measures of the how-to, as a person would use them: modules in the folder, named in the experiment."""

import json
import re
import sys
from functools import partial
from pathlib import Path

import pytest
from command_line import run_in

from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.traffic.data.prepare import prepare_traffic

pytestmark = pytest.mark.distributed
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "own-loss.md"
FORECAST = """
name: fading
task: traffic
dataset: {name: synthetic/traffic, history: 6, horizon: 6}
model: {kind: dcrnn, rnn_units: 4, num_layers: 1}
train:
  epochs: 2
  batch_size: 24
  loss: {kind: custom, target: mylosses.fading, options: {decay: 0.8}}
  measures: {far_off: {target: mymeasures.far_off, higher_is_better: false, options: {limit: 3.0}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the page's two modules, its experiments, one of traffic, and data."""
    root = tmp_path_factory.mktemp("person")
    text = PAGE.read_text(encoding="utf-8")
    codes = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    experiments = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for name, content in zip(("mylosses.py", "mymeasures.py"), codes, strict=True):
        (root / name).write_text(content)
    for name, content in zip(("focal.yaml", "judged.yaml"), experiments, strict=True):
        (root / name).write_text(content)
    (root / "fading.yaml").write_text(FORECAST)
    options = {"num_nodes": 400, "num_edges": 2400, "features": 6, "signal": 0.5}
    prepare("synthetic/sbm", root=root / "data", options=options)
    prepare_traffic("synthetic/traffic", root=root / "data", options={"num_sensors": 6, "num_steps": 200})
    return root


@pytest.fixture
def run(folder, environ, monkeypatch):
    """Run a command there, in this process; what it prints."""
    monkeypatch.setenv("PYTHONPATH", environ["PYTHONPATH"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(str(folder))
    for name in ("mylosses", "mymeasures"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return partial(run_in, folder)


def test_nodes_by_ones_own_loss_and_measure(folder, run):
    loss = ("-O", "train.loss={kind: custom, target: mylosses.focal, options: {gamma: 1.5}}")
    words = ("--ranks", "2", "--epochs", "3", *loss, "-O", "train.baselines=false")
    run("train", "judged.yaml", *words, "--run-id", "judged-1")
    rows = read_metrics(folder / "logs" / "judged-1" / "metrics.csv")
    best = max(float(row["val_mcc"]) for row in rows)
    assert float(rows[-1]["best_val_mcc"]) == best
    (table,) = json.loads(run("compare", "judged-1", "--json"))["tables"]
    assert (table["measure"], table["rows"][0]["val"]["mean"]) == ("mcc", best)
    outcome = RunFolder.open(folder / "logs" / "judged-1").read_outcome()
    evaluated = json.loads(run("evaluate", "judged-1", "--json"))
    assert evaluated["mcc"] == outcome.test["mcc"]
    assert evaluated["majority_micro_f1"] == outcome.baselines["test"]["majority"]["micro_f1"]


def test_the_first_experiment_of_the_page_is_planned(run):
    planned = run("plan", "focal.yaml", "--json")
    assert "mylosses.focal" in planned


@pytest.mark.slow
def test_forecasts_by_ones_own_loss_and_measure(folder, run):
    run("train", "fading.yaml", "--ranks", "2", "-O", "train.threads=1", "--run-id", "fading-1")
    rows = read_metrics(folder / "logs" / "fading-1" / "metrics.csv")
    assert all(0 < float(row["val_far_off"]) < 1 for row in rows)
    assert all(float(row["val_loss"]) < float(row["val_mae"]) for row in rows), "what is far ahead counts less"


def test_a_wrong_return_is_one_sentence_and_leaves_nothing(folder, run):
    loss = "train.loss={kind: custom, target: torch.nn.functional.cross_entropy}"
    said = run("train", "judged.yaml", "-O", loss, "--run-id", "wrong", code=2)
    assert "one number ([])" in said
    assert "Traceback" not in said
    assert not (folder / "logs" / "wrong").exists()
