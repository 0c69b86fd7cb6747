"""A forecaster outside training: called as `model(readings, times)`, in the unit of the data, or with a season
as `model(readings, times, before)`.
"""

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.base.errors import InvalidInputError
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.tasks.traffic.data.windows import WindowBatch, clock_of
from graphmill.tasks.traffic.nn.model import Forecaster
from graphmill.tasks.traffic.page import Season


class TrafficForecaster(nn.Module):
    """A trained forecaster with its scale and its road graph.

    On the CPU in one thread its forecasts are those of `graphmill evaluate`, bit for bit.
    """

    def __init__(
        self,
        model: Forecaster,
        *,
        history: int,
        horizon: int,
        num_sensors: int,
        season: Season = "none",
        is_zero_missing: bool,
    ) -> None:
        """`is_zero_missing`: as the data that it was trained on were prepared (missing=zeros)."""
        super().__init__()
        self.season: Season = season
        self.model, self.history, self.horizon, self.num_sensors = model, history, horizon, num_sensors
        self.is_zero_missing = is_zero_missing

    def forward(self, readings: Tensor, times: Tensor, before: Tensor | None = None) -> Tensor:
        """Forecasts float32 [num_windows, horizon, num_sensors] in the unit of the data.

        Args:
            readings: float32 [num_windows, history, num_sensors] in the unit of the data; NaN: missing; so is
                0, if it was in the data that the model was trained on (missing=zeros).
            times: int64 [num_windows, history]: when they were read, seconds since 1970 in local time.
            before: float32 [num_windows, history + horizon, num_sensors]: where the model has a season, the readings a
                day or a week before each of the history and of the steps to be forecast; missing as in `readings`.

        Raises:
            ValueError: a shape does not fit.
        """
        wanted = (self.history, self.num_sensors)
        if readings.dim() != 3 or readings.shape[1:] != wanted:
            raise InvalidInputError(
                f"readings is {list(readings.shape)}, not [num_windows, {wanted[0]}, {wanted[1]}]",
                fix=f"give {wanted[0]} readings of each of the {wanted[1]} sensors it was trained on",
            )
        if times.shape != readings.shape[:2]:
            raise InvalidInputError(
                f"times is {list(times.shape)}, not {list(readings.shape[:2])}", fix="give the time of each reading"
            )
        self._check_before(before, len(readings))
        known = self._with_missing(readings)
        ahead = known.new_full((len(readings), self.horizon, self.num_sensors), torch.nan)  # to be forecast: not known
        clock = torch.from_numpy(clock_of(times.cpu().numpy())).to(readings.device)
        seeds = EvaluationSeeds(SeedIds(np.arange(len(readings))))
        earlier = None if before is None else self._with_missing(before)
        forecasts: Tensor = self.model(WindowBatch(seeds, torch.cat([known, ahead], dim=1), clock, earlier))
        return forecasts

    def _with_missing(self, readings: Tensor) -> Tensor:
        known = readings.float()
        return torch.where(known == 0, torch.nan, known) if self.is_zero_missing else known

    def _check_before(self, before: Tensor | None, num_windows: int) -> None:
        wanted = [num_windows, self.history + self.horizon, self.num_sensors]
        if self.season == "none" and before is not None:
            raise InvalidInputError("the model has no season, and before is given", fix="leave before out")
        if self.season != "none" and (before is None or list(before.shape) != wanted):
            given = "not given" if before is None else str(list(before.shape))
            raise InvalidInputError(
                f"the model adds to the readings a {self.season} before, and before is {given}",
                fix=f"give before {wanted}: the readings a {self.season} before each of the history and the horizon",
            )
