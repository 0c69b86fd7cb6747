"""`train.threads: trial`: which number of threads is taken, by trials that were kept, and by real ones."""

import json
import os

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.launch.threads import fewest_threads
from graphmill.estimate.cache import FOLDER, Estimates
from graphmill.estimate.trial import Trial, keep_trial


def kept(logs_root, plan, hours):
    """Trials of `plan` by number of threads: how many hours the whole run takes."""
    for threads, each in hours.items():
        trial = Trial(20, 1.0, (1.0, 1.0), 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, each, 0.0, 100.0)
        keep_trial(Estimates(logs_root), plan.model_copy(update={"threads": threads, "baselines": False}), trial)


@pytest.mark.parametrize(
    ("hours", "fewest"),
    [
        ({8: 1.0, 4: 1.5}, 8),  # half as many are not tried
        ({8: 1.0, 4: 1.04, 2: 1.2}, 4),
        ({8: 1.0, 4: 0.5, 2: 0.52, 1: 0.54}, 2),
        ({8: 4.0, 4: 3.0, 2: 2.0, 1: 1.0}, 1),
        ({6: 1.0, 3: 1.0, 1: 1.0}, 1),
        ({1: 1.0}, 1),  # there is nothing to try
    ],
)
def test_the_fewest_that_are_as_fast(make_plan, tmp_path, hours, fewest):
    plan = make_plan().model_copy(update={"threads": max(hours)})
    kept(tmp_path, plan, hours)
    assert fewest_threads(plan, tmp_path, may_try=False) == plan.model_copy(update={"threads": fewest})


def test_steps_that_may_not_be_made_are_asked_for(make_plan, tmp_path):
    plan = make_plan().model_copy(update={"threads": 2})
    kept(tmp_path, plan, {2: 1.0})
    with pytest.raises(UserError, match="no steps are tried here"):
        fewest_threads(plan, tmp_path, may_try=False)


def test_too_few_steps_are_refused(make_plan, tmp_path):
    plan = make_plan(epochs=2, sync={"scheme": "local_sgd", "every": 8}, ranks=2).model_copy(update={"threads": 2})
    with pytest.raises(UserError, match="takes 24 steps, and the run has 6"):
        fewest_threads(plan, tmp_path, may_try=True)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: there is nothing to try")
def test_a_run_tries_them_once_and_its_plan_has_the_number(toy, graphmill, tmp_path):
    words = ("toy.yaml", "-O", "train.threads=trial")
    refused = graphmill("plan", *words)
    assert refused.code == 2
    assert "graphmill plan EXPERIMENT --trial 10" in refused.err
    done = graphmill("train", *words, "--run-id", "one")
    assert done.code == 0, done.err
    threads = json.loads((tmp_path / "logs" / "one" / "plan.json").read_text())["threads"]
    tried = sorted((tmp_path / "logs" / FOLDER).iterdir())
    assert tried
    said = graphmill("plan", *words, "--json")
    assert json.loads(said.out)["plan"]["threads"] == threads
    assert sorted((tmp_path / "logs" / FOLDER).iterdir()) == tried


@pytest.mark.parametrize("words", [("submit", "--dry-run"), ("script",), ("script", "-O", "slurm.cpus_per_host=2")])
def test_where_other_machines_train_a_number_is_asked_for(toy, graphmill, words):
    command, *more = words
    refused = graphmill(command, "toy.yaml", "-O", "train.threads=trial", "-O", "slurm.site=devcluster", *more)
    assert refused.code == 2
    assert "--trial 10 -O train.threads=trial` says how many" in refused.err
