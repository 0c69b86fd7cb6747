"""Which features of edges a model reads, and what no model can read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from graphmill.base.errors import UserError
from graphmill.spec.node_models import EdgeArgument, GraphSageSpec, NodeAttentionSpec, NodeModelSpec, reads_types
from graphmill.spec.sign import SignSpec
from graphmill.spec.typed_graph import no_union_of_types

if TYPE_CHECKING:
    from graphmill.tasks.node_classification.page import GraphInfo

WEIGHT_NAMES: Final = ("edge_weight", "weight")  # of a column of edge features that is a weight


def weight_column(names: Sequence[str]) -> int:
    """Which column is the weight of an edge. ValueError if none is."""
    if len(names) == 1:
        return 0
    return next(number for number, name in enumerate(names) if name in WEIGHT_NAMES)


def refuse_edge_features(
    argument: EdgeArgument | None, model: NodeModelSpec, dataset: "GraphInfo", *, undirected: bool
) -> None:
    """Raise a `UserError` if `dataset.edge_features` asks for what the model does not read, or edges do not have."""
    if argument is None:
        return
    key, names = f"dataset.edge_features is {argument}", dataset.plain_edge_features
    _refuse_unread(key, argument, model)
    if not names:
        raise UserError(
            f"{key}, but the edges of {dataset.name} have no features",
            fix="leave dataset.edge_features out, or prepare the data with them",
        )
    if undirected and dataset.edge_types:
        raise no_union_of_types(dataset.name)
    if argument == "edge_weight" and len(names) > 1 and not set(names) & set(WEIGHT_NAMES):
        fix = "prepare the data with a column of that name"
        raise UserError(
            f"{key}, but none of the {len(names)} edge features of {dataset.name} is called"
            f" {' or '.join(WEIGHT_NAMES)}: {', '.join(names)}",
            fix=fix if isinstance(model, GraphSageSpec) else f"set dataset.edge_features=edge_attr, or {fix}",
        )


def _refuse_unread(key: str, argument: EdgeArgument, model: NodeModelSpec) -> None:
    if argument == "edge_attr" and isinstance(model, GraphSageSpec):
        raise UserError(
            f"{key}, but model.kind {model.kind} reads weights of edges and no other features",
            fix="set dataset.edge_features=edge_weight, or model.kind=gat, gatv2 or custom",
        )
    if isinstance(model, SignSpec):
        raise UserError(
            f"{key}, but model.kind sign reads no features of edges: they count alike when features are propagated",
            fix="leave dataset.edge_features out, or set model.kind=graphsage, gat, gatv2 or custom",
        )
    if reads_types(model):
        raise UserError(
            f"{key}, but model.kind {model.kind} reads the types of edges by itself, and nothing else of them",
            fix="leave dataset.edge_features out",
        )
    if argument == "edge_weight" and isinstance(model, NodeAttentionSpec):
        raise UserError(
            f"{key}, but model.kind {model.kind} reads features of edges and no weights",
            fix="set dataset.edge_features=edge_attr",
        )
