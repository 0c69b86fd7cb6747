"""Errors of a forecast: sums per horizon that any number of ranks can add up, then masked MAE, RMSE and MAPE.

Losses and measures of the user's own are in the unit of the data, too.
"""

import torch
from torch import Tensor

from graphmill.base.errors import UserError
from graphmill.spec.experiment import CustomLossSpec
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.custom_loss import CustomLoss
from graphmill.tasks.custom_measures import CustomMeasures
from graphmill.tasks.traffic.page import TrafficPlan

_ROWS = 5  # of a tally: |error|, error², |error| / |reading|, readings, readings that are not 0
MINUTES_SHOWN = (15, 30, 60)
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def tally(forecasts: Tensor, targets: Tensor, is_known: Tensor) -> Tensor:
    """Sums over windows and sensors of what is known, float64 [5, horizon] on the CPU.

    `forecasts`, `targets` [num_windows, horizon, num_sensors] in the unit of the data; rows are the sums of |error|,
    error², |error| / |reading|, how many readings there were, and how many that were not 0. Missing readings do not
    count, and an error relative to 0 is none.
    """
    error = torch.where(is_known, forecasts - targets, 0.0).double()
    is_some = is_known & (targets != 0)
    relative = torch.where(is_some, error.abs() / torch.where(is_some, targets, 1.0).double().abs(), 0.0)
    rows = (error.abs(), error.square(), relative, is_known.double(), is_some.double())
    return torch.stack([row.sum(dim=(0, 2)) for row in rows]).cpu()


def empty_tally(horizon: int) -> Tensor:
    """The tally of nothing."""
    return torch.zeros(_ROWS, horizon, dtype=torch.float64)


def measures(total: Tensor, interval_s: int) -> dict[str, float]:
    """Masked errors of tallies added up: `mae`, `rmse` (unit of the data) and `mape` (%), overall and by horizon.

    Every horizon is named by its steps and its time (`mae_3_steps_15min`). Those of the task's columns are there under
    the columns' names, too (`mae_15min`). There is no `mape` where every reading is 0.
    """
    values = _errors(total.sum(dim=1))
    columns = horizons(total.shape[1], interval_s)
    columns += [(by_steps(step, interval_s), step - 1) for step in range(1, total.shape[1] + 1)]
    for label, column in columns:
        values |= {f"{name}_{label}": value for name, value in _errors(total[:, column]).items()}
    return values


def by_steps(step: int, interval_s: int) -> str:
    """The name of a horizon: its steps, from 1, and its time in the largest unit of which it is a whole number."""
    seconds = step * interval_s
    unit, length_s = next((unit, length_s) for unit, length_s in _UNITS if seconds % length_s == 0)
    return f"{step}_{'step' if step == 1 else 'steps'}_{seconds // length_s}{unit}"


def horizons(horizon: int, interval_s: int) -> list[tuple[str, int]]:
    """What has columns of metrics.csv: (label, decoder step counted from 0)."""
    timed = [
        (f"{minutes}min", minutes * 60 // interval_s - 1) for minutes in MINUTES_SHOWN if minutes * 60 % interval_s == 0
    ]
    shown = [(label, column) for label, column in timed if 0 <= column < horizon]
    return shown or [("step1", 0)]


def _errors(sums: Tensor) -> dict[str, float]:
    absolute, squared, relative, count, num_some = (float(each) for each in sums)
    if count == 0:
        raise UserError("a split has no reading to judge by", fix="give readings of more time")
    mape = {"mape": 100 * relative / num_some} if num_some else {}
    return {"mae": absolute / count, "rmse": (squared / count) ** 0.5, **mape}


def custom_loss(plan: Plan, task_plan: TrafficPlan, group: Group) -> CustomLoss | None:
    """Custom loss of forecasts and readings [num_windows, horizon, num_sensors]; None: the plan has a built-in loss."""
    if not isinstance(task_plan.loss, CustomLossSpec):
        return None
    return CustomLoss.of(task_plan.loss, seed=plan.seed, rank=group.rank, device=group.device)


def check_judgement(plan: Plan, task_plan: TrafficPlan) -> None:
    """Try a user-defined loss and measures on two made-up windows; `UserError` where one does not fit."""
    device = torch.device(plan.device)
    loss, measures = custom_loss(plan, task_plan, Group(0, 1, device)), CustomMeasures.of(plan)
    forecasts, readings = torch.rand(2, 2, task_plan.horizon, task_plan.dataset.num_sensors, device=device) * 50 + 10
    if loss is not None:
        loss.try_out(forecasts, readings)
    readings[:, :, ::2] = torch.nan  # missing
    measures.of_part(forecasts, readings)
