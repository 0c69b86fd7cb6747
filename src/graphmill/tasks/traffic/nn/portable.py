"""A forecaster outside training: called as `model(readings, times)`, in the unit of the data."""

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.base.errors import InvalidInputError
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.tasks.traffic.data.windows import WindowBatch, clock_of
from graphmill.tasks.traffic.nn.model import Forecaster


class TrafficForecaster(nn.Module):
    """A trained forecaster with its scale and its road graph.

    On the CPU in one thread its forecasts are those of `graphmill evaluate`, bit for bit.
    """

    def __init__(
        self, model: Forecaster, *, history: int, horizon: int, num_sensors: int, is_zero_missing: bool
    ) -> None:
        """`is_zero_missing`: as the data that it was trained on were prepared (missing=zeros)."""
        super().__init__()
        self.model, self.history, self.horizon, self.num_sensors = model, history, horizon, num_sensors
        self.is_zero_missing = is_zero_missing

    def forward(self, readings: Tensor, times: Tensor) -> Tensor:
        """Forecasts float32 [num_windows, horizon, num_sensors] in the unit of the data.

        Args:
            readings: float32 [num_windows, history, num_sensors] in the unit of the data; NaN: missing; so is
                0, if it was in the data that the model was trained on (missing=zeros).
            times: int64 [num_windows, history]: when they were read, seconds since 1970 in local time.

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
        known = readings.float()
        if self.is_zero_missing:
            known = torch.where(known == 0, torch.nan, known)
        ahead = known.new_full((len(readings), self.horizon, self.num_sensors), torch.nan)  # to be forecast: not known
        clock = torch.from_numpy(clock_of(times.cpu().numpy())).to(readings.device)
        seeds = EvaluationSeeds(SeedIds(np.arange(len(readings))))
        forecasts: Tensor = self.model(WindowBatch(seeds, torch.cat([known, ahead], dim=1), clock))
        return forecasts
