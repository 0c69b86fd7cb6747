"""STID (Shao et al., CIKM 2022, arXiv 2208.05233): forecasts without a graph, from the readings of a sensor and who it
is, what time of day it is, and which weekday.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.graph.keys import Purpose, key_of, keys_below
from graphmill.nn.operators import RELU, Activation, linear
from graphmill.tasks.traffic.page import DAY_S, INPUT_CHANNELS, WEEK_DAYS, num_inputs, slots_of

_NUM_PARTS = 4  # of the hidden state: readings, sensor, time of day, weekday


class Stid(nn.Module):
    """Readings of the last steps → readings of the next `horizon` steps, every sensor alone, with one set of weights.

    The hidden state [readings ; sensor ; time of day ; weekday] passes residual layers h + W₂ dropout(relu(W₁ h)).
    Inputs and outputs are scaled; `Forecaster` takes them back to the unit of the data. Beside the paper's inputs
    (reading, time of day, weekday of every step) a mark says where a reading is missing.
    """

    def __init__(
        self,
        *,
        num_sensors: int,
        interval_s: int,
        history: int,
        horizon: int,
        embed_dim: int,
        num_layers: int,
        dropout: float,
        seed: int,
        has_season: bool = False,
    ) -> None:
        """`has_season`: its inputs have one more channel, and it reads the means of what it forecasts."""
        super().__init__()
        self.interval_s, self.horizon, self.dropout, self.seed = interval_s, horizon, dropout, seed
        width = _NUM_PARTS * embed_dim
        self.sensors = nn.Parameter(torch.empty(num_sensors, embed_dim))
        self.times = nn.Parameter(torch.empty(slots_of("day", interval_s), embed_dim))
        self.weekdays = nn.Parameter(torch.empty(WEEK_DAYS, embed_dim))
        self.projection = nn.Linear(num_inputs(history, horizon, has_season=has_season), embed_dim)
        self.inner = nn.ModuleList(nn.Linear(width, width) for _ in range(num_layers))
        self.outer = nn.ModuleList(nn.Linear(width, width) for _ in range(num_layers))
        self.head = nn.Linear(width, horizon)
        self._reset_parameters()

    def forecast_zeros(self) -> None:
        """Let the first forecasts be 0."""
        nn.init.zeros_(self.head.weight)

    def _reset_parameters(self) -> None:
        """Xavier-uniform weights and embeddings, zero biases."""
        generator = torch.Generator().manual_seed(key_of(self.seed, Purpose.INITIAL_WEIGHTS) >> 1)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter, generator=generator)
            else:
                nn.init.zeros_(parameter)

    def forward(
        self, inputs: Tensor, windows: NDArray[Any], step: int = 0, means_ahead: Tensor | None = None
    ) -> Tensor:
        """Scaled forecasts [num_windows, horizon, num_sensors].

        `inputs` [num_windows, history, num_sensors, channels]; `windows` [num_windows]: first steps, which with the
        training step `step`, the layer, the sensor and the channel are what dropout is keyed by: so a mask is the same
        on any rank, for any number of ranks, after a resume. `means_ahead`: of the forecasts' shape; with a season.
        """
        num_windows, _, num_sensors, _ = inputs.shape
        read = inputs.transpose(1, 2).flatten(2)
        if means_ahead is not None:
            read = torch.cat([read, means_ahead.transpose(1, 2)], dim=2)
        readings = _linear(read.flatten(0, 1), self.projection)
        h = torch.cat([readings, self._identities(inputs[:, -1, 0, 2:INPUT_CHANNELS], num_sensors)], dim=1)
        rows = windows[:, None] * num_sensors + np.arange(num_sensors)
        for number, (inner, outer) in enumerate(zip(self.inner, self.outer, strict=True)):
            h = h + _linear(_linear(h, inner, self._activation(rows.ravel(), step, number)), outer)
        return _linear(h, self.head).view(num_windows, num_sensors, self.horizon).transpose(1, 2)

    def _identities(self, clock: Tensor, num_sensors: int) -> Tensor:
        """Sensor, time of day and weekday [num_windows * num_sensors, 3 * embed_dim] for the clock [num_windows, 2]."""
        seconds = (clock[:, 0] * DAY_S).round().long()  # float32 holds a second of a day: no step falls into another
        times = F.embedding(seconds // self.interval_s, self.times)
        weekdays = F.embedding((clock[:, 1] * WEEK_DAYS).round().long(), self.weekdays)
        of_window = torch.cat([times, weekdays], dim=1).unsqueeze(1).expand(-1, num_sensors, -1)
        of_sensor = self.sensors.unsqueeze(0).expand(len(clock), -1, -1)
        return torch.cat([of_sensor, of_window], dim=2).flatten(0, 1)

    def _activation(self, rows: NDArray[Any], step: int, layer: int) -> Activation:
        if not self.training or self.dropout == 0:
            return RELU
        keys = keys_below(key_of(self.seed, Purpose.DROPOUT, step, layer), rows)
        return Activation(torch.from_numpy(keys.view(np.int64)), self.dropout)


def _linear(x: Tensor, layer: nn.Module, activation: Activation | None = None) -> Tensor:
    assert isinstance(layer, nn.Linear)
    is_mixed = torch.is_autocast_enabled(x.device.type)
    return linear(x.to(torch.bfloat16) if is_mixed else x, layer.weight, layer.bias, activation)
