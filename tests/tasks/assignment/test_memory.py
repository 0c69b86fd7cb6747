"""What the planner says of memory is never less than a run takes, and at most a tenth more."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from assignment_problems import prepared

from graphmill.record.run_folder import plan_text
from graphmill.spec.kinds.assignment import AssignmentExperiment
from graphmill.spec.modelled import modelled
from graphmill.spec.plan import MachineInfo
from graphmill.tasks.planning import plan_experiment


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    counts = ("512:24", "1024:12")
    return prepared(tmp_path_factory.mktemp("lap"), families=("uniform",), instances_map=counts, workers=2)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "batch_size"), [(512, 8), (1024, 8)])
def test_of_a_run_of_one_gnn(store, tmp_path, size, batch_size):
    experiment = AssignmentExperiment.model_validate(
        {
            "dataset": {"name": str(store.path), "sizes": [size]},
            "train": {"epochs": 2, "batch_size": batch_size, "threads": 1, "device": "cpu", "prefetch": 0},
        }
    )
    machine = MachineInfo(num_cores=2, num_gpus=0)
    plan = plan_experiment(experiment, dataset_root=Path("/"), run_id="run", machine=machine)
    (tmp_path / "plan.json").write_text(plan_text(plan))
    command = [sys.executable, "-m", "graphmill.train.try_batch", str(tmp_path / "plan.json"), "100000"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    peak = json.loads(ran.stdout.splitlines()[-1])["peak_mib"]
    said = modelled(plan).memory_per_rank_mib
    assert peak <= said <= 1.1 * peak
