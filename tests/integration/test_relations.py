"""R-GCN and HGT on a typed graph: whole, in parts, served, presampled, killed, with other ranks: the same weights."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import Tally, assert_same, run_with_kills
from relation_problem import relation_problem
from trained_runs import hashes, losses, trained

from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.spec.world import world_of
from graphmill.sync.group import Group
from graphmill.sync.pause import never_pause
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.access import epochs_of
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment
from graphmill.train.evaluate import open_run

pytestmark = pytest.mark.distributed

IN_PARTS: dict[str, dict[str, Any]] = {
    "replicated": {"topology": "replicated", "cache": {"policy": "lookahead", "window": 3}},
    "partitioned": {"topology": "partitioned", "cache": {"policy": "none"}},
}


@pytest.fixture(scope="session")
def typed(data_root: Path) -> str:
    write_store(relation_problem("typed"), data_root / "typed")
    return "typed"


RGCN, HGT = {"kind": "rgcn", "num_bases": 2}, {"kind": "hgt"}
# What does not depend on the layers is asked of one of the two in each fast test.
BY_RGCN = pytest.mark.parametrize("model", [RGCN, pytest.param(HGT, marks=pytest.mark.slow)], ids=["rgcn", "hgt"])
BY_HGT = pytest.mark.parametrize("model", [pytest.param(RGCN, marks=pytest.mark.slow), HGT], ids=["rgcn", "hgt"])


@pytest.fixture
def planned(data_root: Path, typed: str, cut_into, model):
    """Two ranks of a small model, 4 steps of each an epoch."""

    def plan(where: str = "whole", *, roles: dict[str, int] | None = None, **train: Any) -> Plan:
        raw: dict[str, Any] = {
            "dataset": {"name": typed, "undirected": False},
            "model": {"hidden_channels": 8, **model},
            "train": {
                "epochs": 3,
                "batch_size": 10,
                "num_neighbors": [3, 2],
                "threads": 1,
                "baselines": False,
                "device": "cpu",
                "optimizer": {"kind": "adam", "lr": 0.01},
                "checkpoint": {"every_steps": 2},
                **train,
            },
        }
        if roles is None:
            raw["train"].setdefault("ranks", 2)
        else:
            raw["roles"] = roles
        if where in IN_PARTS:
            raw["dataset"]["name"] = cut_into(typed, 2)
            raw["partition"] = {"placement": "per_rank", "seeds": "equal", **IN_PARTS[where]}
        experiment = NodeClassificationExperiment.model_validate(raw)
        return plan_experiment(experiment, dataset_root=data_root, run_id="run")

    return plan


@pytest.fixture
def whole(zygote, planned, tmp_path) -> RunFolder:
    return trained(zygote, planned(), tmp_path / "whole")


@BY_HGT
def test_weights_on_parts_are_those_on_the_whole_graph(zygote, planned, whole, tmp_path):
    for where in IN_PARTS:
        found = trained(zygote, planned(where), tmp_path / where)
        assert len(hashes(whole)) == 12
        assert hashes(found) == hashes(whole)
        assert found.read_outcome().test["micro_f1"] == whole.read_outcome().test["micro_f1"]


@BY_RGCN
def test_served_and_presampled(zygote, planned, whole, tmp_path):
    """The batches of ranks that sample for themselves, from samplers and from a file; also of other ranks."""
    served = trained(zygote, planned(roles={"samplers": 1, "trainers": 2}), tmp_path / "served")
    assert hashes(served) == hashes(whole)
    source = epochs_of(planned())
    folder = source.folder(tmp_path / "sampled")
    folder.begin()
    for epoch in range(3):
        folder.write(epoch, source.schedule, source.sampler(), lambda *done: None)
    read = {"presampled": str(folder.path)}
    assert hashes(trained(zygote, planned(**read), tmp_path / "read")) == hashes(whole)
    alone = {"ranks": 1, "batch_size": 20}
    drawn = trained(zygote, planned(**alone), tmp_path / "drawn")
    assert hashes(trained(zygote, planned(**alone, **read), tmp_path / "cut")) == hashes(drawn)


@BY_RGCN
def test_killed_and_resumed(zygote, planned, whole, tmp_path):
    folder = RunFolder.create(planned(), tmp_path / "killed")
    run_with_kills(zygote, folder, random.Random(0), Tally(), num_kills=2, most_s=whole.read_outcome().wall_s / 3)
    assert_same(folder, whole)


@pytest.mark.parametrize("model", [RGCN, HGT], ids=["rgcn", "hgt"])
def test_dropout_of_edges_is_resumed_and_is_none_of_evaluation(zygote, planned, tmp_path):
    plan = planned(edge_dropout=0.3)
    dropped = trained(zygote, plan, tmp_path / "dropped")
    assert hashes(dropped) != hashes(trained(zygote, planned(), tmp_path / "all"))
    killed = RunFolder.create(plan, tmp_path / "killed")
    run_with_kills(zygote, killed, random.Random(0), Tally(), num_kills=1, most_s=dropped.read_outcome().wall_s / 2)
    assert_same(killed, dropped)
    run = open_run(dropped, "best")
    own = run.plan.task.model_copy(update={"edge_dropout": 0.0})
    plain = build_task(run.plan.model_copy(update={"task": own}), Group(0, 1, torch.device("cpu")))
    plain.model.load_state_dict(run.task.model.state_dict())
    assert run.task.evaluate("test", never_pause).facts() == plain.evaluate("test", never_pause).facts()


@BY_HGT
def test_other_ranks_take_the_same_steps(zygote, planned, whole, tmp_path):
    """What is computed of a node depends on it alone: one rank of twice the batch, and one that continues for two."""
    alone = trained(zygote, planned(ranks=1, batch_size=20), tmp_path / "alone")
    assert losses(alone) == pytest.approx(losses(whole), abs=1e-5)
    folder = RunFolder.create(planned(), tmp_path / "fewer")
    assert zygote.wait(zygote.start(folder, resume=False, die_at=20), patience_s=3)[-1] != 0
    assert zygote.wait(zygote.start(folder, resume=True, world=world_of(planned(), ranks=1, hosts=1))) == [0]
    assert losses(folder) == pytest.approx(losses(whole), abs=1e-5)
