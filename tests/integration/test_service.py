"""A sampling service: weights of the run whose ranks sample for themselves, whatever happens to a process."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from killing import Tally, assert_same, run_with_kills
from waiting import HANG_S, wait_until

from graphmill.record.events import Failure, Finish, Served, Start, Sync, events_in
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.kinds.node_classification import NodeClassificationExperiment
from graphmill.spec.plan import Plan
from graphmill.spec.world import world_of
from graphmill.tasks.planning import plan_experiment

pytestmark = pytest.mark.distributed

PARTS = {"whole": None, "replicated": "replicated", "partitioned": "partitioned"}
CELLS = [
    (samplers, trainers, where, seeds)
    for samplers, trainers in ((1, 1), (1, 2), (2, 2), (2, 4))
    for where in PARTS
    for seeds in (("equal", "owner") if PARTS[where] else ("equal",))
]
FAST = [(2, 2, "whole", "equal"), (1, 2, "replicated", "equal"), (2, 2, "partitioned", "owner")]


@pytest.fixture
def planned_service(data_root: Path, cut_into):
    """Plans of a small model; `roles`: (samplers, trainers), or the number of ranks that sample for themselves."""

    def plan(
        roles: tuple[int, int] | int,
        where: str = "whole",
        seeds: str = "equal",
        *,
        run_id: str = "run",
        dataset: str = "cora",
        model: dict[str, Any] | None = None,
        own: dict[str, Any] | None = None,
        **train: Any,
    ) -> Plan:
        trainers = roles if isinstance(roles, int) else roles[1]
        raw: dict[str, Any] = {
            "dataset": {"name": dataset},
            "model": model or {"kind": "graphsage", "hidden_channels": 8},
            "train": {
                "epochs": 3,
                "batch_size": 20 // trainers,
                "num_neighbors": [3, 3],
                "threads": 1,
                "device": "cpu",
                "sync": {"scheme": "local_sgd", "every": 2},
                "checkpoint": {"every_steps": 2},
                "prefetch": 3,
                **train,
            },
            **(own or {}),
        }
        if isinstance(roles, int):
            raw["train"]["ranks"] = roles
        else:
            raw["roles"] = {"samplers": roles[0], "trainers": roles[1]}
        if (topology := PARTS[where]) is not None:
            raw["dataset"]["name"] = cut_into(dataset, trainers)
            raw["partition"] = {"placement": "per_rank", "topology": topology, "seeds": seeds}
        return plan_experiment(NodeClassificationExperiment.model_validate(raw), dataset_root=data_root, run_id=run_id)

    return plan


def trained(zygote, plan: Plan, root: Path) -> RunFolder:
    folder = RunFolder.create(plan, root)
    assert set(zygote.wait(zygote.start(folder, resume=False))) == {0}, zygote.said(folder)
    return folder


def hashes(folder: RunFolder) -> list[str]:
    """Of the parameters after every sync."""
    path = folder.events_path(0)
    return [event.parameter_hash for event in events_in(path, Sync)] if path.exists() else []


def assert_same_training(served: RunFolder, alone: RunFolder) -> None:
    """After every sync, and at the end. Which batches an evaluation computes together is no part of it."""
    assert len(hashes(alone)) > 4
    assert hashes(served) == hashes(alone)
    assert (found := served.read_outcome()) is not None
    assert (expected := alone.read_outcome()) is not None
    assert found.test == pytest.approx(expected.test, abs=1e-6)
    files = [sorted(run.checkpoints_dir.glob("*/rank_*.safetensors")) for run in (served, alone)]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


@pytest.mark.parametrize(
    ("samplers", "trainers", "where", "seeds"),
    [pytest.param(*cell, marks=[] if cell in FAST else [pytest.mark.slow]) for cell in CELLS],
)
def test_weights_are_those_of_ranks_that_sample_for_themselves(
    zygote, planned_service, tmp_path, samplers, trainers, where, seeds
):
    alone = trained(zygote, planned_service(trainers, where, seeds), tmp_path / "alone")
    served = trained(zygote, planned_service((samplers, trainers), where, seeds), tmp_path / "served")
    assert_same_training(served, alone)
