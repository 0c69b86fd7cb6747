"""Build the task that a plan is of."""

from collections.abc import Sequence
from typing import Any

from graphmill.sample.service.served import SamplerClient
from graphmill.spec.kinds.extras import Sampling
from graphmill.spec.plan import Plan
from graphmill.spec.roles import RoleRank
from graphmill.sync.group import Group
from graphmill.tasks.stores import load
from graphmill.tasks.task import AnyTask, ServesBatches


def build_task(plan: Plan, group: Group, served: SamplerClient | None = None) -> AnyTask:
    """One rank's share of the plan's problem. Only the code of that task is imported. `served`: by a sampler."""
    task: AnyTask = task_class(plan)(plan, plan.task, group, *(() if served is None else (served,)))
    return task


def build_server(plan: Plan, group: Group, trainers: Sequence[int], first: RoleRank) -> ServesBatches:
    """A sampler's share of it, for the trainers that it serves; `first`: the rank of the first of all trainers.

    Plans of kinds that have none are refused (`spec.plan.refuse_unfit_for_roles`).
    """
    sampled = plan.kind.extra(Sampling)
    assert sampled is not None
    server: ServesBatches = load(sampled.serve)(plan, group, trainers, first)
    return server


def task_class(plan: Plan) -> Any:  # noqa: ANN401  # a class of tasks; what else it offers: tasks.task.UsedLater
    """The class of the plan's tasks."""
    return load(plan.kind.task)
