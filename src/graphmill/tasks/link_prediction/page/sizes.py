"""What a model of links takes, by formula: parameters, sampled neighbourhoods, bytes of a step."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from graphmill.spec.exact_pass import WholePass, whole_pass_of
from graphmill.spec.kinds.kind import Sizes, StepShape
from graphmill.spec.node_models import GraphSageSpec
from graphmill.spec.node_sizes import (
    SampledModel,
    drawn_bytes,
    held_by_sampler,
    nodes_per_hop,
    num_drawn,
    parameters,
    sampled_bytes,
    sampled_model,
)
from graphmill.spec.parted_memory import (
    PartedGraphSizes,
    evaluation_bytes,
    held_bytes,
    largest_batch,
    mapped_bytes,
    shared_bytes,
)
from graphmill.tasks.link_prediction.page.models import ComplExSpec, DistMultSpec, EmbeddingSpec, PerceptronSpec

if TYPE_CHECKING:
    from graphmill.tasks.link_prediction.page import LinkPredictionPlan

_SPARSE_ROWS: Final = "rows of sparse features: a plan does not know how many values they have"


def sizes(plan: "LinkPredictionPlan", step: StepShape) -> Sizes:
    """Parameters; nodes and bytes of a sampled neighbourhood, at most; the rows of both ends of each pair.

    A rank keeps known edges, to check negatives. An evaluation has the rows of all nodes, and gathers them.
    """
    known, channels = plan.dataset, plan.embedding_channels
    links = min(_most_links(plan, step), known.num_train)
    count, is_shared = plan.negatives.count, plan.negatives.shared
    pairs = links * (1 + count)
    ends = min(2 * links + (count if is_shared else links * count), known.num_nodes)
    of_pairs = 4 * pairs * (3 * channels + _hidden(plan))
    if is_shared and not isinstance(plan.head, PerceptronSpec):
        of_pairs = 4 * (3 * pairs + 3 * channels * (2 * links + count))  # scores alone are made of every pair
    if isinstance(plan.model, EmbeddingSpec):
        table = known.num_nodes * channels
        activations = max(of_pairs + 4 * ends * channels, 4 * table)
        return Sizes(table + _head_parameters(plan), 24 * pairs, activations, index_bytes=_known_bytes(plan))
    of = sampled_model(plan, plan.model, most_seeds=ends, out_channels=channels)
    hops = nodes_per_hop(of, ends)
    batch, activations = sampled_bytes(of, hops)
    encoder = parameters(of)
    of_evaluation = 2 * 4 * known.num_nodes * channels
    if plan.evaluate_on == "whole_graph":
        of_evaluation = max(of_evaluation, whole_pass(plan).num_bytes)
    found = Sizes(
        None if encoder is None else encoder + _head_parameters(plan),
        batch + 24 * pairs,
        max(activations + of_pairs, of_evaluation),
        nodes_per_batch=sum(hops),
        index_bytes=_known_bytes(plan) + held_by_sampler(plan),
        not_counted=_SPARSE_ROWS if known.has_sparse_features else "",
    )
    return _in_parts(plan, step, found, of, hops)


def _most_links(plan: "LinkPredictionPlan", step: StepShape) -> int:
    """Largest number of links in a batch of a rank."""
    if plan.partition is None or plan.dataset.num_parts is None:
        return step.batch_size
    return largest_batch(plan.partition, plan.dataset.num_parts, step)


def _in_parts(
    plan: "LinkPredictionPlan", step: StepShape, full_sizes: Sizes, of: SampledModel, hops: Sequence[int]
) -> Sizes:
    """Sizes with what a graph in parts has mapped and held; the lists of links are mapped whole."""
    known, spec = plan.dataset, plan.partition
    if spec is None or known.num_parts is None:
        return full_sizes
    graph = PartedGraphSizes(
        num_nodes=known.num_nodes,
        num_entries=known.num_edges * (2 if plan.undirected else 1),
        num_features=known.num_features,
        is_sparse=known.has_sparse_features,
        num_parts=known.num_parts,
        num_train=known.num_nodes,
        nodes_per_batch=sum(hops),
        edges_per_batch=num_drawn(of, hops),
        num_edge_columns=len(plan.edge_columns),
        drawn_bytes=drawn_bytes(of, hops),
    )
    mapped, model = mapped_bytes(graph, spec, step), plan.model
    lists = graph.id_bytes * (3 if known.num_relations else 2) * sum(known.links.values())
    evaluating = 0
    if isinstance(model, GraphSageSpec):
        evaluating = evaluation_bytes(graph, model.hidden_channels, layers_read=model.layers_read)
    return replace(
        full_sizes,
        activation_bytes=max(full_sizes.activation_bytes, evaluating + 4 * known.num_nodes * plan.embedding_channels),
        data_bytes=None if mapped is None else mapped + lists,
        shared_bytes=shared_bytes(graph, spec, step),
        index_bytes=full_sizes.index_bytes + held_bytes(graph, spec, step),
    )


def whole_pass(plan: "LinkPredictionPlan") -> WholePass:
    """One call of the plan's encoder on the whole graph that messages pass along."""
    return whole_pass_of(plan, plan.model, plan.embedding_channels)


def _known_bytes(plan: "LinkPredictionPlan") -> int:
    """Bytes for each end that negatives replace: an id and a number per known edge, an offset per node."""
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
