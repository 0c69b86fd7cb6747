"""Every run that went well is found true to its plan, however it went: any scheme, any number of ranks, any stops."""

import shutil
import signal
from functools import cache
from pathlib import Path

import pytest
from slow_cases import with_slow
from waiting import wait_until

from graphmill.record.evaluations import read_evaluations
from graphmill.record.events import Start, Sync, events_in
from graphmill.record.metrics import read_table
from graphmill.record.provenance import collect_provenance
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.traffic.data.prepare import prepare_traffic
from graphmill.tasks.traffic.page import TrafficExperiment
from graphmill.train.evaluate import evaluate
from graphmill.verify.run import verify_run

RUNS = {
    "alone": {"ranks": 1},
    "deferred": {"ranks": 2, "sync": {"scheme": "deferred_allreduce", "every": 3}},
    "every-step-fp16": {"ranks": 2, "sync": {"scheme": "deferred_allreduce", "every": 1, "payload": "fp16"}},
    "local": {"ranks": 2, "sync": {"scheme": "local_sgd", "every": 3, "warmup_steps": 4}},
    "local-moments": {"ranks": 3, "sync": {"scheme": "local_sgd", "every": 2, "average_optimizer_state": True}},
    "diloco": {"ranks": 2, "sync": {"scheme": "diloco", "every": 50}},
    "more-ranks-than-seeds": {"dataset": "tiny", "ranks": 3},
    "cut-short": {"ranks": 2, "epochs": None, "max_steps": 22},
    "judged-rarely": {"ranks": 2, "epochs": 5, "evaluate_every_epochs": 2},
    "judged-at-the-end": {"ranks": 2, "epochs": 3, "evaluate_every_epochs": 0},
    "many-checkpoints": {"ranks": 2, "epochs": 3, "checkpoint": {"every_steps": 3, "keep_every_epochs": 1}},
    "one-epoch": {"ranks": 2, "epochs": 1},
    "stopped-early": {"ranks": 2, "epochs": 9, "early_stopping": {"patience": 2, "min_delta": 1.0}},
    "adamw": {
        "ranks": 2,
        "optimizer": {"kind": "adamw", "groups": {"b": {"parameters": ["*.bias"], "decay_factor": 0}}},
    },
    "sgd-frozen": {"ranks": 2, "optimizer": {"kind": "sgd", "lr": 0.5, "frozen": ["layers.1.*"]}},
    "own-loss": {"ranks": 2, "loss": {"kind": "custom", "target": "strange_losses.focal", "options": {"gamma": 1.5}}},
    "own-measures": {
        "ranks": 2,
        "epochs": 9,
        "early_stopping": {"patience": 2, "min_delta": 1.0},
        "measures": {
            "mcc": {"target": "strange_losses.mcc", "higher_is_better": True},
            "brier": {"target": "strange_losses.brier", "higher_is_better": False},
            "undefined": {"target": "strange_losses.undefined", "higher_is_better": False},
        },
        "best_by": "brier",
    },
    "weighted": {"ranks": 2, "loss": {"kind": "cross_entropy", "class_weights": "balanced", "label_smoothing": 0.1}},
}

SPEAKING = (
    *("alone", "deferred", "local", "local-moments", "diloco", "more-ranks-than-seeds", "cut-short"),
    *("judged-rarely", "many-checkpoints", "sgd-frozen", "own-measures"),
)


def new_folder(plan: Plan, root: Path) -> RunFolder:
    """As a launcher makes it."""
    folder = RunFolder.create(plan, root)
    folder.write_provenance(
        collect_provenance(["test"], dataset_checksum=plan.dataset.checksum, synthetic=plan.dataset.synthetic)
    )
    return folder


def problems(folder: RunFolder) -> list[str]:
    return [f"{check.group}/{check.name}: {check.detail}" for check in verify_run(folder) if check.result != "ok"]


@pytest.fixture(scope="module")
def trained(planned, zygote, tmp_path_factory):
    """A run of that name, which is trained when it is first asked for."""
    root = tmp_path_factory.mktemp("logs")

    @cache
    def run(run_id: str) -> RunFolder:
        folder = new_folder(planned(run_id, **RUNS[run_id]), root)
        assert set(zygote.wait(zygote.start(folder, resume=False))) == {0}, zygote.said(folder)
        return folder

    return run


@pytest.mark.distributed
@pytest.mark.parametrize("run_id", with_slow(RUNS, fast=SPEAKING))
def test_a_good_run_is_true(trained, run_id):
    assert problems(trained(run_id)) == []


@pytest.mark.distributed
def test_own_measures_of_two_ranks_are_those_of_one_process(trained, monkeypatch):
    """The lowest of the one that chose the best; of one that is no number, nothing."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "programs"))
    folder = trained("own-measures")
    outcome, again = folder.read_outcome(), evaluate(folder, split="test", which="best")
    assert (again["mcc"], again["brier"]) == (outcome.test["mcc"], outcome.test["brier"])
    assert "undefined" not in outcome.test
    lowest = min(row.value for row in read_evaluations(folder) if (row.set, row.measure) == ("val", "brier"))
    assert outcome.best["brier"] == lowest


@pytest.mark.distributed
@pytest.mark.parametrize(
    "sync",
    [
        {"scheme": "deferred_allreduce", "every": 2},
        {"scheme": "local_sgd", "every": 3},
    ],
)
@pytest.mark.slow
def test_a_run_that_was_stopped_and_continued_is_true(planned, zygote, tmp_path, sync):
    plan = planned("stopped", ranks=2, epochs=40, sync=sync)
    folder = new_folder(plan, tmp_path)
    stops = 0
    while stops < 3:
        pids = zygote.start(folder, resume=stops > 0)
        _wait_for_steps(folder, stops)
        zygote.kill([pids[stops % 2]], signal.SIGTERM)  # any rank's wish to stop is heard
        codes = set(zygote.wait(pids))
        assert codes <= {0, 75}, zygote.said(folder)
        stops += 1
        if codes == {0}:
            break
        found = problems(folder)
        assert any("stopped" in problem for problem in found), "not done, so not true yet"
    else:
        assert set(zygote.wait(zygote.start(folder, resume=True))) == {0}
    assert problems(folder) == []


@pytest.mark.distributed
@pytest.mark.parametrize("die_at", with_slow([5, 17, 40], fast=[17]))
def test_a_run_that_was_killed_and_resumed_is_true(planned, zygote, tmp_path, die_at):
    plan = planned(
        "killed", ranks=2, epochs=4, sync={"scheme": "deferred_allreduce", "every": 2}, checkpoint={"every_steps": 3}
    )
    folder = new_folder(plan, tmp_path)
    zygote.wait(zygote.start(folder, resume=False, die_at=die_at), patience_s=4)
    assert set(zygote.wait(zygote.start(folder, resume=True))) == {0}, zygote.said(folder)
    assert problems(folder) == []


def _wait_for_steps(folder: RunFolder, attempt: int) -> None:
    """Until rank 0 of this attempt has synchronised a few times."""

    def has_synchronised() -> bool:
        path = folder.events_path(0)
        kinds = [type(event) for event in events_in(path)] if path.exists() else []
        starts = [index for index, kind in enumerate(kinds) if kind is Start]
        return len(starts) > attempt and kinds[starts[-1] :].count(Sync) > 4

    wait_until(has_synchronised, "syncs of this attempt", look_every_s=0.01)


@pytest.fixture(scope="module")
def forecast(zygote, tmp_path_factory):
    """A run of another task, on data that were generated and say so."""
    root = tmp_path_factory.mktemp("traffic")
    store = prepare_traffic("synthetic/traffic", root=root / "data", options={"num_sensors": 5, "num_steps": 200})
    experiment = TrafficExperiment.model_validate(
        {
            "dataset": {"name": str(store.path)},
            "model": {"kind": "dcrnn", "rnn_units": 8, "num_layers": 1},
            "train": {"ranks": 2, "epochs": 3, "batch_size": 16, "threads": 1, "baselines": False},
        }
    )
    folder = new_folder(plan_experiment(experiment, dataset_root=root / "data", run_id="forecast"), root / "logs")
    assert set(zygote.wait(zygote.start(folder, resume=False))) == {0}, zygote.said(folder)
    return folder


@pytest.mark.distributed
def test_a_good_forecast_is_true_and_synthetic(forecast):
    assert problems(forecast) == []
    checks = {check.name: check.detail for check in verify_run(forecast)}
    assert checks["synthetic"] == "synthetic, and says so, in every record"
    assert "loss" in checks["losses"]
    assert "val_mae" in checks["losses"]


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("column", "value", "check"),
    [
        ("loss", "0.5", "metrics/events: epoch 2: loss is 0.5"),
        ("val_mae", "0.5", "metrics/events: epoch 2: val_mae is 0.5"),
        ("val_rmse_30min", "0.5", "metrics/events: epoch 2: val_rmse_30min is 0.5"),
        ("best_val_mae", "0.5", "metrics/sums: epoch 2: best_val_mae is not the best MAE so far"),
        (
            "seeds_per_s",
            "9e9",
            "metrics/table: metrics.csv: seeds_per_s is written '9e9'",
        ),
        ("seeds_per_s", "99.5", "metrics/sums: epoch 2: seeds_per_s is 99.5"),
        ("num_seeds", "7", "metrics/seeds: epoch 2 saw 7 seeds"),
        ("synthetic", "false", "data/synthetic: synthetic data was promised, but metrics.csv says real"),
    ],
)
def test_an_edited_forecast_is_found(forecast, tmp_path, column, value, check):
    copy = RunFolder(Path(shutil.copytree(forecast.path, tmp_path / "forecast")))
    table = read_table(copy.metrics_path)
    rows = [list(row) for row in table.rows]
    rows[1][table.header.index(column)] = value
    copy.metrics_path.write_text("".join(",".join(row) + "\n" for row in (table.header, *rows)))
    assert any(problem.startswith(check) for problem in problems(copy)), problems(copy)
