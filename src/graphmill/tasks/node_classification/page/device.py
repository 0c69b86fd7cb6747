"""Which graphs of node classification a GPU can hold and draw of: `train.gpu_graph_gib`."""

from typing import TYPE_CHECKING

from graphmill.base.errors import UserError
from graphmill.spec.device_memory import ResidentGraph
from graphmill.spec.experiment import Experiment
from graphmill.spec.node_models import GraphSageSpec
from graphmill.spec.node_sizes import SampledModel, layer_widths, num_drawn
from graphmill.spec.sign import SignSpec

if TYPE_CHECKING:
    from graphmill.tasks.node_classification.page import NodeClassificationPlan


def resident_graph(plan: "NodeClassificationPlan", of: SampledModel, hops: list[int]) -> ResidentGraph:
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
        if (asked := getattr(experiment.train, "gpu_draws", "measured")) != "measured":
            offered = "" if _why_not(plan, experiment) else "set train.gpu_graph_gib, or "
            raise UserError(
                f"train.gpu_draws is {asked}, but no graph lies for a GPU, and the CPU draws",
                fix=f"{offered}leave train.gpu_draws out",
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
