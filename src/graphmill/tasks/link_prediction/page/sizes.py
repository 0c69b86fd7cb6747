"""What a model of links takes, by formula: parameters, sampled neighbourhoods, bytes of a step."""

import itertools
from typing import TYPE_CHECKING, Final

from graphmill.spec.attention import is_fused
from graphmill.spec.exact_pass import WholePass, widest
from graphmill.spec.kinds.kind import Sizes, StepShape
from graphmill.spec.node_sizes import SampledModel, nodes_per_hop, parameters, sampled_bytes
from graphmill.tasks.link_prediction.page.models import ComplExSpec, DistMultSpec, EmbeddingSpec, PerceptronSpec

if TYPE_CHECKING:
    from graphmill.tasks.link_prediction.page import LinkPredictionPlan

_SPARSE_ROWS: Final = "rows of sparse features: a plan does not know how many values they have"


def sizes(plan: "LinkPredictionPlan", step: StepShape) -> Sizes:
    """Parameters; nodes and bytes of a sampled neighbourhood, at most; the rows of both ends of each pair.

    A rank keeps known edges, to check negatives. An evaluation has the rows of all nodes, and gathers them.
    """
    known, channels = plan.dataset, plan.embedding_channels
    links = min(step.batch_size, known.num_train)
    pairs = links * (1 + plan.negatives.count)
    ends = min(links * (2 + plan.negatives.count), known.num_nodes)
    of_pairs = 4 * pairs * (3 * channels + _hidden(plan))
    if isinstance(plan.model, EmbeddingSpec):
        table = known.num_nodes * channels
        activations = max(of_pairs + 4 * ends * channels, 4 * table)
        return Sizes(table + _head_parameters(plan), 24 * pairs, activations, index_bytes=_known_bytes(plan))
    of = SampledModel(
        model=plan.model,
        num_neighbors=plan.num_neighbors,
        num_nodes=known.num_nodes,
        most_seeds=ends,
        num_features=known.num_features,
        has_sparse_features=known.has_sparse_features,
        num_relations=len(known.edge_types),
        num_node_types=len(known.node_types),
        num_edge_columns=len(plan.edge_columns),
        out_channels=channels,
    )
    hops = nodes_per_hop(of, ends)
    batch, activations = sampled_bytes(of, hops)
    encoder = parameters(of)
    of_evaluation = 2 * 4 * known.num_nodes * channels
    if plan.evaluate_on == "whole_graph":
        of_evaluation = max(of_evaluation, whole_pass(plan).num_bytes)
    return Sizes(
        None if encoder is None else encoder + _head_parameters(plan),
        batch + 24 * pairs,
        max(activations + of_pairs, of_evaluation),
        nodes_per_batch=sum(hops),
        index_bytes=_known_bytes(plan),
        not_counted=_SPARSE_ROWS if known.has_sparse_features else "",
    )


def whole_pass(plan: "LinkPredictionPlan") -> WholePass:
    """One call of the plan's encoder on the whole graph that messages pass along."""
    known = plan.dataset
    return WholePass(
        num_nodes=known.num_nodes,
        num_entries=known.num_edges * (2 if plan.undirected else 1),
        num_features=known.num_features,
        num_edge_columns=len(plan.edge_columns),
        width=widest(
            plan.model,
            num_features=known.num_features,
            has_sparse_features=known.has_sparse_features,
            out_channels=plan.embedding_channels,
        ),
        writes_messages=not is_fused(plan.model),
    )


def _known_bytes(plan: "LinkPredictionPlan") -> int:
    """Of each end that negatives replace: an id and a number for each known edge, an offset for each node."""
    known = plan.dataset
    entries = (known.num_train + known.num_edges) * (1 if known.links_have_direction else 2) + known.num_nodes
    ends = 2 if plan.negatives.side == "both" else 1
    return ends * (12 * entries + 8 * known.num_nodes)


def _head_parameters(plan: "LinkPredictionPlan") -> int:
    if isinstance(plan.head, DistMultSpec | ComplExSpec):
        return max(plan.dataset.num_relations, 1) * plan.embedding_channels
    if isinstance(plan.head, PerceptronSpec):
        widths = [plan.embedding_channels, *[plan.head.hidden_channels] * (plan.head.num_layers - 1), 1]
        return sum((inner + 1) * outer for inner, outer in itertools.pairwise(widths))
    return 0


def _hidden(plan: "LinkPredictionPlan") -> int:
    """Channels of a pair that the head keeps for its backward pass."""
    if not isinstance(plan.head, PerceptronSpec):
        return 0
    return 3 * plan.head.hidden_channels * (plan.head.num_layers - 1)
