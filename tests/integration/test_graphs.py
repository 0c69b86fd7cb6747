"""Graph classification over real gloo ranks: the same losses and scores as one process with the same global batch."""

from pathlib import Path

import pytest
from rounding import drift

from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.tasks.graph_classification.data.prepare import GENERATED, prepare_requested
from graphmill.tasks.graph_classification.page import GraphClassificationExperiment, GraphSetPrepareOptions
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.stores import Preparation
from graphmill.verify.run import verify_run

pytestmark = pytest.mark.distributed
GLOBAL_BATCH = 24


@pytest.fixture(scope="module")
def runs(train_all, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    root = tmp_path_factory.mktemp("graphs")
    prepare_requested(Preparation(GENERATED, root, GraphSetPrepareOptions(num_graphs=200)))
    plans = [_plan(root, ranks) for ranks in (1, 2, 4)]
    return train_all([*plans, _plan(root, 2, {"mode": "budget", "max_nodes": 200, "max_edges": 600}, "budget")])


def _plan(root: Path, ranks: int, batch: dict[str, object] | None = None, run_id: str = "") -> Plan:
    experiment = GraphClassificationExperiment.model_validate(
        {
            "dataset": {"name": GENERATED},
            "model": {"kind": "gin", "hidden_channels": 8, "dropout": 0.0},
            "train": {
                "epochs": 2,
                "batch_size": GLOBAL_BATCH // ranks,
                "batch": batch or {},
                "ranks": ranks,
                "threads": 1,
                "device": "cpu",
            },
        }
    )
    machine = MachineInfo(num_cores=2, num_gpus=0)
    return plan_experiment(experiment, dataset_root=root, run_id=run_id or f"ranks-{ranks}", machine=machine)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_see_what_one_process_sees(runs: dict[str, RunFolder], ranks: int) -> None:
    """The longest sum of an update is over the nodes of a global batch, 36 at most in each graph."""
    alone, shared = (read_metrics(runs[f"ranks-{number}"].metrics_path) for number in (1, ranks))
    assert len(alone) == len(shared) == 2
    for one, other in zip(alone, shared, strict=True):
        for column in ("loss", "val_loss"):
            bound = drift(float(one[column]), terms=GLOBAL_BATCH * 36, updates=int(alone[-1]["steps_done"]))
            assert abs(float(one[column]) - float(other[column])) <= bound
        assert other["num_seeds"] == one["num_seeds"]
        assert other["replicas_agree"].lower() == "true"


def test_batches_by_budget_hold_every_graph_once(runs: dict[str, RunFolder]) -> None:
    folder = runs["budget"]
    plan, rows = folder.read_plan(), read_metrics(folder.metrics_path)
    assert plan.budget is not None
    assert plan.budget.num_batches == 2 * int(rows[0]["steps_done"])
    assert [int(row["num_seeds"]) for row in rows] == [plan.dataset.num_train] * 2
    assert [check for check in verify_run(folder) if check.result == "fail" and "provenance" not in check.detail] == []
