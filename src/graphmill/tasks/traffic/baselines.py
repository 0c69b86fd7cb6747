"""Forecasts that learn nothing or next to nothing: last value, seasonal naive, means of history, autoregression.

Scored on the windows, masks and measures of `Traffic.evaluate`. Where a missing reading would be repeated, the last
reading of the window's history takes its place, and where that has none, the mean of the training steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.graph.splits import Split
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import BaselineScore
from graphmill.tasks.traffic.data.seasons import averages, slots
from graphmill.tasks.traffic.data.store import TrafficStore
from graphmill.tasks.traffic.data.windows import TrafficWindows, WindowBatch
from graphmill.tasks.traffic.nn.metrics import empty_tally, measures, tally
from graphmill.tasks.traffic.nn.season import last_readings
from graphmill.tasks.traffic.page import (
    DAY_BEFORE,
    DAY_S,
    HISTORICAL_AVERAGE,
    LAST_VALUE,
    LINEAR_AUTOREGRESSION,
    SEASON_S,
    WEEK_BEFORE,
    TrafficPlan,
)

_WINDOWS: Final = 8192  # of training at most, evenly spread: hundreds for each coefficient
_AT_ONCE: Final = 2**24  # numbers of a design matrix in memory together
_RIDGE: Final = 1e-6  # of scaled readings, times the windows: a sensor that always reads the same has an answer
_BATCH = 256  # windows in memory together
_SEASONS_S = {DAY_BEFORE.name: SEASON_S["day"], WEEK_BEFORE.name: SEASON_S["week"]}


@dataclass(frozen=True, slots=True)
class LinearAutoregression:
    """Coefficients of the scaled history and of 1 for each sensor and step ahead."""

    coefficients: Tensor  # float64 [num_sensors, history + 1, horizon]
    mean: float
    std: float

    @classmethod
    def fitted(cls, windows: TrafficWindows) -> "LinearAutoregression":
        """Fitted to training windows; targets that are missing do not count."""
        known, starts = windows.store.metadata, windows.of("train")
        starts = starts[:: -(-len(starts) // _WINDOWS)]
        at_once = max(1, _AT_ONCE // (len(starts) * (windows.history + 1)))
        parts = []
        for begin in range(0, known.num_sensors, at_once):
            sensors = slice(begin, min(begin + at_once, known.num_sensors))
            readings = windows.values[:, sensors][starts[:, None] + np.arange(windows.length)]
            scaled = (torch.from_numpy(readings).double() - known.mean) / known.std
            x = _design(scaled[:, : windows.history])
            parts.append(_least_squares(x, scaled[:, windows.history :].permute(2, 0, 1)))
        return cls(torch.cat(parts), known.mean, known.std)

    def of(self, batch: WindowBatch, last: Tensor) -> Tensor:
        """Forecasts float32 [num_windows, horizon, num_sensors]."""
        del last  # a missing reading is the one before it already
        history = batch.readings[:, : batch.clock.shape[1]]
        forecasts = torch.bmm(_design((history.double() - self.mean) / self.std), self.coefficients)
        return (forecasts.permute(1, 2, 0) * self.std + self.mean).float()


def _design(history: Tensor) -> Tensor:
    """[num_sensors, num_windows, history + 1] of scaled readings [num_windows, history, num_sensors], and ones.

    A missing reading is the last one before it, the first ones 0, the mean.
    """
    steps = torch.arange(1, history.shape[1] + 1).view(1, -1, 1)
    latest = (~history.isnan() * steps).cummax(dim=1).values
    filled = torch.where(latest > 0, history.gather(1, (latest - 1).clamp(min=0)), 0.0)
    return torch.cat([filled, torch.ones_like(filled[:, :1])], dim=1).permute(2, 0, 1).contiguous()


def _least_squares(x: Tensor, y: Tensor) -> Tensor:
    """[num_sensors, history + 1, horizon] for x [num_sensors, num_windows, history + 1], y [.., num_windows, horizon].

    By the normal equations of each step ahead, over the windows where it is known.
    """
    ridge = _RIDGE * x.shape[1] * torch.eye(x.shape[2], dtype=x.dtype)
    known, y = ~y.isnan(), y.nan_to_num(0.0)
    all_known = bool(known.all())
    squares = x.mT @ x if all_known else None
    columns = []
    for step in range(y.shape[2]):
        masked = x if all_known else x * known[:, :, step, None]
        products = squares if squares is not None else masked.mT @ x
        columns.append(torch.linalg.solve(products + ridge, masked.mT @ y[:, :, step, None]))
    return torch.cat(columns, dim=2)


def score(
    task_plan: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool
) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of traffic, one batch of windows in memory at a time."""
    del bounded  # all of it is little work
    assert isinstance(task_plan, TrafficPlan)
    windows = TrafficWindows(TrafficStore.open(Path(task_plan.dataset.path)), task_plan.history, task_plan.horizon)
    for split in splits:
        usable = {}
        for name in names:
            forecast = _forecast(windows, name, split)
            if isinstance(forecast, str):
                yield BaselineScore(name, split, None, forecast)
            else:
                usable[name] = forecast
        yield from _scored(windows, usable, split)


def _scored(
    windows: TrafficWindows, forecasts: "dict[str, _Forecast | LinearAutoregression]", split: Split
) -> Iterator[BaselineScore]:
    starts = windows.of(split)
    totals = {name: empty_tally(windows.horizon) for name in forecasts}
    for begin in range(0, len(starts), _BATCH):
        batch = windows.batch(EvaluationSeeds(SeedIds(starts[begin : begin + _BATCH])))
        history = batch.readings[:, : windows.history]
        last = last_readings(history, history.new_tensor(windows.store.metadata.mean))
        for name, forecast in forecasts.items():
            totals[name] += tally(forecast.of(batch, last), batch.targets, batch.is_known)
    for name, total in totals.items():
        yield BaselineScore(name, split, measures(total, windows.store.metadata.interval_s))


@dataclass(frozen=True, slots=True)
class _Forecast:
    """`table` [num_rows, num_sensors], NaN where there is nothing; `row_of` [num_steps]: the row that forecasts a step,
    -1: none. Without a table: the last value.
    """

    windows: TrafficWindows
    row_of: NDArray[np.int64] | None = None
    table: NDArray[np.float32] | None = None

    def of(self, batch: WindowBatch, last: Tensor) -> Tensor:
        """[num_windows, horizon, num_sensors]; `last` [num_windows, 1, num_sensors] where the table has nothing."""
        if self.row_of is None or self.table is None:
            return last.expand_as(batch.targets)
        ahead = np.arange(self.windows.history, self.windows.length)
        rows = self.row_of[np.asarray(batch.seeds.ids)[:, None] + ahead]
        found = torch.from_numpy(self.table[rows])
        return torch.where(~found.isnan() & torch.from_numpy(rows >= 0).unsqueeze(2), found, last)


def _forecast(windows: TrafficWindows, name: str, split: Split) -> _Forecast | LinearAutoregression | str:
    """How `name` forecasts the windows of a split; or why it cannot."""
    match name:
        case LAST_VALUE.name:
            return _Forecast(windows)
        case HISTORICAL_AVERAGE.name:
            return _Forecast(windows, *_historical(windows.store))
        case LINEAR_AUTOREGRESSION.name:
            return LinearAutoregression.fitted(windows)
        case _:
            return _of_season(windows, _SEASONS_S[name], split)


def _of_season(windows: TrafficWindows, season_s: int, split: Split) -> _Forecast | str:
    known = windows.store.metadata
    times = np.asarray(windows.store.timestamps)
    if windows.horizon * known.interval_s > season_s:
        return "some forecasts are further ahead than that, and would read what they are to forecast"
    if times[windows.of(split)[0] + windows.history] - season_s < times[0]:
        return f"the readings begin less than {season_s // DAY_S} d before the {split} split"
    rows = np.searchsorted(times, times - season_s)
    rows[times[rows] != times - season_s] = -1
    if (rows < 0).all():
        return f"no two readings are {season_s // DAY_S} d apart"
    return _Forecast(windows, rows, windows.values)


def _historical(store: TrafficStore) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Mean reading of the training steps by sensor and time of the week; where there is none, by time of the day.

    `row_of` and `table` of a `_Forecast`.
    """
    known, times = store.metadata, np.asarray(store.timestamps)
    train = slice(0, known.num_train_steps)
    return slots(times, "week", known.interval_s), averages(store.values[train], times[train], "week", known.interval_s)
