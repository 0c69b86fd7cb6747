"""User-defined losses and measures of forecasts, in the unit of the data."""

import torch

from graphmill.spec.experiment import CustomLossSpec
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.custom_loss import CustomLoss
from graphmill.tasks.custom_measures import CustomMeasures
from graphmill.tasks.traffic.page import TrafficPlan


def custom_loss(plan: Plan, own: TrafficPlan, group: Group) -> CustomLoss | None:
    """Custom loss of forecasts and readings [num_windows, horizon, num_sensors]; None: the plan has a built-in loss."""
    if not isinstance(own.loss, CustomLossSpec):
        return None
    return CustomLoss.of(own.loss, seed=plan.seed, rank=group.rank, device=group.device)


def check_judgement(plan: Plan, own: TrafficPlan) -> None:
    """Try a user-defined loss and measures on two made-up windows; `UserError` where one does not fit."""
    device = torch.device(plan.device)
    loss, measures = custom_loss(plan, own, Group(0, 1, device)), CustomMeasures.of(plan)
    forecasts, readings = torch.rand(2, 2, own.horizon, own.dataset.num_sensors, device=device) * 50 + 10
    if loss is not None:
        loss.try_out(forecasts, readings)
    readings[:, :, ::2] = torch.nan  # missing
    measures.of_part(forecasts, readings)
