"""Traffic over real gloo ranks: the same losses and errors as one process with the same global batch."""

import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rounding import drift

from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.traffic.data.prepare import prepare_traffic
from graphmill.tasks.traffic.page import TrafficExperiment

pytestmark = pytest.mark.distributed
GLOBAL_BATCH = 24
SMALL = {"kind": "dcrnn", "rnn_units": 8, "num_layers": 2, "cl_decay_steps": 10}
OWN_MODEL = Path(__file__).parents[2] / "docs" / "howto" / "own-model.md"


@pytest.fixture(scope="module")
def runs(train_all, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], RunFolder]:
    """The run of so many ranks, which is trained when it is first asked for."""
    root = tmp_path_factory.mktemp("traffic")
    options = {"num_sensors": 6, "num_steps": 400, "missing_share": 0.2}
    prepare_traffic("synthetic/traffic", root=root, options=options)
    return cache(lambda ranks: train_all([_plan(root, ranks)])[f"ranks-{ranks}"])


def _plan(root: Path, ranks: int) -> Plan:
    experiment = TrafficExperiment.model_validate(
        {
            "dataset": {"name": "synthetic/traffic", "history": 6, "horizon": 6},
            "model": SMALL,
            "train": {
                **{"epochs": 3, "batch_size": GLOBAL_BATCH // ranks, "ranks": ranks, "threads": 1, "device": "cpu"},
                "measures": {"mse": {"target": "strange_losses.squared", "higher_is_better": False}},
            },
        }
    )
    machine = MachineInfo(num_cores=2, num_gpus=0)
    return plan_experiment(experiment, dataset_root=root, run_id=f"ranks-{ranks}", machine=machine)


def near(one: str | float, other: str | float, *, updates: int) -> bool:
    """The longest sum of an update: over the targets of a global batch, 6 steps of 6 sensors each."""
    return abs(float(one) - float(other)) <= drift(float(one), terms=GLOBAL_BATCH * 6 * 6, updates=updates)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_see_what_one_process_sees(runs: Callable[[int], RunFolder], ranks: int) -> None:
    alone, shared = (read_metrics(runs(number).metrics_path) for number in (1, ranks))
    assert len(alone) == len(shared) == 3
    for one, other in zip(alone, shared, strict=True):
        for column in ("loss", "val_loss", "val_mae", "val_rmse", "val_mape", "val_mae_15min", "val_mae_30min"):
            assert near(one[column], other[column], updates=int(alone[-1]["steps_done"]))
        assert float(other["val_mse"]) == pytest.approx(float(other["val_rmse"]) ** 2, rel=1e-6)
        assert other["num_seeds"] == one["num_seeds"]
        assert other["replicas_agree"].lower() == "true"


def test_what_a_run_of_traffic_leaves_behind(runs: Callable[[int], RunFolder]) -> None:
    rows = read_metrics(runs(2).metrics_path)
    assert all(row["synthetic"].lower() == "true" for row in rows)
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    outcome = runs(2).read_outcome()
    assert outcome is not None
    assert outcome.test is not None
    assert {"mae", "rmse", "mape", "mae_15min", "mae_30min"} <= outcome.test.keys()


@pytest.mark.slow
def test_the_forecaster_of_the_how_to(environ, tmp_path: Path) -> None:
    """As a person would: the document's module in the folder, named on the command line, over real ranks."""
    blocks = re.findall(r"^```python\n(.*?)^```", OWN_MODEL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if "class Tgcn" in block)
    (tmp_path / "mytgcn.py").write_text(code)
    prepare_traffic("synthetic/traffic", root=tmp_path / "data", options={"num_sensors": 6, "num_steps": 250})
    model = "model={kind: custom, target: mytgcn.Tgcn, options: {hidden: 8}}"
    losses = {}
    for ranks in (1, 2):
        size = ("--ranks", str(ranks), "-O", f"train.batch_size={GLOBAL_BATCH // ranks}", "-O", "train.threads=1")
        words = ("train", "traffic-demo", *size, "-O", model, "--epochs", "2", "--run-id", f"own-{ranks}")
        done = subprocess.run(
            [sys.executable, "-m", "graphmill.cli", *words], cwd=tmp_path, env=environ, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        rows = read_metrics(tmp_path / "logs" / f"own-{ranks}" / "metrics.csv")
        losses[ranks] = [float(row[column]) for row in rows for column in ("loss", "val_mae")]
    for one, other in zip(losses[1], losses[2], strict=True):
        assert near(one, other, updates=int(rows[-1]["steps_done"]))
    assert losses[1][-2] < losses[1][0]
