"""What a model of sampled neighbourhoods takes, by formula: parameters, nodes and edges, bytes of a step."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from graphmill.spec.attention import kept_bytes
from graphmill.spec.experiment import CustomModelSpec
from graphmill.spec.fanouts import held_bytes
from graphmill.spec.node_models import GraphSageSpec, NodeAttentionSpec, NodeModelSpec
from graphmill.spec.relational import TYPED_MODELS, HgtSizes, HgtSpec, RelationalSpec
from graphmill.spec.sign import SignSpec


class _KnownGraph(Protocol):
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def num_features(self) -> int: ...
    @property
    def has_sparse_features(self) -> bool: ...
    @property
    def edge_types(self) -> tuple[str, ...]: ...
    @property
    def node_types(self) -> tuple[str, ...]: ...


class SampledPlan(Protocol):
    """The section of a plan whose model reads sampled neighbourhoods."""

    @property
    def dataset(self) -> _KnownGraph:
        """What is known of the graph."""

    @property
    def num_neighbors(self) -> tuple[int, ...]:
        """Fan-out of each hop."""

    @property
    def relation_fanouts(self) -> tuple[tuple[int, ...], ...] | None:
        """Fan-outs of each relation in turn; None: `num_neighbors` are for all together."""

    @property
    def undirected(self) -> bool:
        """Whether messages pass along both directions of every edge."""

    @property
    def edge_columns(self) -> tuple[int, ...]:
        """Which columns of the edge features the model is called with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledModel:
    """A model, the neighbourhoods that it reads, and how wide their rows are."""

    model: NodeModelSpec
    num_neighbors: tuple[int, ...]
    num_nodes: int  # of the graph
    most_seeds: int  # of a batch
    num_features: int
    has_sparse_features: bool
    num_relations: int  # types of edges
    num_node_types: int
    num_edge_columns: int  # features of an edge that it reads
    out_channels: int


def sampled_model(plan: SampledPlan, model: NodeModelSpec, *, most_seeds: int, out_channels: int) -> SampledModel:
    """`model`, the plan's; `most_seeds`: of a batch."""
    known = plan.dataset
    return SampledModel(
        model=model,
        num_neighbors=plan.num_neighbors,
        num_nodes=known.num_nodes,
        most_seeds=most_seeds,
        num_features=known.num_features,
        has_sparse_features=known.has_sparse_features,
        num_relations=len(known.edge_types),
        num_node_types=len(known.node_types),
        num_edge_columns=len(plan.edge_columns),
        out_channels=out_channels,
    )


def held_by_rank(plan: SampledPlan, model: NodeModelSpec, out_channels: int) -> int:
    """Bytes that a rank keeps besides the mapped graph: propagated features and labels, or what its sampler does.

    Labels are propagated first, which takes three tables of them.
    """
    if not isinstance(model, SignSpec):
        return held_by_sampler(plan)
    known, extra_columns = plan.dataset, model.num_extra_columns(out_channels)
    table = model.propagation.table_bytes(
        known.num_nodes, known.num_features, is_sparse=known.has_sparse_features, num_extra_columns=extra_columns
    )
    return max(table, 3 * 4 * known.num_nodes * (extra_columns + 1) if extra_columns else 0)


def held_by_sampler(plan: SampledPlan) -> int:
    """Bytes that a rank's sampler keeps besides the mapped graph: where neighbours are drawn by relation."""
    known = plan.dataset
    return held_bytes(known.num_nodes, known.num_edges, len(known.edge_types)) if plan.relation_fanouts else 0


def parameters(of: SampledModel) -> int | None:
    """Number of parameters of the model; None: a model by dotted path.

    GraphSAGE: per layer a weight for the node, one for the mean of its neighbours, and a bias; a head, if it has one.
    """
    if isinstance(of.model, CustomModelSpec):
        return None
    if isinstance(of.model, NodeAttentionSpec):
        return _attention_parameters(of.model, of)
    if isinstance(of.model, RelationalSpec):
        widths = _relational_widths(of.model, of)
        projection = of.num_features * widths[0] if of.has_sparse_features else 0
        return projection + of.model.parameters(widths, of.num_relations, of.num_node_types)
    if isinstance(of.model, HgtSpec):
        return of.model.parameters(
            HgtSizes(
                num_features=of.num_features,
                is_sparse=of.has_sparse_features,
                num_node_types=of.num_node_types,
                num_relations=of.num_relations,
                out_channels=of.out_channels,
            )
        )
    if isinstance(of.model, SignSpec):
        return of.model.parameters(of.num_features, of.out_channels)
    widths = [of.num_features, *layer_widths(of)]
    layers = sum(2 * inner * outer + outer for inner, outer in itertools.pairwise(widths))
    return layers + ((of.model.head_channels + 1) * of.out_channels if of.model.head_channels else 0)


def layer_widths(of: SampledModel) -> tuple[int, ...]:
    """Channels that each layer of GraphSAGE gives; (): another model, whose layers are not computed one by one."""
    if not isinstance(of.model, GraphSageSpec):
        return ()
    num_hidden = of.model.num_hidden
    return (*[of.model.hidden_channels] * num_hidden, *[of.out_channels] * (of.model.num_layers - num_hidden))


def _attention_parameters(model: NodeAttentionSpec, of: SampledModel) -> int:
    inner, edges = [of.num_features, *[model.width] * (model.num_layers - 1)], of.num_edge_columns
    hidden = sum(model.parameters_of_layer(width, model.hidden_channels, edges) for width in inner[:-1])
    return hidden + model.parameters_of_layer(inner[-1], of.out_channels, edges, concat=False)


def _relational_widths(model: RelationalSpec, of: SampledModel) -> list[int]:
    return model.widths(of.num_features, of.out_channels, has_sparse_features=of.has_sparse_features)


def nodes_per_hop(of: SampledModel, batch_size: int) -> list[int]:
    """Nodes of each hop, at most: [seeds, hop 1, …]. All neighbours (-1) may be the whole graph."""
    hops = [min(batch_size, of.most_seeds)]
    for fanout in of.num_neighbors:
        reached = of.num_nodes if fanout == -1 else hops[-1] * fanout
        hops.append(max(0, min(reached, of.num_nodes - sum(hops))))
    return hops


def sampled_bytes(of: SampledModel, hops: Sequence[int]) -> tuple[int, int]:
    """Bytes of one mini-batch, and of what its backward pass needs."""
    edges, rows, drawn = num_drawn(of, hops), sum(hops[:-1]), drawn_bytes(of, hops)
    inputs = 0 if of.has_sparse_features else rows * 2 * of.num_features * 4
    if isinstance(of.model, NodeAttentionSpec):  # every layer is computed for all nodes of the neighbourhood
        per_edge = 0 if of.model.attention == "fused" else 4 * (3 * of.model.width + 6 * of.model.heads)
        per_node = 4 * (6 * of.model.width + 3 * of.model.heads) + 4 * of.num_features
        layers = [sum(hops) * per_node + (edges + sum(hops)) * per_edge] * of.model.num_layers
        kept = 4 * sum(hops) * of.model.num_layers * of.model.width  # what the layers read, and the last one gives
        activations = kept_bytes(layers, kept, checkpointed=of.model.checkpoint_activations)
        return drawn + sum(hops) * of.num_features * 4, activations
    if isinstance(of.model, SignSpec):
        return _rows_bytes(of.model, of, hops[0]), of.model.activation_bytes(hops[0], of.out_channels)
    x = 0 if of.has_sparse_features else sum(hops) * of.num_features * 4
    if isinstance(of.model, RelationalSpec):
        widths, types = _relational_widths(of.model, of), of.num_relations
        return drawn + x, of.model.activation_bytes(widths, hops, of.num_neighbors, types)
    if isinstance(of.model, HgtSpec):
        return drawn + x, of.model.activation_bytes(hops, of.num_neighbors, of.num_relations)
    if isinstance(of.model, GraphSageSpec) and of.num_edge_columns:  # rows are collected, and averaged by weight later
        inputs = sum(hops) * of.num_features * 4 + inputs
    if not isinstance(of.model, GraphSageSpec):
        return drawn + inputs, 0
    hidden, copies = 2 * of.model.hidden_channels, 3 + of.model.residual  # one of the sum, and of its gradient
    activations = copies * 4 * sum(sum(hops[:-depth]) * hidden for depth in range(1, len(hops)))
    return drawn + inputs, activations + 3 * 4 * hops[0] * of.model.head_channels


def _rows_bytes(model: SignSpec, of: SampledModel, rows: int) -> int:
    """Rows of propagated features of a mini-batch, at most."""
    kept, extra_columns = of.num_features, model.num_extra_columns(of.out_channels)
    if of.has_sparse_features:
        kept, extra_columns = 2 * min(kept, model.values_per_hop or kept), 2 * extra_columns
    return 4 * rows * (kept * model.propagation.num_blocks + extra_columns)


def num_drawn(of: SampledModel, hops: Sequence[int]) -> int:
    """Edges of a mini-batch, as far as fan-outs say."""
    of_hops = hops[:-1]
    draw = itertools.accumulate(of_hops) if isinstance(of.model, TYPED_MODELS) else of_hops  # known ones, again
    return sum(nodes * fanout for nodes, fanout in zip(draw, of.num_neighbors, strict=True) if fanout > 0)


def drawn_bytes(of: SampledModel, hops: Sequence[int]) -> int:
    """Bytes of a sampled neighbourhood without features of nodes."""
    of_edge = 4 + (8 + 4 * of.num_edge_columns if of.num_edge_columns else 0)
    return sum(hops) * 8 + sum(hops[:-1]) * 8 + num_drawn(of, hops) * of_edge
