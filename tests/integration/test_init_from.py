"""A run that begins with the weights of another: the same measures at first, its own copy, refusals."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from rounding import Bounded, assert_near
from waiting import HANG_S

from graphmill.base.errors import UserError
from graphmill.nn.weights import Weights
from graphmill.record.events import Evaluation, Initialised, events_in
from graphmill.record.run_folder import RunFolder, refuse_other_plan
from graphmill.record.weights import WEIGHTS_FILE, WeightsFile
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment
from graphmill.train.evaluate import evaluate
from graphmill.verify.run import verify_run

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def source(planned, train_all):
    """A run whose weights others begin with; at such a rate its last epoch is not its best."""
    folder = train_all(
        [planned("source", ranks=1, epochs=4, optimizer={"kind": "adam", "lr": 0.3, "weight_decay": 0})]
    )["source"]
    assert folder.read_outcome().best["epoch"] < 4, "else best and last are the same weights"
    return folder


@pytest.fixture(scope="module")
def plan_from(data_root):
    def plan(run_id: str, *, hidden: int = 8, name: str = "cora", train=None, **init_from):
        experiment = NodeClassificationExperiment.model_validate(
            {
                "dataset": {"name": name},
                "model": {"kind": "graphsage", "hidden_channels": hidden},
                "train": {
                    "epochs": 1,
                    "batch_size": 10,
                    "num_neighbors": [3, 3],
                    "ranks": 2,
                    "threads": 1,
                    **(train or {}),
                },
                "init_from": init_from,
            }
        )
        return plan_experiment(experiment, dataset_root=data_root, run_id=run_id)

    return plan


def events(folder: RunFolder, kind: type) -> list:
    return [event for event in events_in(folder.events_path(0)) if isinstance(event, kind)]


def measures(facts: dict) -> dict:
    return {name: facts[name] for name in ("micro_f1", "macro_f1", "loss")}


@pytest.mark.parametrize("which", ["best", "last"])
@pytest.mark.parametrize("sync", [{"scheme": "deferred_allreduce"}, {"scheme": "local_sgd", "every": 3}])
def test_it_begins_where_the_other_ended(source, plan_from, train_all, which, sync):
    plan = plan_from("tuned", run=str(source.path), weights=which, train={"sync": sync})
    folder = train_all([plan])["tuned"]
    first, second = (e for e in events(folder, Evaluation) if e.set == "val")
    assert first.epoch == 0
    found, expected = measures(first.measures), measures(evaluate(source, split="val", which=which))
    assert (found["micro_f1"], found["macro_f1"]) == (expected["micro_f1"], expected["macro_f1"])
    in_another_order = Bounded.of(expected["loss"]).rounded(first.measures["num_seeds"])  # a sum of positive terms
    assert_near(found["loss"], in_another_order, computed=torch.float64)
    assert second.epoch == 1
    assert measures(second.measures) != measures(first.measures)
    (init,) = events(folder, Initialised)
    assert init.not_taken == init.not_filled == ()
    assert init.taken == tuple(WeightsFile.read(folder.initial_weights_path).tensors)
    assert folder.read_outcome().best["epoch"] == 1, "the weights of another run are not this run's best"


def test_a_run_that_makes_nothing_better_is_healthy_and_says_so(source, plan_from, train_all, zygote):
    """The best that it began with counts for neither the trainer nor verify: its own best is one that it made."""
    spoilt = {"optimizer": {"kind": "adam", "lr": 3.0}}
    folder = train_all([plan_from("spoilt", run=str(source.path), train=spoilt)])["spoilt"]
    first, second = (e.measures for e in events(folder, Evaluation) if e.set == "val")
    assert first["micro_f1"] > second["micro_f1"], "else this shows nothing"
    best = folder.read_outcome().best
    assert (best["epoch"], best["micro_f1"]) == (1, second["micro_f1"])
    verdict = {check.name: check for check in verify_run(folder) if check.group == "metrics"}
    assert {check.result for check in verdict.values()} <= {"ok", "warn"}, verdict
    words = "no epoch was better than the weights that it began with"
    assert words in verdict["scores"].detail
    assert words in zygote.said(folder)


def test_the_weights_say_where_they_come_from(source, last_checkpoint):
    origin = WeightsFile.read(last_checkpoint(source) / WEIGHTS_FILE).origin
    assert (origin.run_id, origin.task, origin.dataset) == ("source", "node_classification", "cora")
    assert (origin.step, origin.epoch) == (source.read_plan().last_step, 4)
    assert origin.plan_hash == source.plan_hash()
    facts = evaluate(source, split="val", which="last")
    assert origin.measures == {name: facts[name] for name in origin.measures}
    assert origin.measures.keys() >= {"micro_f1"}
    assert (origin.model["model.kind"], origin.model["model.residual"]) == ("graphsage", False)


def test_a_file_in_part(source, plan_from, train_all, last_checkpoint):
    path = last_checkpoint(source) / WEIGHTS_FILE
    folder = train_all([plan_from("part", file=str(path), include=["layers.0.*"], exclude=["*.bias"])])["part"]
    (init,) = events(folder, Initialised)
    assert init.taken == ("layers.0.weight",)
    assert init.not_taken == init.not_filled == ("layers.0.bias", "layers.1.bias", "layers.1.weight")


def test_another_shape_is_refused_before_the_first_step(source, plan_from, tmp_path, zygote):
    folder = RunFolder.create(plan_from("wide", hidden=16, run=str(source.path)), tmp_path)
    assert set(zygote.wait(zygote.start(folder, resume=False), patience_s=HANG_S)) == {2}
    message = folder.read_outcome().message
    for word in ("layers.0.bias", "[8]", "[16]", "run source", "run wide", "the model of wide"):
        assert (word in message) == (word != "run wide"), message


def test_the_plan_records_the_weights_and_a_changed_source_is_refused(source, plan_from, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(source.path, moved)
    plan = plan_from("later", run=str(moved))
    assert plan.init_from.checksum == WeightsFile.read(Path(plan.init_from.path)).compute_checksum()
    folder = RunFolder.create(plan, tmp_path / "logs")
    refuse_other_plan(folder, plan, plan_from("later", run=str(source.path)))  # the same weights elsewhere
    weights = Weights.read(folder.initial_weights_path)
    with pytest.raises(UserError, match=r"init_from\.checksum"):
        refuse_other_plan(folder, plan, plan_from("later", file=str(other_weights(weights, tmp_path))))
    with pytest.raises(UserError, match="init_from"):
        refuse_other_plan(folder, plan, plan_from("later"))
    shutil.copyfile(other_weights(weights, tmp_path), plan.init_from.path)
    with pytest.raises(UserError, match=plan.init_from.checksum):
        RunFolder.create(plan.model_copy(update={"run_id": "third"}), tmp_path / "logs")
    assert not (tmp_path / "logs" / "third" / "plan.json").exists()


def test_it_needs_its_source_no_more_once_it_is_planned(source, plan_from, tmp_path, zygote):
    moved = tmp_path / "moved"
    shutil.copytree(source.path, moved)
    folder = RunFolder.create(plan_from("alone", run=str(moved)), tmp_path)
    shutil.rmtree(moved)
    assert set(zygote.wait(zygote.start(folder, resume=False), patience_s=HANG_S)) == {0}


def test_a_run_without_weights_of_another_says_so_in_its_plan(source):
    assert json.loads(source.plan_path.read_text())["init_from"] is None
    assert not source.initial_weights_path.exists()


def other_weights(weights: Weights, folder):
    changed = {name: tensor + 1 for name, tensor in weights.tensors.items()}
    Weights.of(changed, weights.origin).write(folder / "other.safetensors")
    return folder / "other.safetensors"
