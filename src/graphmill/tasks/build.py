"""From a plan to the task that it is of."""

from typing import Any

from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.stores import load
from graphmill.tasks.task import AnyTask


def build_task(plan: Plan, group: Group) -> AnyTask:
    """One rank's share of the plan's problem. Only the code of that task is imported."""
    task: AnyTask = task_class(plan)(plan, plan.task, group)
    return task


def task_class(plan: Plan) -> Any:  # noqa: ANN401  # a class of tasks; what else it offers: tasks.task.UsedLater
    """The class of the plan's tasks."""
    return load(plan.kind.task)
