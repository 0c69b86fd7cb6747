"""Which mini-batches a plan's ranks read, and how they may be sampled before. Nothing here needs torch."""

from pathlib import Path

from graphmill.access.presampled import epoch_source
from graphmill.access.spec import AccessSpec
from graphmill.base.errors import UserError
from graphmill.sample.presampled.schedule import EpochSource
from graphmill.spec.device_memory import GIB
from graphmill.spec.node_models import reads_node_types
from graphmill.spec.plan import Plan
from graphmill.spec.sign import propagation_of
from graphmill.tasks.node_classification.page import NodeClassificationPlan
from graphmill.tasks.node_classification.parts import open_graph


def access_spec(plan: Plan, own: NodeClassificationPlan) -> AccessSpec:
    """What the plan's model reads of its graph."""
    return AccessSpec(
        plan=plan,
        num_train=own.dataset.num_train,
        num_features=own.dataset.num_features,
        fanouts=() if propagation_of(own.model) else own.num_neighbors,  # of plans of before they were left out
        relation_fanouts=own.relation_fanouts or (),
        resample=own.resamples,
        undirected=own.undirected,
        features=own.features,
        edge_columns=own.edge_columns,
        node_types=reads_node_types(own.model),
        has_weighted_means=own.has_weighted_means,
        partition=own.partition,
        evaluates_whole=own.evaluate_on == "whole_graph",
        edge_dropout=own.edge_dropout,
        presampled=None if own.presampled is None else Path(own.presampled),
        propagation=propagation_of(own.model),
        gpu_graph_bytes=None if own.gpu_graph_gib is None else int(own.gpu_graph_gib * GIB),
        gpu_draws=own.gpu_draws or "measured",
    )


def epochs_of(plan: Plan) -> EpochSource:
    """How the epochs of a plan are sampled; `UserError` if its data are not prepared."""
    own = plan.task
    assert isinstance(own, NodeClassificationPlan)
    if propagation_of(own.model) is not None:
        raise UserError(
            f"model.kind is {own.model.kind}, which samples nothing, so that there is nothing to sample before",
            fix="train it as it is, or set model.kind=graphsage",
        )
    own.dataset.prepared_checksum  # noqa: B018  # raises where there is none
    return epoch_source(access_spec(plan, own), open_graph(Path(own.dataset.path)))
