"""A run is told what simple methods score on its data, and that it loses where it does; scored once for all runs."""

import json
import os

import numpy as np
import pytest
from command_line import run_here, run_in, start

from graphmill.graph.features import dense
from graphmill.record.kept_baselines import KeptBaselines
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import LABELS
from graphmill.train.baselines_after import costly_scores

pytestmark = pytest.mark.distributed
EXPERIMENT = """
task: {kind: node_classification}
dataset: {name: ways}
model: {kind: graphsage, hidden_channels: 4}
train: {epochs: 1, num_neighbors: [3, 3], batch_size: 100, optimizer: {lr: 0.000001}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two paths, each of one class: labels spread along them, and features say nothing."""
    root = tmp_path_factory.mktemp("judged")
    ends = np.delete(np.arange(399), 199)
    draw = np.random.default_rng(0)
    raw = LabelledGraph(
        edge_index=np.stack([ends, ends + 1]),
        features=dense(draw.normal(size=(400, 4)).astype(np.float32)),
        labels=np.repeat([0, 1], 200),
        split=np.tile([0, 0, 1, 2], 100).astype(np.int8),
        name="ways",
        source="a test",
        synthetic=False,
    )
    write_store(raw, root / "data" / "ways")
    (root / "ways.yaml").write_text(EXPERIMENT)
    return root


@pytest.fixture(scope="module")
def told(folder):
    """Run a command there → what it printed, answers and messages."""

    def run(*words: str) -> str:
        environ = {**os.environ, "GRAPHMILL_DATA_ROOT": "data", "OMP_NUM_THREADS": "1"}
        process = start(environ, folder, *words)
        out, err = process.communicate()
        assert process.returncode == 0, out + err
        return out + err

    return run


@pytest.fixture
def shown(folder, monkeypatch):
    """Run a command there in this process → its answer and messages, without what ranks print."""
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", "data")
    monkeypatch.chdir(folder)

    def run(*words: str) -> str:
        done = run_here(*words)
        assert done.code == 0, done.out + done.err
        return done.out + done.err

    return run


@pytest.fixture(scope="module")
def first(told):
    """What the first run printed, of two ranks."""
    return told("train", "ways.yaml", "--run-id", "one", "--ranks", "2")


def test_a_run_that_loses_says_so_wherever_its_scores_stand(folder, first, shown):
    assert first.count("scoring a baseline: label propagation") == 1
    outcome = json.loads((folder / "logs" / "one" / "outcome.json").read_text())
    beside = outcome["baselines"]["test"]
    assert set(beside) == {"majority", "labels", "logistic", "propagated", "stacked", "perceptron"}
    assert beside["labels"]["micro_f1"] == 1.0
    assert outcome["test"]["micro_f1"] < 0.9
    lost = f"loses to a baseline: micro-F1 {outcome['test']['micro_f1']:.4f}, label propagation 1.0000"
    assert f"the run {lost}" in first
    assert lost in shown("compare", "one")
    assert "loses to a baseline" in shown("inspect", "one")
    assert lost in json.loads(run_in(folder, "evaluate", "one", "--json"))["judged"]
    shown("report", "one")
    assert lost in (folder / "report.html").read_text()
    assert lost in shown("verify", "one")


@pytest.mark.slow
def test_the_next_run_on_the_same_data_reads_what_was_scored(folder, first, told):
    again = told("train", "ways.yaml", "--run-id", "a/sweep/two", "-O", "model.hidden_channels=5")
    assert "scoring a baseline" not in again
    runs = ("one", "a/sweep/two")
    scores = [json.loads((folder / "logs" / run / "outcome.json").read_text())["baselines"] for run in runs]
    assert scores[0] == scores[1]
    other = told("train", "ways.yaml", "--run-id", "three", "-O", "dataset.undirected=false")
    assert "scoring a baseline: label propagation" in other


@pytest.mark.slow
def test_a_run_scores_none_where_it_is_told_not_to(folder, first, told):
    said = told("train", "ways.yaml", "--run-id", "six", "-O", "train.baselines=false", "--logs-root", "untold")
    assert "scoring a baseline" not in said
    assert not (folder / "untold" / ".baselines").exists()


@pytest.mark.slow
def test_a_damaged_file_of_kept_scores_is_written_anew(folder, first, told):
    for kept in (folder / "logs" / ".baselines").iterdir():
        path = folder / "elsewhere" / ".baselines" / kept.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("no JSON")
    told("train", "ways.yaml", "--run-id", "four", "--logs-root", "elsewhere")
    outcome = json.loads((folder / "elsewhere" / "four" / "outcome.json").read_text())
    assert outcome["baselines"]["test"]["labels"]["micro_f1"] == 1.0
    assert any("labels" in KeptBaselines(path).read() for path in (folder / "elsewhere" / ".baselines").iterdir())


def test_what_cannot_be_scored_is_said_and_raises_nothing(folder, first, tmp_path):
    own = RunFolder.open(folder / "logs" / "one").read_plan().task
    gone = own.model_copy(update={"dataset": own.dataset.model_copy(update={"path": str(tmp_path / "gone")})})
    said: list[str] = []
    assert costly_scores(tmp_path, gone, LABELS, said.append) == {}
    assert "label propagation could not be scored" in said[-1]
    assert not list(tmp_path.iterdir())


def test_baseline_keeps_what_it_scores_for_the_runs(folder, told):
    told("baseline", "ways", "--logs-root", "asked", "-O", "train.num_neighbors=[3,3]")
    assert "scoring a baseline" not in told("train", "ways.yaml", "--run-id", "five", "--logs-root", "asked")
