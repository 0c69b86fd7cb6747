"""What a model adds its forecasts to: mean readings by time of the day or week, or the last readings."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmill.tasks.traffic.data.seasons import averages
from graphmill.tasks.traffic.data.store import TrafficStore
from graphmill.tasks.traffic.page import DAY_S, SEASON_S, WEEK_DAYS, Season


def last_readings(history: Tensor, otherwise: Tensor) -> Tensor:
    """Last known reading of each sensor [num_windows, 1, num_sensors].

    Args:
        history: [num_windows, history, num_sensors]; NaN: missing.
        otherwise: of a sensor without a reading in its window.
    """
    numbers = torch.arange(1, history.shape[1] + 1, dtype=torch.int32, device=history.device).view(1, -1, 1)
    last = (numbers * ~history.isnan()).amax(dim=1, keepdim=True).long()  # 0: none is known
    return torch.where(last > 0, history.gather(1, (last - 1).clamp(min=0)), otherwise)


class SeasonMeans(nn.Module):
    """Mean reading of each sensor in each step of a day or week, over the training steps.

    `means` [num_slots, num_sensors] is a frozen parameter, as the scale of a `Forecaster` is.
    """

    def __init__(self, means: Tensor, season: Season, interval_s: int) -> None:
        super().__init__()
        self.means = nn.Parameter(means, requires_grad=False)
        self.season_s, self.interval_s = SEASON_S[season], interval_s

    @classmethod
    def of(cls, store: TrafficStore, season: Season) -> "SeasonMeans":
        """Means of a store; in steps that were never read the mean of the sensor, or of all."""
        known = store.metadata
        train = slice(0, known.num_train_steps)
        means = averages(store.values[train], np.asarray(store.timestamps)[train], season, known.interval_s)
        of_sensors = torch.from_numpy(means).nanmean(dim=0).nan_to_num(nan=known.mean)
        table = torch.from_numpy(means)
        return cls(torch.where(table.isnan(), of_sensors, table), season, known.interval_s)

    def forward(self, clock: Tensor, horizon: int) -> Tensor:
        """Mean readings of the history and of the horizon [num_windows, history + horizon, num_sensors].

        `clock` [num_windows, history, 2]: time of day and weekday of each step of the history, each in [0, 1).
        """
        first = (clock[:, 0] * clock.new_tensor([DAY_S, WEEK_DAYS])).round().long()  # float32 holds a second of a day
        ahead = torch.arange(clock.shape[1] + horizon, device=clock.device) * self.interval_s
        seconds = first[:, :1] + first[:, 1:] * DAY_S + ahead
        return F.embedding(seconds % self.season_s // self.interval_s, self.means)
