"""What a model of node classification takes, by formula: parameters, neighbourhoods, bytes of a step, a GPU's graph."""

from typing import TYPE_CHECKING, Final

from graphmill.base.errors import UserError
from graphmill.spec.device_memory import ResidentGraph
from graphmill.spec.exact_pass import WholePass, whole_pass_of
from graphmill.spec.experiment import Experiment
from graphmill.spec.kinds.kind import Sizes, StepShape
from graphmill.spec.node_models import GraphSageSpec, NodeAttentionSpec
from graphmill.spec.node_sizes import (
    SampledModel,
    drawn_bytes,
    held_by_rank,
    layer_widths,
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
from graphmill.spec.sign import SignSpec

if TYPE_CHECKING:
    from graphmill.tasks.node_classification.page import NodeClassificationPlan

_SPARSE_ROWS: Final = "rows of sparse features: a plan does not know how many values they have"


def resident_graph(plan: "NodeClassificationPlan", of: SampledModel, hops: list[int], step: StepShape) -> ResidentGraph:
    """The plan's graph as a GPU would hold it; `hops`: nodes of a batch at most."""
    known = plan.dataset
    return ResidentGraph(
        num_nodes=known.num_nodes,
        num_entries=known.num_edges * (2 if plan.undirected else 1),
        row_bytes=4 * known.num_features,
        hops=tuple(hops),
        num_drawn=num_drawn(of, hops),
        layers=layer_widths(of),
        head_channels=of.out_channels if isinstance(plan.model, GraphSageSpec) and plan.model.layers_read else 0,
        refused=unfit_for_gpu(plan),
        num_sharing=1 if plan.gpu_rows != "wholegraph" else step.ranks // step.hosts,
    )


def unfit_for_gpu(plan: "NodeClassificationPlan") -> str:
    """Why a GPU cannot draw of the plan's graph, in words; "": it can."""
    name = plan.dataset.name
    if plan.partition is not None:
        return f"{name} is in parts, and a GPU draws of a graph that is stored whole"
    if plan.dataset.has_sparse_features:
        return f"features of {name} are sparse, and a GPU gathers dense rows"
    if plan.relation_fanouts:
        return "train.num_neighbors has fan-outs by relation, and a GPU draws of all relations together"
    if plan.edge_columns:
        return "the model reads features or types of edges, and a GPU gathers rows of nodes only"
    if plan.edge_dropout:
        return "train.edge_dropout is done on the CPU, and a GPU makes batches of all edges that it draws"
    return _undrawn(plan)


def _undrawn(plan: "NodeClassificationPlan") -> str:
    """Why nothing is drawn of the plan's graph, in words; "": something is."""
    if isinstance(plan.model, SignSpec):
        return "model.kind sign reads features that were propagated before, so that nothing is drawn"
    if plan.presampled is not None:
        return "train.presampled gives the neighbourhoods, so that nothing is drawn"
    return ""


def refuse_gpu_graph(plan: "NodeClassificationPlan", experiment: Experiment) -> None:
    """Raise a `UserError` if the graph is to lie on a GPU, and cannot."""
    if plan.gpu_graph_gib is None:
        offered = "" if _why_not(plan, experiment) else "set train.gpu_graph_gib, or "
        for key, default in (("gpu_draws", "measured"), ("gpu_rows", "own")):
            if (asked := getattr(experiment.train, key, default)) != default:
                raise UserError(
                    f"train.{key} is {asked}, but no graph lies for a GPU, and the CPU draws and gathers",
                    fix=f"{offered}leave train.{key} out",
                )
        return
    if why := _why_not(plan, experiment):
        raise UserError(
            f"train.gpu_graph_gib is {plan.gpu_graph_gib:g}, but {why}", fix="leave train.gpu_graph_gib out"
        )


def _why_not(plan: "NodeClassificationPlan", experiment: Experiment) -> str:
    """Why the graph of this experiment cannot lie on a GPU, in words; "": it can."""
    if experiment.train.device == "cpu":
        return "train.device is cpu"
    if experiment.roles is not None:
        return "roles: processes without a GPU sample for the ranks"
    return unfit_for_gpu(plan)


def sizes(plan: "NodeClassificationPlan", step: StepShape) -> Sizes:
    """Parameters of GraphSAGE; nodes and bytes of a sampled neighbourhood, at most."""
    of = _sampled_model(plan)
    hops = nodes_per_hop(of, _most_seeds(plan, step))
    batch, activations = sampled_bytes(of, hops)
    not_counted = _not_counted(plan)
    if plan.evaluate_on == "whole_graph":
        activations = max(activations, whole_pass(plan).num_bytes)
    if plan.partition is None or plan.dataset.num_parts is None:
        return Sizes(
            parameters(of),
            batch,
            activations,
            nodes_per_batch=sum(hops),
            index_bytes=held_by_rank(plan, plan.model, of.out_channels),
            not_counted=not_counted,
            resident=resident_graph(plan, of, hops, step),
        )
    known = plan.dataset
    graph = PartedGraphSizes(
        num_nodes=known.num_nodes,
        num_entries=known.num_edges * (2 if plan.undirected else 1),
        num_features=known.num_features,
        is_sparse=known.has_sparse_features,
        num_parts=plan.dataset.num_parts,
        num_train=known.num_train,
        nodes_per_batch=sum(hops),
        edges_per_batch=num_drawn(of, hops),
        num_edge_columns=len(plan.edge_columns),
        drawn_bytes=drawn_bytes(of, hops),
        target_bytes=8 if known.target_kind == "class" else known.num_classes,
    )
    if isinstance(plan.model, GraphSageSpec):  # others are evaluated by batches
        of_evaluation = evaluation_bytes(graph, plan.model.hidden_channels, layers_read=plan.model.layers_read)
        activations = max(activations, of_evaluation)
    return Sizes(
        parameters(of),
        batch,
        activations,
        nodes_per_batch=sum(hops),
        data_bytes=mapped_bytes(graph, plan.partition, step),
        shared_bytes=shared_bytes(graph, plan.partition, step),
        index_bytes=held_bytes(graph, plan.partition, step),
        not_counted=not_counted,
        resident=resident_graph(plan, of, hops, step),
    )


def whole_pass(plan: "NodeClassificationPlan") -> WholePass:
    """One call of the plan's model on its whole graph."""
    return whole_pass_of(plan, plan.model, plan.dataset.num_classes)


def _most_seeds(plan: "NodeClassificationPlan", step: StepShape) -> int:
    """Largest number of seeds in a batch of a rank."""
    if plan.partition is None or plan.dataset.num_parts is None:
        return step.batch_size
    return largest_batch(plan.partition, plan.dataset.num_parts, step)


def _not_counted(plan: "NodeClassificationPlan") -> str:
    """Models with attention write their rows out, so that those of a batch are counted."""
    written_out = plan.partition is None and isinstance(plan.model, NodeAttentionSpec)
    return _SPARSE_ROWS if plan.dataset.has_sparse_features and not written_out else ""


def _sampled_model(plan: "NodeClassificationPlan") -> SampledModel:
    known = plan.dataset
    return sampled_model(plan, plan.model, most_seeds=known.num_train, out_channels=known.num_classes)
