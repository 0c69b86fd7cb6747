"""Types in batches of a graph in parts: what `batch.to_heterogeneous` asks for."""

from collections.abc import Sequence
from typing import Any

from graphmill.graph.typed import ANY, EdgeType, NodeType


def name_types(batch: Any, nodes: Sequence[NodeType], edges: Sequence[EdgeType]) -> None:  # noqa: ANN401  # a Data
    """What `batch.to_heterogeneous()` reads; not where a relation is of several types of nodes: it cannot take that."""
    if any(ANY in (each.source, each.target) for each in edges):
        return
    batch._node_type_names = [each.name for each in nodes]
    batch._edge_type_names = [tuple(each.relation) for each in edges]
