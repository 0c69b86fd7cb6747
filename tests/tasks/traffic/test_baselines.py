"""Naive forecasts against loops that say what they are."""

from pathlib import Path

import numpy as np
import pytest

from graphmill.tasks.baselines import score_at_start, score_baselines
from graphmill.tasks.traffic.data.generate import generate
from graphmill.tasks.traffic.data.prepare import prepare_traffic
from graphmill.tasks.traffic.data.store import TrafficStore, write_traffic
from graphmill.tasks.traffic.page import KIND, TrafficExperiment, TrafficPlan

DAY, WEEK = 86_400, 7 * 86_400
SEASONS = {"last_value": 0, "day_before": DAY, "week_before": WEEK}


def plan_of(store: TrafficStore, **dataset) -> TrafficPlan:
    asked = {"name": str(store.path), "history": 3, "horizon": 4, **dataset}
    experiment = TrafficExperiment.model_validate({"task": {"kind": "traffic"}, "dataset": asked})
    return KIND.resolve(experiment, store.info(experiment.dataset))


@pytest.fixture(scope="module")
def hourly(tmp_path_factory) -> TrafficStore:
    """Five weeks of three sensors, by the hour; a third of the readings is missing."""
    raw = generate(num_sensors=3, num_steps=5 * 7 * 24, interval_s=3600, missing_share=0.33, seed=2)
    return write_traffic(raw, tmp_path_factory.mktemp("hourly") / "store")


def repeated(store: TrafficStore, window: int, ahead: int, sensor: int, season_s: int) -> float:
    """What the reading is said to be `ahead` steps (from 0) after the history of a window."""
    values, times = store.values, store.timestamps.tolist()
    then = times[window + 3 + ahead] - season_s
    if season_s and then in times and not np.isnan(values[times.index(then), sensor]):
        return float(values[times.index(then), sensor])
    known = [values[window + step, sensor] for step in (2, 1, 0) if not np.isnan(values[window + step, sensor])]
    return float(known[0]) if known else np.float32(store.metadata.mean)


def windows(store: TrafficStore, split: str) -> range:
    num = len(store.timestamps) - 6
    ends = {"train": 0, "val": round(num * 0.7), "test": num - round(num * 0.2)}
    return range(ends[split], {"val": ends["test"], "test": num}[split])


@pytest.mark.parametrize("split", ["val", pytest.param("test", marks=pytest.mark.slow)])
def test_repeated_readings_are_those_of_a_loop(hourly, split):
    scores = {score.baseline: score.values for score in score_at_start(plan_of(hourly)) if score.split == split}
    assert list(scores) == list(SEASONS)
    for name, season_s in SEASONS.items():
        errors = [
            abs(repeated(hourly, window, ahead, sensor, season_s) - float(hourly.values[window + 3 + ahead, sensor]))
            for window in windows(hourly, split)
            for ahead in range(4)
            for sensor in range(3)
            if not np.isnan(hourly.values[window + 3 + ahead, sensor])
        ]
        assert scores[name]["mae"] == pytest.approx(np.mean(errors), rel=1e-6), name


def test_the_historical_average_is_the_mean_of_the_training_steps(hourly):
    (score,) = score_baselines(plan_of(hourly), ["historical_average"], ["test"])
    num_train, values, times = hourly.metadata.num_train_steps, hourly.values, hourly.timestamps
    errors = []
    for window in windows(hourly, "test"):
        for step in range(window + 3, window + 7):
            for sensor in np.flatnonzero(~np.isnan(values[step])):
                for season_s in (WEEK, DAY):
                    same = (times[:num_train] - times[step]) % season_s == 0
                    known = values[:num_train, sensor][same & ~np.isnan(values[:num_train, sensor])]
                    if len(known):
                        break
                errors.append(abs(known.mean(dtype=np.float64) - values[step, sensor]))
    assert score.values["mae"] == pytest.approx(np.mean(errors), rel=1e-6)


def test_what_the_series_does_not_have_is_said(store, hourly):
    """Two days of readings have no week before, and a day ahead the day before is not known yet."""
    found = {score.baseline: score for score in score_baselines(plan_of(store), list(SEASONS), ["test"])}
    assert found["week_before"].values is None
    assert "less than 7 d" in found["week_before"].why_not
    assert found["day_before"].values is not None
    (far,) = score_baselines(plan_of(hourly, horizon=25), ["day_before"], ["test"])
    assert "further ahead" in far.why_not
    assert [score.baseline for score in score_at_start(plan_of(store)) if score.split == "test"] == [
        "last_value",
        "day_before",
    ]


def test_a_missing_reading_is_not_repeated(shared: Path, tmp_path: Path):
    """METR-LA's first ten sensors. ../shared/data/README.md has the errors of the last row as it is, whose missing
    readings say 0 mph: 3.83, 4.80 and 6.36. Where the last row has a reading, they are 3.34, 3.95 and 5.01.
    """
    options = {"adjacency": str(shared / "adj_mx.pkl"), "unit": "mph"}
    store = prepare_traffic("metr", root=tmp_path, from_path=shared / "metr-la-10sensors.h5", options=options)
    (score,) = score_baselines(plan_of(store, history=12, horizon=12), ["last_value"], ["test"])
    found = [round(score.values[f"mae_{minutes}min"], 2) for minutes in (15, 30, 60)]
    assert found == [3.36, 3.98, 5.05]
