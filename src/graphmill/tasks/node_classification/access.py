"""Which mini-batches a plan's ranks read, and how they may be sampled before. Nothing here needs torch."""

from pathlib import Path

from graphmill.access.presampled import epoch_source
from graphmill.access.spec import AccessSpec, GpuGraph
from graphmill.base.errors import UserError
from graphmill.sample.presampled.schedule import EpochSource
from graphmill.spec.device_memory import GIB
from graphmill.spec.node_models import reads_node_types
from graphmill.spec.plan import Plan
from graphmill.spec.sign import propagation_of
from graphmill.tasks.node_classification.page import NodeClassificationPlan
from graphmill.tasks.node_classification.parts import open_graph


def access_spec(plan: Plan, task_plan: NodeClassificationPlan) -> AccessSpec:
    """What the plan's model reads of its graph."""
    return AccessSpec(
        plan=plan,
        num_train=task_plan.dataset.num_train,
        num_features=task_plan.dataset.num_features,
        # Plans of before fan-outs were left out have some.
        fanouts=() if propagation_of(task_plan.model) else task_plan.num_neighbors,
        relation_fanouts=task_plan.relation_fanouts or (),
        resample=task_plan.resamples,
        undirected=task_plan.undirected,
        features=task_plan.features,
        edge_columns=task_plan.edge_columns,
        node_types=reads_node_types(task_plan.model),
        has_weighted_means=task_plan.has_weighted_means,
        partition=task_plan.partition,
        evaluates_whole=task_plan.evaluate_on == "whole_graph",
        edge_dropout=task_plan.edge_dropout,
        presampled=None if task_plan.presampled is None else Path(task_plan.presampled),
        propagation=propagation_of(task_plan.model),
        gpu=_gpu_graph(task_plan),
    )


def _gpu_graph(task_plan: NodeClassificationPlan) -> GpuGraph | None:
    if task_plan.gpu_graph_gib is None:
        return None
    num_bytes = int(task_plan.gpu_graph_gib * GIB)
    return GpuGraph(num_bytes, task_plan.gpu_draws or "measured", task_plan.gpu_rows)


def epochs_of(plan: Plan) -> EpochSource:
    """How the epochs of a plan are sampled; `UserError` if its data are not prepared."""
    task_plan = plan.task
    assert isinstance(task_plan, NodeClassificationPlan)
    if propagation_of(task_plan.model) is not None:
        raise UserError(
            f"model.kind is {task_plan.model.kind}, which samples nothing, so that there is nothing to sample before",
            fix="train it as it is, or set model.kind=graphsage",
        )
    task_plan.dataset.prepared_checksum  # noqa: B018  # raises where there is none
    return epoch_source(access_spec(plan, task_plan), open_graph(Path(task_plan.dataset.path)))
