"""A graph at rest: one folder of memory-mapped .npy arrays and the metadata that vouches for them.

Every rank of a host maps the same pages, so a graph is in memory once however many ranks read it. What a task knows of
the nodes and edges besides their features is an array of its own store class.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from graphmill.graph.edge_features import EdgeFeatures
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures
from graphmill.graph.header import damaged
from graphmill.graph.metadata import GraphMetadata
from graphmill.graph.prepared import PreparedStore
from graphmill.graph.topology import Topology
from graphmill.spec.typed_graph import no_union_of_types


@dataclass(frozen=True, slots=True)
class GraphStore(PreparedStore):
    """A prepared graph."""

    metadata: GraphMetadata

    def topology(self, *, undirected: bool) -> Topology:
        """In-neighbours as given, or the union of both directions of every edge."""
        prefix = "undirected_" if undirected and not self.metadata.is_symmetric else ""
        return Topology(indptr=self.array(f"{prefix}indptr"), indices=self.array(f"{prefix}indices"))

    def edge_features(self, *, undirected: bool) -> EdgeFeatures:
        """Features of the edges, for the entries of `topology` with the same `undirected`.

        ValueError if edges have none; `UserError` if an entry is of no edge, or would have no type.
        """
        if not self.metadata.edge_features:
            raise ValueError(f"the edges of {self.metadata.name} have no features")
        if not undirected or self.metadata.is_symmetric:
            return EdgeFeatures(self.array("edge_attr"), None)
        if self.metadata.edge_types:
            raise no_union_of_types(self.metadata.name)
        rows = self.array("undirected_edge_ids")
        if not 0 <= rows.min() <= rows.max() < self.metadata.num_edges:  # what is gathered by them is not checked again
            raise damaged(self.path / "undirected_edge_ids.npy", f"an id is not one of {self.metadata.num_edges} edges")
        return EdgeFeatures(self.array("edge_attr"), rows)

    @property
    def node_type(self) -> NDArray[Any]:
        """Type of each node [num_nodes], a place in `metadata.node_types`, of a typed graph."""
        return self.array("node_type")

    def seeds_of_nodes(self) -> NDArray[Any] | None:
        """How many seeds of an epoch each node answers for [num_nodes], bool or uint32; None: it is never in parts."""
        return None

    def lists(self) -> Mapping[str, NDArray[Any] | None]:
        """Arrays of no node and no edge that all ranks of a graph in parts read, by name; None: the store's own."""
        return {}

    @property
    def features(self) -> Features:
        """Features of all nodes, in ascending order of node id."""
        if self.metadata.has_sparse_features:
            return SparseFeatures(
                indptr=self.array("x_indptr"),
                indices=self.array("x_indices"),
                values=self.array("x_values"),
                num_features=self.metadata.num_features,
            )
        return DenseFeatures(self.array("x"), self.metadata.feature_dtype)
