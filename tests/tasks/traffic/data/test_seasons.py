"""Means of a day or week, which of them is preferred, and what a model that learns the difference begins with."""

from dataclasses import replace
from math import nan

import numpy as np
import pytest
import torch

from graphmill.base.errors import UserError
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.spec.differences import computed_with_weights, other_computation
from graphmill.spec.modelled import modelled
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.sync.group import Group
from graphmill.tasks.baselines import score_baselines
from graphmill.tasks.build import build_task
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.traffic.data import seasons
from graphmill.tasks.traffic.data.generate import generate
from graphmill.tasks.traffic.data.seasons import averages, preferred, slots
from graphmill.tasks.traffic.data.store import TrafficStore, write_traffic
from graphmill.tasks.traffic.data.windows import WindowBatch
from graphmill.tasks.traffic.nn.model import TrafficForecaster
from graphmill.tasks.traffic.nn.season import SeasonMeans, last_readings
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
    return (week[np.arange(num_steps) % WEEK] + rng.normal(0, 1, (num_steps, 3))).astype(np.float32)


def wandering() -> np.ndarray:
    """A random walk of each of 3 sensors, over five weeks by the hour."""
    return np.cumsum(np.random.default_rng(0).normal(0, 1, (5 * WEEK, 3)), axis=0).astype(np.float32)


def stored(values: np.ndarray, folder) -> TrafficStore:
    raw = generate(num_sensors=values.shape[1], num_steps=len(values), interval_s=HOUR, seed=2)
    return write_traffic(replace(raw, series=replace(raw.series, values=values)), folder / "store")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TrafficStore:
    """Five weeks by the hour; some readings are missing, one hour of the week always is."""
    values = weekly()
    values[np.random.default_rng(4).random(values.shape) < 0.05] = np.nan
    values[30::WEEK] = np.nan
    return stored(values, tmp_path_factory.mktemp("weekly"))


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
    times = HOUR * np.arange(num_steps)
    best = preferred(values, times, interval_s=HOUR, horizon=horizon, validation=validation)
    return best.season if best.over_last < 1 else "none"


@pytest.mark.parametrize("at_once", [2**24, 1])
def test_averages_are_those_of_a_loop(store: TrafficStore, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(seasons, "_AT_ONCE", at_once)
    num_train, times = store.metadata.num_train_steps, np.asarray(store.timestamps)
    values = store.values[:num_train]
    made = {season: averages(values, times[:num_train], season, HOUR) for season in ("day", "week")}
    assert made["day"].shape == (DAY, 3)
    assert made["week"].shape == (WEEK, 3)
    for step in (0, 29, 30, 31, 700):
        for season, seconds in (("week", WEEK * HOUR), ("day", DAY * HOUR)):
            same = (times[:num_train] - times[step]) % seconds == 0
            if np.isnan(values[same]).all():  # the hour that is never read: of that time of the day
                same = (times[:num_train] - times[step]) % (DAY * HOUR) == 0
            wanted = np.nanmean(values[same].astype(np.float64), axis=0)
            slot = slots(times[step : step + 1], season, HOUR)[0]
            np.testing.assert_allclose(made[season][slot], wanted, rtol=1e-6)


def test_what_forecasts_validation_best_is_preferred() -> None:
    assert preferred_of(weekly()) == "week"
    assert preferred_of(np.tile(weekly(DAY), (35, 1))) == "day", "the mean of more days has less noise"
    assert preferred_of(wandering()) == "none", "the last reading is nearer"


def test_no_season_is_preferred_that_was_not_seen_twice() -> None:
    assert preferred_of(weekly(2 * WEEK)) in ("none", "day")
    assert preferred_of(weekly(2 * DAY)) == "none"
    unknown = weekly()
    unknown[int(0.7 * len(unknown)) :] = np.nan
    assert preferred_of(unknown) == "none"


def test_a_gap_in_time_makes_no_last_reading() -> None:
    """Two readings a day, each near the one before, which is no last one, for a gap lies between: means are left."""
    values = wandering()[:80, :1]
    times = (np.arange(40)[:, None] * DAY + np.array([8, 20])).ravel() * HOUR
    best = preferred(values, times, interval_s=HOUR, horizon=1, validation=(56, 64))
    assert (best.season, best.over_last) == ("day", 0)


def test_a_planned_season_is_named_or_refused(store: TrafficStore, tmp_path) -> None:
    for model in MODELS:
        assert plan_of(store, model).task.season == "week"
    noisy = stored(np.random.default_rng(0).normal(50, 10, (5 * WEEK, 3)).astype(np.float32), tmp_path / "noisy")
    assert [plan_of(noisy, model).task.season for model in MODELS] == ["none", "day"], "means are better by √2"
    assert plan_of(store, season="none").task.season == "none"
    assert plan_of(store, season="day").task.season == "day"
    walk = stored(wandering(), tmp_path / "walk")
    assert [plan_of(walk, model).task.season for model in MODELS] == ["last", "last"]
    waves = 50 + 20 * np.sin(np.arange(5 * WEEK)[:, None] * 2 * np.pi / DAY + np.arange(3))
    noise = np.random.default_rng(0).normal(0, 15, (5 * 7, 1)).repeat(DAY, axis=0)  # of a day
    smooth = stored((waves + noise).astype(np.float32), tmp_path / "smooth")
    close = plan_of(smooth, "dcrnn", graph="identity", horizon=1, history=6).task
    assert close.dataset.season_error > 2, "the last reading is near"
    assert close.season == "none", "and no level wanders"
    short = stored(weekly(2 * WEEK), tmp_path / "short")
    with pytest.raises(UserError, match=r"dataset.season=week, and 235 training steps of 3600 s are less than two"):
        plan_of(short, season="week")


def test_means_are_those_of_the_very_time(store: TrafficStore) -> None:
    task = built(plan_of(store))
    assert task.model.season is not None
    starts = np.array([400, 7, 24, 160, 200])
    batch = task.windows.batch(EvaluationSeeds(SeedIds(starts)))
    means = task.model.season(batch.clock, 4)
    num_train, times = store.metadata.num_train_steps, np.asarray(store.timestamps)
    table = averages(store.values[:num_train], times[:num_train], "week", HOUR)
    ahead = times[starts[:, None] + np.arange(10)]
    np.testing.assert_array_equal(means, table[slots(ahead, "week", HOUR)])


def test_no_mean_is_missing(tmp_path) -> None:
    values = weekly()
    values[:, 1] = np.nan
    values[5::DAY, 0] = np.nan
    store = stored(values, tmp_path)
    means = SeasonMeans.of(store, "week").means
    assert not means.isnan().any()
    np.testing.assert_allclose(means[:, 1], store.metadata.mean, rtol=1e-6)
    slot = slots(np.asarray(store.timestamps)[5:6], "week", HOUR)[0]
    np.testing.assert_allclose(means[slot, 0], np.nanmean(means[np.arange(WEEK) % DAY != slot % DAY, 0]), rtol=1e-4)


@pytest.mark.parametrize(("season", "baseline"), [("week", "historical_average"), ("last", "last_value")])
@pytest.mark.parametrize("model", MODELS)
def test_a_model_begins_as_a_baseline(store: TrafficStore, model: str, season: str, baseline: str) -> None:
    plan = plan_of(store, model, season=season)
    (score,) = score_baselines(plan.task, [baseline], ["val"])
    assert score.values is not None
    assert built(plan).evaluate("val").values == pytest.approx(score.values, rel=1e-6)


def test_the_last_reading_is_the_last_that_is_known() -> None:
    of_window = [[1.0, nan, nan], [2.0, nan, 7.0], [nan, nan, nan]]  # a row is a step, a column a sensor
    history = torch.tensor([of_window, [[0.0, 3.0, 4.0]] * 3])
    wanted = [[[2.0, 9.0, 7.0]], [[0.0, 3.0, 4.0]]]
    assert last_readings(history, torch.tensor(9.0)).tolist() == wanted


def test_levels_are_no_input_of_what_learns_the_difference_to_the_last_reading(store: TrafficStore) -> None:
    """Readings that are 1,000 higher are forecast 1,000 higher, but for the rounding of such sums."""
    plan = plan_of(store, "dcrnn", season="last", graph="identity")
    model = built(plan).model.eval()
    torch.nn.init.constant_(model.net.projection.weight, 0.3)
    readings = torch.from_numpy(weekly(10)).unsqueeze(0)
    clock = torch.zeros(1, 6, 2)
    low, high = (model(WindowBatch(EvaluationSeeds(SeedIds(np.zeros(1))), readings + by, clock)) for by in (0, 1000))
    assert (low - readings[:, 5:6]).abs().min() > 1e-2
    assert (high - low - 1000).abs().max() < 50 * 1100 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("model", MODELS)
def test_every_weight_learns_from_the_second_step_on(store: TrafficStore, model: str) -> None:
    """The first step moves the last layer alone, for it begins at 0. Means stay."""
    task = built(plan_of(store, model))
    assert task.model.season is not None
    means = task.model.season.means.clone()
    batch = next(iter(task.batches(0, 0)))
    learnt = {name: each for name, each in task.model.named_parameters() if each.requires_grad}
    optimizer = torch.optim.SGD(learnt.values(), 0.01)
    for _ in range(2):
        optimizer.zero_grad()
        task.loss_sum(batch).backward()
        optimizer.step()
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in learnt.values())
    assert torch.equal(task.model.season.means, means)


@pytest.mark.parametrize("season", ["week", "last"])
@pytest.mark.parametrize("model", MODELS)
def test_outside_training_it_needs_readings_and_times_alone(store: TrafficStore, model: str, season: str) -> None:
    task = built(plan_of(store, model, season=season))
    with torch.no_grad():
        for parameter in task.model.net.parameters():
            parameter.add_(0.05)
    options = {"history": 6, "horizon": 4, "num_sensors": 3, "is_zero_missing": False}
    starts = task.windows.of("test")[:5]
    rows = starts[:, None] + np.arange(6)
    readings, times = torch.from_numpy(store.values[rows]), torch.from_numpy(store.timestamps[rows])
    with torch.no_grad():
        wanted = task.model.eval()(task.windows.batch(EvaluationSeeds(SeedIds(starts))))
        assert torch.equal(TrafficForecaster(task.model, **options).eval()(readings, times), wanted)


@pytest.mark.parametrize("season", ["week", "last"])
@pytest.mark.parametrize("model", MODELS)
def test_planned_sizes_are_those_of_the_model(store: TrafficStore, model: str, season: str) -> None:
    plan = plan_of(store, model, season=season)
    trained = sum(each.numel() for each in built(plan).model.parameters() if each.requires_grad)
    assert modelled(plan).num_parameters == trained


def test_weights_of_another_season_compute_otherwise(store: TrafficStore) -> None:
    """By the same tensors, if it is none or the last reading."""
    there, here = (plan_of(store, "dcrnn", graph="identity", season=season) for season in ("last", "none"))
    assert other_computation(computed_with_weights(there), here) == ['season is "last" there and "none" here']


def test_others_sensors_are_refused(store: TrafficStore, tmp_path) -> None:
    own = plan_of(store, "dcrnn", graph="identity").task
    other = generate(num_sensors=3, num_steps=5 * WEEK, interval_s=HOUR, seed=2)
    named = replace(other, series=replace(other.series, sensor_ids=("x", "y", "z")), unit=store.metadata.unit)
    others = write_traffic(named, tmp_path / "store")
    with pytest.raises(UserError, match=r"dataset.season=week knows the sensors of"):
        Traffic.on_other_data(own, others)
    of_any = plan_of(store, "dcrnn", graph="identity", season="last").task
    assert Traffic.on_other_data(of_any, others).season == "last"
