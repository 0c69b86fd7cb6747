"""Errors of a forecast: sums per horizon that any number of ranks can add up, then masked MAE, RMSE and MAPE."""

import torch
from torch import Tensor

from graphmill.base.errors import UserError

_ROWS = 4  # of a tally: |error|, error², |error| / reading, readings
MINUTES_SHOWN = (15, 30, 60)


def tally(forecasts: Tensor, targets: Tensor, is_known: Tensor) -> Tensor:
    """Sums over windows and sensors of what is known, float64 [4, horizon] on the CPU.

    `forecasts`, `targets` [num_windows, horizon, num_sensors] in the unit of the data; rows are the sums of |error|,
    error², |error| / reading, and how many readings there were. Missing readings do not count.
    """
    error = torch.where(is_known, forecasts - targets, 0.0).double()
    relative = error.abs() / torch.where(is_known, targets, 1.0).double().abs()
    rows = (error.abs(), error.square(), relative, is_known.double())
    return torch.stack([row.sum(dim=(0, 2)) for row in rows]).cpu()


def empty_tally(horizon: int) -> Tensor:
    """The tally of nothing."""
    return torch.zeros(_ROWS, horizon, dtype=torch.float64)


def measures(total: Tensor, interval_s: int) -> dict[str, float]:
    """Masked errors of tallies added up: `mae`, `rmse` (unit of the data) and `mape` (%), overall and by horizon.

    A horizon is named by its time if a step ends there (`mae_15min`); if none does, the first step is shown
    (`mae_step1`).
    """
    values = {f"{name}": value for name, value in _errors(total.sum(dim=1)).items()}
    for label, column in horizons(total.shape[1], interval_s):
        values |= {f"{name}_{label}": value for name, value in _errors(total[:, column]).items()}
    return values


def horizons(horizon: int, interval_s: int) -> list[tuple[str, int]]:
    """What is reported separately: (label, decoder step counted from 0)."""
    timed = [
        (f"{minutes}min", minutes * 60 // interval_s - 1) for minutes in MINUTES_SHOWN if minutes * 60 % interval_s == 0
    ]
    shown = [(label, column) for label, column in timed if 0 <= column < horizon]
    return shown or [("step1", 0)]


def _errors(sums: Tensor) -> dict[str, float]:
    absolute, squared, relative, count = (float(each) for each in sums)
    if count == 0:
        raise UserError("a split has no reading to judge by", fix="give readings of more time")
    return {"mae": absolute / count, "rmse": (squared / count) ** 0.5, "mape": 100 * relative / count}
