"""Traffic over real gloo ranks: the same losses and errors as one process with the same global batch."""

from pathlib import Path

import pytest

from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.experiment import TrafficExperiment
from graphmill.spec.plan import MachineFacts, Plan
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.traffic.prepare import prepare_traffic

pytestmark = pytest.mark.distributed
GLOBAL_BATCH = 24


@pytest.fixture(scope="module")
def runs(train_all, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    root = tmp_path_factory.mktemp("traffic")
    options = {"num_sensors": 6, "num_steps": 400, "missing_share": 0.2}
    prepare_traffic("synthetic/traffic", root=root, options=options)
    return train_all([_plan(root, ranks) for ranks in (1, 2, 4)])


def _plan(root: Path, ranks: int) -> Plan:
    experiment = TrafficExperiment.model_validate(
        {
            "dataset": {"name": "synthetic/traffic", "history": 6, "horizon": 6},
            "model": {"kind": "dcrnn", "rnn_units": 8, "num_layers": 2, "cl_decay_steps": 10},
            "train": {"epochs": 3, "batch_size": GLOBAL_BATCH // ranks, "ranks": ranks, "threads": 1, "device": "cpu"},
        }
    )
    machine = MachineFacts(num_cores=2, num_gpus=0)
    return plan_experiment(experiment, dataset_root=root, run_id=f"ranks-{ranks}", machine=machine)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_see_what_one_process_sees(runs: dict[str, RunFolder], ranks: int) -> None:
    alone, shared = (read_metrics(runs[f"ranks-{number}"].metrics_path) for number in (1, ranks))
    assert len(alone) == len(shared) == 3
    for one, other in zip(alone, shared, strict=True):
        for column in ("train_loss", "val_loss", "val_mae", "val_rmse", "val_mape", "val_mae_15min", "val_mae_30min"):
            assert float(other[column]) == pytest.approx(float(one[column]), rel=1e-5)
        assert other["samples_epoch_global"] == one["samples_epoch_global"]
        assert other["replicas_agree"].lower() == "true"


def test_what_a_run_of_traffic_leaves_behind(runs: dict[str, RunFolder]) -> None:
    rows = read_metrics(runs["ranks-2"].metrics_path)
    assert all(row["synthetic"].lower() == "true" for row in rows)
    assert float(rows[-1]["train_loss"]) < float(rows[0]["train_loss"])
    outcome = runs["ranks-2"].read_outcome()
    assert outcome is not None
    assert outcome.test is not None
    assert {"mae", "rmse", "mape", "mae_15min", "mae_30min"} <= outcome.test.keys()
