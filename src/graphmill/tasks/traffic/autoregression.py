"""Linear autoregression: each sensor's next readings as a weighted sum of its last ones, fitted by least squares."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from graphmill.tasks.traffic.data.windows import TrafficWindows, WindowBatch

_WINDOWS: Final = 8192  # of training at most, evenly spread: hundreds for each coefficient
_AT_ONCE: Final = 2**24  # numbers of a design matrix in memory together
_RIDGE: Final = 1e-6  # of scaled readings, times the windows: a sensor that always reads the same has an answer


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
