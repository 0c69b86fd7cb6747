"""Plans without a dataset, and a program that stands in for the worker: it behaves as it is told."""

from pathlib import Path

import pytest

from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import MachineInfo, Plan, resolve
from graphmill.tasks.node_classification.page import GraphInfo, NodeClassificationExperiment

STAND_IN = Path(__file__).parents[1] / "cluster" / "programs" / "rank.py"


def planned(experiment: NodeClassificationExperiment, run_id: str) -> Plan:
    """What `plan_experiment` does, on a machine and a dataset that are not there."""
    facts = GraphInfo(
        name="toy", path="/nowhere/toy", checksum="0" * 16, synthetic=False, num_nodes=100, num_edges=400,
        num_features=8, num_classes=3, num_train=60, has_sparse_features=False,
    )  # fmt: skip
    return resolve(experiment, machine=MachineInfo(num_cores=2, num_gpus=0), dataset=facts, run_id=run_id)


@pytest.fixture
def planner():
    return planned


@pytest.fixture
def make_plan():
    def make(run_id: str = "run", *, ranks: int = 2, **train) -> Plan:
        train = {"ranks": ranks, "epochs": 2, "batch_size": 10, **train}
        return planned(NodeClassificationExperiment.model_validate({"train": train}), run_id)

    return make


@pytest.fixture
def new_run(tmp_path: Path, make_plan):
    def make(ranks: int = 2, run_id: str = "run", **train) -> tuple[RunFolder, Plan]:
        plan = make_plan(run_id, ranks=ranks, **train)
        return RunFolder.create(plan, tmp_path / "logs"), plan

    return make


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, source_environ: dict[str, str]):
    """Makes commands for `run_ranks`. Each word is `<rank>:<what it does>[:<seconds until then>]`."""
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])
    return lambda *behaviour: [str(STAND_IN), *behaviour, "--"]
