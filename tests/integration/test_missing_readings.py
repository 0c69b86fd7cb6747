"""Days without a reading: steps that no rank, or not every rank, has anything to learn from."""

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from rounding import drift
from slow_cases import with_slow

from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.traffic.data.generate import generate
from graphmill.tasks.traffic.data.store import write_traffic
from graphmill.tasks.traffic.page import TrafficExperiment

pytestmark = pytest.mark.distributed
GLOBAL_BATCH, EPOCHS = 4, 2
SCHEMES = {
    "every": {"scheme": "deferred_allreduce", "every": 1},
    "deferred": {"scheme": "deferred_allreduce", "every": 3},
    "local": {"scheme": "local_sgd", "every": 3},
    "warmed-up": {"scheme": "local_sgd", "every": 2, "warmup_steps": 40, "average_optimizer_state": True},
    "diloco": {"scheme": "diloco", "every": 3, "outer_momentum": 0.5},
}


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plan]:
    """Every scheme with two ranks, and one process; half of the training steps have no reading at all."""
    root = tmp_path_factory.mktemp("silent")
    raw = generate(num_sensors=4, num_steps=300)
    raw.series.values[60:160] = np.nan
    write_traffic(raw, root / "silent")
    found = {name: _plan(root, name, ranks=2, sync=sync) for name, sync in SCHEMES.items()}
    return {**found, "alone": _plan(root, "alone", ranks=1, sync=SCHEMES["every"])}


def _plan(root: Path, run_id: str, *, ranks: int, sync: dict[str, object]) -> Plan:
    experiment = TrafficExperiment.model_validate(
        {
            "dataset": {"name": str(root / "silent"), "history": 4, "horizon": 4},
            "model": {"kind": "dcrnn", "rnn_units": 4, "num_layers": 1, "cl_decay_steps": 20},
            "train": {
                "epochs": EPOCHS, "batch_size": GLOBAL_BATCH // ranks, "ranks": ranks, "threads": 1, "device": "cpu",
                "sync": sync,
            },
        }
    )  # fmt: skip
    machine = MachineInfo(num_cores=2, num_gpus=0)
    return plan_experiment(experiment, dataset_root=root, run_id=run_id, machine=machine)


@pytest.fixture(scope="module")
def runs(plans: dict[str, Plan], train_all) -> Callable[[str], RunFolder]:
    """The run of that name, which is trained when it is first asked for."""
    return cache(lambda name: train_all([plans[name]])[name])


def test_there_are_such_steps(plans: dict[str, Plan]) -> None:
    task = build_task(plans["every"], Group(0, 2, torch.device("cpu")))
    weights = np.array(
        [
            task.weights(epoch, step)
            for epoch in range(EPOCHS)
            for step in range(plans["every"].calendar.steps_in(epoch))
        ]
    )
    assert (weights.sum(axis=1) == 0).sum() >= 3, "nobody has anything to learn from"
    assert ((weights == 0).sum(axis=1) == 1).sum() >= 3, "one rank has, the other has not"


@pytest.mark.parametrize("name", with_slow(SCHEMES, fast=["every", "local", "diloco"]))
def test_every_scheme_trains_past_them(runs: Callable[[str], RunFolder], syncs, name: str) -> None:
    rows = read_metrics(runs(name).metrics_path)
    assert len(rows) == EPOCHS
    assert all(math.isfinite(float(row[column])) for row in rows for column in ("loss", "val_mae", "val_rmse"))
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    first, second = ([sync.parameter_hash for sync in of_rank] for of_rank in syncs(runs(name)))
    assert first == second
    assert len(set(first)) > 0.9 * len(first), "a round that nobody learnt from leaves the weights as they are"


def test_two_ranks_do_what_one_process_does(runs: Callable[[str], RunFolder]) -> None:
    alone, together = (read_metrics(runs(name).metrics_path) for name in ("alone", "every"))
    for one, other in zip(alone, together, strict=True):
        for column in ("loss", "val_mae", "val_rmse"):
            error, updates = float(one[column]), int(alone[-1]["steps_done"])
            allowed = drift(error, terms=GLOBAL_BATCH * 4 * 4, updates=updates)  # 4 steps of 4 sensors each
            assert abs(float(other[column]) - error) <= allowed
