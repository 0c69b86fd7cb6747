"""From a plan to the task that it is of."""

from typing import cast

from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.stores import load
from graphmill.tasks.task import AnyTask


def build_task(plan: Plan, group: Group) -> AnyTask:
    """One rank's share of the plan's problem. Only the code of that task is imported."""
    return cast("AnyTask", load(plan.kind.task)(plan, plan.task, group))
