"""Seeds that learn nothing: zero, row minima, column minima and then row minima; and the optimal potentials."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from graphmill.graph.splits import Split
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.assignment.data.batches import PreparedInstance
from graphmill.tasks.assignment.data.store import AssignmentStore
from graphmill.tasks.assignment.nn.metrics import Vector, column_potentials, judged, row_potentials
from graphmill.tasks.assignment.page import COLUMN_REDUCED, ORACLE, ROW_MINIMA, ZERO, AssignmentPlan
from graphmill.tasks.baselines import BaselineScore


def score(
    task_plan: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool
) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of assignment, one instance in memory at a time."""
    del bounded  # all of it is little work
    assert isinstance(task_plan, AssignmentPlan)
    store = AssignmentStore.open(Path(task_plan.dataset.path))
    sizes = [bucket.size for bucket in task_plan.dataset.buckets if bucket.size not in task_plan.replay.sizes]
    for split in splits:
        found = {name: list[tuple[float, float, bool]]() for name in names}
        for i in store.instances(split, sizes, task_plan.families):
            problem = PreparedInstance.of(store, int(i))
            for name in names:
                one = judged(problem.costs, *seed_of(name, problem), problem.optimum, problem.u)
                found[name].append((one.gap, one.u_mae, one.is_feasible))
            store.evict(int(i))
        for name in names:
            gap, u_mae, feasible = np.array(found[name], dtype=np.float64).reshape(-1, 3).T
            values = {"dual_gap": np.median(gap), "u_mae": u_mae.mean(), "feasible": feasible.mean()}
            yield BaselineScore(name, split, {key: float(value) for key, value in values.items()})


def seed_of(name: str, problem: PreparedInstance) -> tuple[Vector, Vector]:
    """Potentials of the rows and the columns by one of the baselines."""
    costs = problem.costs
    zeros = np.zeros(len(costs))
    if name == ZERO.name:
        return zeros, column_potentials(costs, zeros)
    if name == ROW_MINIMA.name:
        u = row_potentials(costs, np.zeros(costs.shape[1]))
        return u, column_potentials(costs, u)
    if name == COLUMN_REDUCED.name:
        v = column_potentials(costs, zeros)
        return row_potentials(costs, v), v
    if name == ORACLE.name:
        return np.asarray(problem.u), np.asarray(problem.v)
    raise ValueError(f"{name} is no baseline of this task")
