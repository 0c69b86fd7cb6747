"""What access asks of a prepared graph that a task has opened. Nothing here needs torch."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.edge_features import EdgeFeatures
from graphmill.graph.features import Features
from graphmill.graph.splits import Split
from graphmill.graph.topology import Topology

Ids = NDArray[np.int64]


class NodeStore(Protocol):
    """A prepared graph as a task has opened it, whole or in parts."""

    @property
    def path(self) -> Path:
        """Folder of the prepared graph."""

    @property
    def metadata(self) -> Any:  # noqa: ANN401  # GraphMetadata, or PartsMetadata
        """Header of the prepared graph."""

    @property
    def node_type(self) -> NDArray[Any]:
        """Type of each node [num_nodes], of a graph with types."""

    def nodes_in(self, split: Split) -> Ids:
        """Ascending ids of the nodes of a split."""


class WholeStore(NodeStore, Protocol):
    """Prepared graph that is stored whole; `GraphStore` and a split of its nodes."""

    @property
    def features(self) -> Features:
        """Features of all nodes."""

    def topology(self, *, undirected: bool) -> Topology:
        """In-neighbours as given, or the union of both directions."""

    def edge_features(self, *, undirected: bool) -> EdgeFeatures:
        """Features of the edges, for the entries of `topology` with the same `undirected`."""
