"""From a plan to the task that it is of: a closed union and one `match` (house rule 7)."""

from typing import assert_never

from graphmill.spec.plan import NodeClassificationPlan, Plan, TrafficPlan
from graphmill.sync.group import Group
from graphmill.tasks.task import AnyTask


def build_task(plan: Plan, group: Group) -> AnyTask:
    """One rank's share of the plan's problem. Only the code of that task is imported."""
    match plan.task:
        case NodeClassificationPlan() as own:
            from graphmill.tasks.node_classification.task import NodeClassification

            return NodeClassification(plan, own, group)
        case TrafficPlan() as own:
            from graphmill.tasks.traffic.task import Traffic

            return Traffic(plan, own, group)
        case _:
            assert_never(plan.task)
