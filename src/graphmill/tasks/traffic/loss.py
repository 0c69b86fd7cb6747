"""A user-defined loss of forecasts, in the unit of the data."""

import torch

from graphmill.spec.experiment import CustomLossSpec
from graphmill.spec.kinds.traffic import TrafficPlan
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.custom_loss import CustomLoss


def custom_loss(plan: Plan, own: TrafficPlan, group: Group) -> CustomLoss | None:
    """Called with forecasts and readings [num_windows, horizon, num_sensors]; None: the plan has a built-in loss."""
    if not isinstance(own.loss, CustomLossSpec):
        return None
    return CustomLoss.of(own.loss, seed=plan.seed, rank=group.rank, device=group.device)


def check_loss(plan: Plan, own: TrafficPlan) -> None:
    """Try a user-defined loss on two made-up windows; `UserError` where it does not fit."""
    device = torch.device(plan.device)
    loss = custom_loss(plan, own, Group(0, 1, device))
    if loss is None:
        return
    forecasts, readings = torch.rand(2, 2, own.horizon, own.dataset.num_sensors, device=device) * 50 + 10
    loss.try_out(forecasts, readings)
