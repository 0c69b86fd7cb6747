"""Forecasts that learn nothing or next to nothing: the last value, seasonal naive, the historical average, and linear
autoregression.

Scored on the windows, masks and measures of `Traffic.evaluate`. Where a missing reading would be repeated, the last
reading of the window's history takes its place, and where that has none, the mean of the training steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.graph.splits import Split
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import BaselineScore
from graphmill.tasks.traffic.autoregression import LinearAutoregression
from graphmill.tasks.traffic.data.seasons import averages, slots
from graphmill.tasks.traffic.data.store import TrafficStore
from graphmill.tasks.traffic.data.windows import TrafficWindows, WindowBatch
from graphmill.tasks.traffic.nn.metrics import empty_tally, measures, tally
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

_BATCH = 256  # windows in memory together
_SEASONS_S = {DAY_BEFORE.name: SEASON_S["day"], WEEK_BEFORE.name: SEASON_S["week"]}


def score(own: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of traffic, one batch of windows in memory at a time."""
    del bounded  # all of it is little work
    assert isinstance(own, TrafficPlan)
    windows = TrafficWindows(TrafficStore.open(Path(own.dataset.path)), own.history, own.horizon)
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
        last = _last_known(batch, windows.store.metadata.mean)
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


def _last_known(batch: WindowBatch, mean: float) -> Tensor:
    """The last reading of each window's history, [num_windows, 1, num_sensors]; `mean` where it has none."""
    history = batch.readings[:, : batch.clock.shape[1]]
    place = ~history.isnan() * torch.arange(1, history.shape[1] + 1).view(1, -1, 1)
    latest = place.amax(dim=1, keepdim=True)
    return torch.where(latest > 0, history.gather(1, (latest - 1).clamp(min=0)), mean)


def _historical(store: TrafficStore) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Mean reading of the training steps by sensor and time of the week; where there is none, by time of the day.

    `row_of` and `table` of a `_Forecast`.
    """
    known, times = store.metadata, np.asarray(store.timestamps)
    train = slice(0, known.num_train_steps)
    return slots(times, "week", known.interval_s), averages(store.values[train], times[train], "week", known.interval_s)
