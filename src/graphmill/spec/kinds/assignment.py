"""Assignment: which column is each row of a matrix of costs to take, so that the sum is least?"""

from typing import Literal

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.assignment_data import (
    COUNTS,
    DATASETS,
    KIND_NAME,
    AssignmentDatasetSpec,
    AssignmentInfo,
    AssignmentPrepareOptions,
)
from graphmill.spec.columns import Measure
from graphmill.spec.experiment import Experiment, TaskSpec, TrainSpec
from graphmill.spec.kinds.kind import Kind, Sizes, StepShape, TaskPlan


class AssignmentTaskSpec(TaskSpec):
    """The learning problem."""

    kind: Literal["assignment"] = "assignment"


class AssignmentExperiment(Experiment):
    """Which potentials are optimal?"""

    task: AssignmentTaskSpec = AssignmentTaskSpec()
    dataset: AssignmentDatasetSpec = AssignmentDatasetSpec()
    model: Spec = Spec()
    train: TrainSpec = TrainSpec()


class AssignmentPlan(TaskPlan):
    """What only the ranks need."""

    kind: Literal["assignment"] = "assignment"
    dataset: AssignmentInfo


def resolve(experiment: AssignmentExperiment, dataset: AssignmentInfo) -> AssignmentPlan:
    """Its part of a plan."""
    del experiment, dataset
    raise UserError("models of assignment problems are not built yet", fix="prepare and inspect data only")


def sizes(plan: AssignmentPlan, step: StepShape) -> Sizes:
    """Unknown without a model."""
    del plan, step
    return Sizes(None)


KIND = Kind(
    name=KIND_NAME,
    seeds_are="instances",
    measures=(Measure("dual_gap", "dual gap", higher_is_better=False, about="of the optimum that the duals miss"),),
    experiment=AssignmentExperiment,
    info=AssignmentInfo,
    plan=AssignmentPlan,
    resolve=resolve,
    sizes=sizes,
    counts=COUNTS,
    datasets=DATASETS,
    prepare_options=AssignmentPrepareOptions,
    prepare="graphmill.tasks.assignment.prepare:prepare_asked",
    merges=True,
    recognise="graphmill.tasks.assignment.sources:holds_problems",
    raw="graphmill.tasks.assignment.files:ProblemFiles",
    layouts_out={"hdf5": "graphmill.tasks.assignment.files:write_hdf5"},
    store="graphmill.tasks.assignment.store:AssignmentStore",
    task="graphmill.tasks.assignment.task:Assignment",
)
