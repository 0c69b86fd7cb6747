"""model.kind=sign: killed anywhere, with other ranks, evaluated by several: the same weights and scores."""

import random
from typing import Any

import pytest
from killing import Tally, assert_same, run_with_kills
from labelled_stores import made_store
from trained_runs import hashes, losses, trained

from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.spec.world import world_of
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment

pytestmark = pytest.mark.distributed


@pytest.fixture(params=["dense", "sparse", "labels"])
def planned(request, tmp_path_factory):
    """Two ranks, several steps of each an epoch, the last of them uneven; `labels`: propagated ones are read too."""
    root = tmp_path_factory.mktemp("data")
    made_store(root / "made", num_nodes=150, num_edges=700, is_sparse=request.param == "sparse")

    def plan(**train: Any) -> Plan:
        raw = {
            "dataset": {"name": "made"},
            "model": {
                "kind": "sign",
                "hidden_channels": 8,
                "input_dropout": 0.1,
                "label_propagation": request.param == "labels",
            },
            "train": {
                "epochs": 4,
                "batch_size": 4,
                "ranks": 2,
                "threads": 1,
                "baselines": False,
                "device": "cpu",
                "checkpoint": {"every_steps": 2},
                **train,
            },
        }
        experiment = NodeClassificationExperiment.model_validate(raw)
        return plan_experiment(experiment, dataset_root=root, run_id="run")

    return plan


def test_killed_and_resumed_and_with_other_ranks(zygote, planned, tmp_path):
    whole = trained(zygote, planned(), tmp_path / "whole")
    killed = RunFolder.create(planned(), tmp_path / "killed")
    run_with_kills(zygote, killed, random.Random(0), Tally(), num_kills=2, most_s=whole.read_outcome().wall_s / 3)
    assert_same(killed, whole)
    assert hashes(trained(zygote, planned(prefetch=0, threads=2), tmp_path / "other")) == hashes(whole)
    alone = trained(zygote, planned(ranks=1, batch_size=8), tmp_path / "alone")
    assert losses(alone) == pytest.approx(losses(whole), abs=1e-5)
    assert alone.read_outcome().test == pytest.approx(whole.read_outcome().test)
    fewer = RunFolder.create(planned(), tmp_path / "fewer")
    assert zygote.wait(zygote.start(fewer, resume=False, die_at=12), patience_s=3)[-1] != 0
    assert zygote.wait(zygote.start(fewer, resume=True, world=world_of(planned(), ranks=1, hosts=1))) == [0]
    assert losses(fewer) == pytest.approx(losses(whole), abs=1e-5)
