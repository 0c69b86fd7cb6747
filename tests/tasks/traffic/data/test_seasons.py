"""The season before that forecasts best, and what a model with one is shown and begins with."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphmill.base.errors import UserError
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.spec.modelled import modelled
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.sync.group import Group
from graphmill.tasks.baselines import score_baselines
from graphmill.tasks.build import build_task
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.traffic.data.generate import generate
from graphmill.tasks.traffic.data.seasons import preferred, rows_before
from graphmill.tasks.traffic.data.store import TrafficStore, write_traffic
from graphmill.tasks.traffic.data.windows import TrafficWindows
from graphmill.tasks.traffic.nn.portable import TrafficForecaster
from graphmill.tasks.traffic.page import TrafficExperiment
from graphmill.tasks.traffic.task import Traffic

HOUR, DAY, WEEK = 3600, 24, 168
MODELS = {
    "stid": {"kind": "stid", "embed_dim": 4, "num_layers": 1, "dropout": 0.0},
    "dcrnn": {"kind": "dcrnn", "rnn_units": 4, "num_layers": 2},
}


def weekly(num_steps: int = 5 * WEEK) -> np.ndarray:
    """Readings [num_steps, 3] that are other on each hour of the week, and the same a week later but for noise."""
    rng = np.random.default_rng(3)
    week = rng.uniform(10, 90, (WEEK, 3))
    noise = rng.normal(0, 1, (num_steps, 3))
    return (week[np.arange(num_steps) % WEEK] + noise).astype(np.float32)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TrafficStore:
    """Five weeks by the hour; some readings are missing."""
    raw = generate(num_sensors=3, num_steps=5 * WEEK, interval_s=HOUR, seed=2)
    values = weekly()
    values[np.random.default_rng(4).random(values.shape) < 0.05] = np.nan
    return write_traffic(
        replace(raw, series=replace(raw.series, values=values)), tmp_path_factory.mktemp("weekly") / "store"
    )


def plan_of(store: TrafficStore, model: str = "stid", **dataset: object) -> Plan:
    experiment = TrafficExperiment.model_validate(
        {
            "dataset": {"name": str(store.path), "history": 6, "horizon": 4, **dataset},
            "model": MODELS[model],
            "train": {"epochs": 2, "batch_size": 16, "seed": 3, "threads": 1},
        }
    )
    machine = MachineInfo(num_cores=2, num_gpus=0)
    return plan_experiment(experiment, dataset_root=store.path.parent, run_id="run", machine=machine)


def built(plan: Plan) -> Traffic:
    task = build_task(plan, Group(0, 1, torch.device("cpu")))
    assert isinstance(task, Traffic)
    return task


def preferred_of(values: np.ndarray, horizon: int = 3) -> str:
    num_steps = len(values)
    validation = (int(0.7 * num_steps), int(0.8 * num_steps))
    return preferred(values, HOUR * np.arange(num_steps), interval_s=HOUR, horizon=horizon, validation=validation)


def test_rows_before_are_of_the_very_time() -> None:
    times = np.array([0, 10, 20, 40, 50])
    np.testing.assert_array_equal(rows_before(times, 20), [-1, -1, 0, 2, -1])


def test_the_season_that_forecasts_validation_best_is_preferred() -> None:
    walk = np.cumsum(np.random.default_rng(0).normal(0, 1, (840, 3)), axis=0).astype(np.float32)
    assert preferred_of(weekly()) == "week"
    assert preferred_of(np.tile(weekly(DAY), (35, 1)) + walk) == "day", "a week changes more than a day"
    assert preferred_of(walk) == "none", "the last reading is nearer"


def test_no_season_is_preferred_that_cannot_be_learnt_from() -> None:
    assert preferred_of(weekly(), horizon=169) == "none", "it would read what it is to forecast"
    assert preferred_of(weekly(2 * WEEK)) in ("none", "day"), "most training steps have no week before"
    unknown = weekly()
    unknown[int(0.7 * len(unknown)) :] = np.nan
    assert preferred_of(unknown) == "none"


def test_a_planned_season_is_named_or_refused(store: TrafficStore) -> None:
    assert plan_of(store).task.season == "week"
    assert plan_of(store, season="none").task.season == "none"
    assert plan_of(store, season="day").task.season == "day"
    with pytest.raises(UserError, match=r"dataset.season=day, and dataset.horizon=25 steps of 3600 s reach more"):
        plan_of(store, season="day", horizon=25)


def test_windows_hold_the_readings_of_a_season_before(store: TrafficStore) -> None:
    windows = TrafficWindows(store, 6, 4, "week")
    starts = np.array([400, 7, 160, 200])
    batch = windows.batch(EvaluationSeeds(SeedIds(starts)))
    assert batch.before is not None
    mean, std = torch.tensor(store.metadata.mean), torch.tensor(store.metadata.std)
    inputs, origin = batch.inputs(mean, std), batch.learnt_from(mean)
    for row, start in enumerate(starts):
        for step in range(10):
            then = start + step - WEEK
            wanted = store.values[then] if then >= 0 else np.full(3, np.nan, np.float32)
            np.testing.assert_array_equal(batch.before[row, step], wanted)
            for sensor in range(3):
                if step < 6:
                    difference = (batch.readings[row, step, sensor] - wanted[sensor]) / std
                    assert inputs[row, step, sensor, 4] == (0 if difference.isnan() else difference)
                elif np.isnan(wanted[sensor]):
                    known = [each for each in store.values[start : start + 6, sensor] if not np.isnan(each)]
                    assert origin[row, step - 6, sensor] == (known[-1] if known else mean)
                else:
                    assert origin[row, step - 6, sensor] == wanted[sensor]
    plain = TrafficWindows(store, 6, 4).batch(EvaluationSeeds(SeedIds(starts)))
    assert plain.before is None
    assert torch.equal(plain.inputs(mean, std), inputs[..., :4])


@pytest.mark.parametrize("model", MODELS)
def test_a_model_begins_as_the_forecast_of_a_season_before(store: TrafficStore, model: str) -> None:
    plan = plan_of(store, model)
    (score,) = score_baselines(plan.task, ["week_before"], ["val"])
    measured = built(plan).evaluate("val")
    assert score.values is not None
    assert measured.values == pytest.approx(score.values, rel=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_every_weight_learns_from_the_second_step_on(store: TrafficStore, model: str) -> None:
    """The first step moves the last layer alone, for it begins at 0."""
    task = built(plan_of(store, model))
    batch = next(iter(task.batches(0, 0)))
    optimizer = torch.optim.SGD(task.model.parameters(), 0.01)
    for _ in range(2):
        optimizer.zero_grad()
        task.loss_sum(batch).backward()
        optimizer.step()
    learnt = {name: each for name, each in task.model.named_parameters() if each.requires_grad}
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in learnt.values())


@pytest.mark.parametrize("model", MODELS)
def test_outside_training_it_takes_the_readings_before(store: TrafficStore, model: str) -> None:
    plan = plan_of(store, model)
    task = built(plan)
    with torch.no_grad():
        for parameter in task.model.net.parameters():
            parameter.add_(0.05)
    options = {"history": 6, "horizon": 4, "num_sensors": 3, "is_zero_missing": False}
    portable = TrafficForecaster(task.model, season="week", **options).eval()
    starts = task.windows.of("test")[:5]
    ahead = starts[:, None] + np.arange(10)
    readings, times = torch.from_numpy(store.values[ahead[:, :6]]), torch.from_numpy(store.timestamps[ahead[:, :6]])
    before = torch.from_numpy(store.values[ahead - WEEK])
    with torch.no_grad():
        wanted = task.model.eval()(task.windows.batch(EvaluationSeeds(SeedIds(starts))))
        assert torch.equal(portable(readings, times, before), wanted)
    for wrong in (None, before[:, :6]):
        with pytest.raises(ValueError, match="adds to the readings a week before"):
            portable(readings, times, wrong)
    with pytest.raises(ValueError, match="no season"):
        TrafficForecaster(task.model, **options)(readings, times, before)


def test_planned_sizes_are_those_of_the_model(store: TrafficStore) -> None:
    for model in MODELS:
        plan = plan_of(store, model)
        trained = sum(each.numel() for each in built(plan).model.parameters() if each.requires_grad)
        assert modelled(plan).num_parameters == trained
