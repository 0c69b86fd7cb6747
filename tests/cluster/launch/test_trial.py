"""A trial of a plan: real ranks, a few steps, nothing left behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.launch import trial
from graphmill.cluster.launch.trial import try_out
from graphmill.spec.kinds import find_kind
from graphmill.tasks.node_classification.data.prepare import prepare

SMALL = """
name: small
dataset: {name: synthetic/sbm}
train: {epochs: 4, batch_size: 10, num_neighbors: [3, 3], threads: 1, device: cpu}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=root, options={"num_nodes": 300, "num_edges": 1500, "features": 8})
    (root / "small.yaml").write_text(SMALL)
    return root


def planned(root: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphmill.cli", "plan", root / "small.yaml", "--dataset-root", root, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.mark.distributed
def test_a_trial_measures_and_leaves_nothing_behind(root, tmp_path):
    done = planned(root, tmp_path, "--ranks", "2", "--trial", "6", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    plan, trial = answer["plan"], answer["trial"]
    assert trial["steps"] == 6
    low, high = trial["step_spread_s"]
    assert 0 < low <= trial["step_s"] <= high
    assert trial["train_h"] == pytest.approx(plan["last_step"] * trial["step_s"] / 3600)
    assert trial["evaluate_h"] == pytest.approx((4 * trial["val_s"] + trial["test_s"]) / 3600)
    at_the_end = {each.name for each in find_kind("node_classification").baselines.methods if each.scored == "end"}
    assert trial["baselines_s"].keys() == at_the_end
    assert min(trial["baselines_s"].values()) > 0
    baselines_h = sum(trial["baselines_s"].values()) / 3600
    assert trial["total_h"] == pytest.approx(trial["train_h"] + trial["evaluate_h"] + baselines_h)
    assert 50 < trial["peak_rss_mib"] < 5000
    assert list(tmp_path.iterdir()) == []


def test_epochs_of_one_step_are_measured(root, tmp_path):
    """An evaluation and a checkpoint come between any two steps."""
    one_step = ("-O", "train.batch_size=1000", "-O", "train.baselines=false")
    done = planned(root, tmp_path, *one_step, "--trial", "4", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["plan"]["last_step"], answer["trial"]["steps"]) == (4, 4)
    assert answer["trial"]["step_s"] > 0
    assert answer["trial"]["baselines_s"] == {}


def test_too_short_a_trial_is_refused(root, graphmill):
    plan = ("plan", root / "small.yaml", "--dataset-root", root)
    few = graphmill(*plan, "--trial", "2")
    assert few.code == 2
    assert "2 steps say nothing" in few.err
    scheme = ["-O", "train.sync.scheme=local_sgd", "-O", "train.sync.every=3", "-O", "train.baselines=false"]
    rare = graphmill(*plan, "--ranks", "2", *scheme, "--trial", "4")
    assert rare.code == 2
    assert "--trial 9 or more" in rare.err


def test_a_trial_is_for_this_machine(make_plan):
    with pytest.raises(UserError, match="the plan is for 3 hosts"):
        try_out(make_plan().model_copy(update={"hosts": 3}), 10)


@pytest.mark.slow
def test_a_trial_that_fails_says_so(make_plan):
    with pytest.raises(UserError, match="the trial ended with 2"):
        try_out(make_plan(ranks=1), 10)  # its dataset is nowhere


def test_a_stop_after_the_last_step_of_a_trial_ends_what_would_measure_more(make_plan, monkeypatch):
    def start_run(plan, *, watch, **_):
        watch(True)
        return 0

    monkeypatch.setattr(trial, "start_run", start_run)
    with pytest.raises(KeyboardInterrupt):
        try_out(make_plan(ranks=1, epochs=9), 10)
