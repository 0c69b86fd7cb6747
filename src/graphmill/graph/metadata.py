"""The own part of metadata.json that every graph has: what the arrays are, and how many of each thing."""

from typing import ClassVar

from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt

from graphmill.graph.features import STORED_AS, FeatureDtype
from graphmill.graph.header import Expected, Header
from graphmill.graph.topology import MAX_NODES, index_dtype
from graphmill.graph.typed import EdgeType, NamedTypes, NodeType, type_dtype, unknown_ends
from graphmill.spec.typed_graph import EDGE_TYPE


class GraphMetadata(Header, NamedTypes):
    """What a GraphStore says about itself; a task's own class adds what its nodes and edges have besides features."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    came_later: ClassVar[tuple[str, ...]] = ("scales_differ", "edge_features", "node_types", "edge_types")

    source: str = Field(description="where the graph came from, and what was done to it on the way")
    num_nodes: PositiveInt = Field(le=MAX_NODES)
    num_edges: PositiveInt = Field(description="directed edges as given, duplicates merged")
    num_undirected_edges: PositiveInt = Field(
        description="entries of the union of both directions: two per edge, one per self-loop"
    )
    num_features: NonNegativeInt = Field(description="0: nodes have none, and x has no column")
    feature_dtype: FeatureDtype
    scales_differ: bool = Field(False, description="dense features have columns of unlike scale, and are no counts")
    is_symmetric: bool
    num_duplicate_edges: NonNegativeInt = Field(description="edges that were given again, and merged")
    num_isolated_nodes: NonNegativeInt = Field(description="nodes without an edge from or to another node")
    num_self_loops: NonNegativeInt
    edge_features: tuple[str, ...] = Field((), description="names of the columns; none if edges have no features")
    node_types: tuple[NodeType, ...] = Field((), description="none if the graph has no types")
    edge_types: tuple[EdgeType, ...] = Field((), description="none if the graph has no types")

    @property
    def has_sparse_features(self) -> bool:
        """Whether features are compressed sparse rows."""
        return "x_indptr" in self.arrays

    def expected_arrays(self) -> Expected:
        """What the arrays of such a graph must be."""
        return _expected_arrays(self)

    def disagreement(self) -> str | None:
        """How the counts, dtypes and shapes contradict each other, or None."""
        expected = self.expected_arrays()
        if set(self.arrays) != set(expected):
            return f"arrays are {sorted(self.arrays)}, and should be {sorted(expected)}"
        for name, (dtype, shape) in expected.items():
            record = self.arrays[name]
            if record.dtype != dtype or record.shape != shape:
                return f"arrays.{name} is {record.dtype} {list(record.shape)}, and should be {dtype} {list(shape)}"
        return _types_disagreement(self)


def _expected_arrays(metadata: GraphMetadata) -> Expected:
    num_nodes = metadata.num_nodes
    ids = index_dtype(num_nodes).name
    expected: Expected = {
        "indptr": ("int64", (num_nodes + 1,)),
        "indices": (ids, (metadata.num_edges,)),
    }
    if not metadata.is_symmetric:
        expected["undirected_indptr"] = ("int64", (num_nodes + 1,))
        expected["undirected_indices"] = (ids, (metadata.num_undirected_edges,))
    if metadata.edge_features:
        expected["edge_attr"] = ("float32", (metadata.num_edges, len(metadata.edge_features)))
    if metadata.node_types:
        expected["node_type"] = (type_dtype(len(metadata.node_types)).name, (num_nodes,))
    elif metadata.edge_features and not metadata.is_symmetric:
        edge_ids = index_dtype(metadata.num_edges).name
        expected["undirected_edge_ids"] = (edge_ids, (metadata.num_undirected_edges,))
    if metadata.has_sparse_features:
        values = metadata.arrays.get("x_values")
        shape = values.shape[:1] if values else (0,)
        expected["x_indptr"] = ("int64", (num_nodes + 1,))
        expected["x_indices"] = ("int32", shape)
        expected["x_values"] = ("float32", shape)
    else:
        expected["x"] = (STORED_AS[metadata.feature_dtype], (num_nodes, metadata.num_features))
    return expected


def _types_disagreement(metadata: GraphMetadata) -> str | None:
    nodes, edges = metadata.node_types, metadata.edge_types
    if not nodes and not edges:
        return None
    names, relations = [each.name for each in nodes], [each.relation for each in edges]
    if not nodes or not edges or metadata.edge_features[-1:] != (EDGE_TYPE,):
        return f"{len(nodes)} node types, {len(edges)} edge types, and the edge features {metadata.edge_features}"
    if len(set(names)) != len(names) or len(set(relations)) != len(relations):
        return "a type is there twice"
    counted = (sum(each.num_nodes for each in nodes), sum(each.num_edges for each in edges))
    if counted != (metadata.num_nodes, metadata.num_edges):
        return f"the types have {counted[0]} nodes and {counted[1]} edges, the graph others"
    return unknown_ends(relations, names)
