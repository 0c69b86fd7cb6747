"""What a model of node classification takes, by formula: parameters, sampled neighbourhoods, bytes of a step."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from graphmill.spec.attention import kept_bytes
from graphmill.spec.experiment import CustomModelSpec
from graphmill.spec.kinds.kind import Sizes, StepShape
from graphmill.spec.parted_memory import (
    PartedGraphSizes,
    evaluation_bytes,
    held_bytes,
    largest_batch,
    mapped_bytes,
    shared_bytes,
)
from graphmill.tasks.node_classification.page.models import GraphSageSpec, NodeAttentionSpec
from graphmill.tasks.node_classification.page.relational import RelationalSpec

if TYPE_CHECKING:
    from graphmill.tasks.node_classification.page import NodeClassificationPlan

_SPARSE_ROWS: Final = "rows of sparse features: a plan does not know how many values they have"


def sizes(plan: "NodeClassificationPlan", step: StepShape) -> Sizes:
    """Parameters of GraphSAGE; nodes and bytes of a sampled neighbourhood, at most."""
    hops = _nodes_per_hop(plan, _most_seeds(plan, step))
    batch, activations = _sampled_bytes(plan, hops)
    not_counted = _not_counted(plan)
    if plan.partition is None or plan.dataset.num_parts is None:
        return Sizes(_parameters(plan), batch, activations, nodes_per_batch=sum(hops), not_counted=not_counted)
    known = plan.dataset
    graph = PartedGraphSizes(
        num_nodes=known.num_nodes,
        num_entries=known.num_edges * (2 if plan.undirected else 1),
        num_features=known.num_features,
        is_sparse=known.has_sparse_features,
        num_parts=plan.dataset.num_parts,
        num_train=known.num_train,
        nodes_per_batch=sum(hops),
        edges_per_batch=_num_drawn(plan, hops),
        num_edge_columns=len(plan.edge_columns),
        drawn_bytes=_drawn_bytes(plan, hops),
    )
    if isinstance(plan.model, GraphSageSpec):  # others are evaluated by batches
        activations = max(activations, evaluation_bytes(graph, plan.model.hidden_channels))
    return Sizes(
        _parameters(plan),
        batch,
        activations,
        nodes_per_batch=sum(hops),
        data_bytes=mapped_bytes(graph, plan.partition, step),
        shared_bytes=shared_bytes(graph, plan.partition, step),
        index_bytes=held_bytes(graph, plan.partition, step),
        not_counted=not_counted,
    )


def _most_seeds(plan: "NodeClassificationPlan", step: StepShape) -> int:
    """Of a batch of a rank."""
    if plan.partition is None or plan.dataset.num_parts is None:
        return step.batch_size
    return largest_batch(plan.partition, plan.dataset.num_parts, step)


def _not_counted(plan: "NodeClassificationPlan") -> str:
    """Models with attention write their rows out, so that those of a batch are counted."""
    written_out = plan.partition is None and isinstance(plan.model, NodeAttentionSpec)
    return _SPARSE_ROWS if plan.dataset.has_sparse_features and not written_out else ""


def _parameters(plan: "NodeClassificationPlan") -> int | None:
    """GraphSAGE: per layer a weight for the node, one for the mean of its neighbours, and a bias."""
    if isinstance(plan.model, CustomModelSpec):
        return None
    if isinstance(plan.model, NodeAttentionSpec):
        return _attention_parameters(plan.model, plan)
    if isinstance(plan.model, RelationalSpec):
        known, widths = plan.dataset, _relational_widths(plan.model, plan)
        projection = known.num_features * widths[0] if known.has_sparse_features else 0
        return projection + plan.model.parameters(widths, len(known.edge_types))
    hidden = [plan.model.hidden_channels] * (plan.model.num_layers - 1)
    widths = [plan.dataset.num_features, *hidden, plan.dataset.num_classes]
    return sum(2 * inner * outer + outer for inner, outer in itertools.pairwise(widths))


def _attention_parameters(model: NodeAttentionSpec, plan: "NodeClassificationPlan") -> int:
    inner, edges = [plan.dataset.num_features, *[model.width] * (model.num_layers - 1)], len(plan.edge_columns)
    hidden = sum(model.parameters_of_layer(width, model.hidden_channels, edges) for width in inner[:-1])
    return hidden + model.parameters_of_layer(inner[-1], plan.dataset.num_classes, edges, concat=False)


def _relational_widths(model: RelationalSpec, plan: "NodeClassificationPlan") -> list[int]:
    known = plan.dataset
    return model.widths(known.num_features, known.num_classes, has_sparse_features=known.has_sparse_features)


def _nodes_per_hop(plan: "NodeClassificationPlan", batch_size: int) -> list[int]:
    """At most: [seeds, hop 1, …]. All neighbours (-1) may be the whole graph."""
    hops = [min(batch_size, plan.dataset.num_train)]
    for fanout in plan.num_neighbors:
        reached = plan.dataset.num_nodes if fanout == -1 else hops[-1] * fanout
        hops.append(max(0, min(reached, plan.dataset.num_nodes - sum(hops))))
    return hops


def _sampled_bytes(plan: "NodeClassificationPlan", hops: Sequence[int]) -> tuple[int, int]:
    """Bytes of one mini-batch, and of what its backward pass needs."""
    edges, rows, drawn = _num_drawn(plan, hops), sum(hops[:-1]), _drawn_bytes(plan, hops)
    inputs = 0 if plan.dataset.has_sparse_features else rows * 2 * plan.dataset.num_features * 4
    if isinstance(plan.model, NodeAttentionSpec):  # every layer is computed for all nodes of the neighbourhood
        per_edge = 0 if plan.model.attention == "fused" else 4 * (3 * plan.model.width + 6 * plan.model.heads)
        per_node = 4 * (6 * plan.model.width + 3 * plan.model.heads) + 4 * plan.dataset.num_features
        layers = [sum(hops) * per_node + (edges + sum(hops)) * per_edge] * plan.model.num_layers
        kept = 4 * sum(hops) * plan.model.num_layers * plan.model.width  # what the layers read, and the last one gives
        activations = kept_bytes(layers, kept, checkpointed=plan.model.checkpoint_activations)
        return drawn + sum(hops) * plan.dataset.num_features * 4, activations
    if isinstance(plan.model, RelationalSpec):
        widths, types = _relational_widths(plan.model, plan), len(plan.dataset.edge_types)
        x = 0 if plan.dataset.has_sparse_features else sum(hops) * plan.dataset.num_features * 4
        activations = plan.model.activation_bytes(widths, hops, plan.num_neighbors, types)
        return drawn + x, activations
    hidden = plan.model.hidden_channels if isinstance(plan.model, GraphSageSpec) else 0
    activations = 3 * 4 * sum(sum(hops[:-depth]) * 2 * hidden for depth in range(1, len(hops)))
    return drawn + inputs, activations


def _num_drawn(plan: "NodeClassificationPlan", hops: Sequence[int]) -> int:
    """Edges of a mini-batch, as far as fan-outs say."""
    of_hops = hops[:-1]
    draw = itertools.accumulate(of_hops) if isinstance(plan.model, RelationalSpec) else of_hops  # known ones, again
    return sum(nodes * fanout for nodes, fanout in zip(draw, plan.num_neighbors, strict=True) if fanout > 0)


def _drawn_bytes(plan: "NodeClassificationPlan", hops: Sequence[int]) -> int:
    """Of a sampled neighbourhood without features of nodes."""
    of_edge = 4 + (8 + 4 * len(plan.edge_columns) if plan.edge_columns else 0)
    return sum(hops) * 8 + sum(hops[:-1]) * 8 + _num_drawn(plan, hops) * of_edge
